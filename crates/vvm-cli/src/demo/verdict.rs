//! [`Verdict`]: each claim of the demo, held against what was measured and what the workers wrote.

use super::{
    check::Evidence,
    cut::Cut,
    measured::{Measured, Offset, seconds},
    timeline::Timeline,
};
use ielections::{Terms, Ttl};
use std::{fmt, time::Duration};

/// How long after a crash the next worker begins, at most.
pub(crate) fn longest_failover(ttl: Ttl) -> Duration {
    // The record stands for one TTL; a tenth and the constant are for the observer's clock, polls and process starts.
    ttl.get() * 11 / 10 + Duration::from_millis(200)
}

/// How long after a clean stop the next worker begins, at most.
pub(crate) fn longest_handover(ttl: Ttl) -> Duration {
    Terms::usual_poll(ttl) + Duration::from_millis(100)
}

/// How long after its deadline a host is dead, at most.
pub(crate) const LATEST_KILL: Duration = Duration::from_millis(20);

/// How many renewals make a leader that renews.
pub(crate) const RENEWALS: usize = 3;

/// One thing that the demo says, and whether it is so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Claim {
    pub(crate) held: bool,
    /// What is said.
    pub(crate) name: &'static str,
    /// What was found.
    pub(crate) found: String,
    /// What it had to be.
    pub(crate) bound: String,
}

impl fmt::Display for Claim {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:<40} {:>9}   {}", self.name, self.found, self.bound)
    }
}

/// All claims of a run.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Verdict {
    pub(crate) measured: Measured,
    pub(crate) claims: Vec<Claim>,
}

impl Verdict {
    /// Judges a run at this TTL, and that it was cut short if it was.
    pub(crate) fn on(timeline: &Timeline, evidence: &Evidence, ttl: Ttl, cut: Option<&Cut>) -> Self {
        let measured = Measured::of(timeline, evidence);
        let claims = vec![
            played(cut),
            renewed(&measured),
            within("crash: the next one works after", measured.crash_failover, longest_failover(ttl)),
            within("clean stop: the next one works after", measured.handover, longest_handover(ttl)),
            killed_on_time(&measured),
            killed_before_the_next(&measured),
            never_two(&measured, evidence),
            epochs_rose(&measured, evidence),
        ];
        Self { measured, claims }
    }

    /// Whether all of it held.
    pub(crate) fn held(&self) -> bool {
        self.claims.iter().all(|claim| claim.held)
    }

    /// What did not hold.
    pub(crate) fn failures(&self) -> impl Iterator<Item = &Claim> {
        self.claims.iter().filter(|claim| !claim.held)
    }
}

const UNSEEN: &str = "not seen";

fn played(cut: Option<&Cut>) -> Claim {
    Claim {
        held: cut.is_none(),
        name: "all acts are played",
        found: if cut.is_none() { "yes" } else { "no" }.into(),
        bound: cut.map_or_else(String::new, ToString::to_string),
    }
}

fn renewed(measured: &Measured) -> Claim {
    Claim {
        held: measured.renewals >= RENEWALS,
        name: "the first leader renews",
        found: format!("{} times", measured.renewals),
        bound: format!("at least {RENEWALS}"),
    }
}

fn within(name: &'static str, found: Option<Duration>, longest: Duration) -> Claim {
    Claim {
        held: found.is_some_and(|found| found <= longest),
        name,
        found: found.map_or(UNSEEN.into(), seconds),
        bound: format!("at most {}", seconds(longest)),
    }
}

fn killed_on_time(measured: &Measured) -> Claim {
    let found = measured.kill_after_deadline;
    Claim {
        // Early would be no danger, and yet something else than the deadline that we say it was.
        held: matches!(found, Some(Offset::After(late)) if late <= LATEST_KILL),
        name: "hang: dead after its deadline by",
        found: found.map_or(UNSEEN.into(), |offset| format!("{:.1} ms", offset.millis())),
        bound: format!("0 to {} ms", LATEST_KILL.as_millis()),
    }
}

fn killed_before_the_next(measured: &Measured) -> Claim {
    let found = measured.next_after_kill;
    Claim {
        held: matches!(found, Some(Offset::After(_))),
        name: "hang: the next one works after that by",
        found: found.map_or(UNSEEN.into(), |offset| format!("{:.0} ms", offset.millis())),
        bound: "more than 0".into(),
    }
}

fn never_two(measured: &Measured, evidence: &Evidence) -> Claim {
    let bound = match evidence.overlaps().first() {
        Some(overlap) => overlap.to_string(),
        None if !evidence.all_begin() => "unknown: a log does not begin with a worker's beginning".into(),
        None => "never, by the workers' own logs".into(),
    };
    Claim {
        held: measured.overlaps == 0 && evidence.all_begin() && !evidence.stints.is_empty(),
        name: "two at work at once",
        found: format!("{} times", measured.overlaps),
        bound,
    }
}

fn epochs_rose(measured: &Measured, evidence: &Evidence) -> Claim {
    let count = measured.epochs.len();
    // One leader at first, and one after each of crash, stop, and hang.
    const LEADERS: usize = 4;
    let rose = evidence.epochs_rose();
    Claim {
        held: rose && count >= LEADERS,
        name: "workers, each with a larger epoch",
        found: if rose { format!("{count}") } else { "fell".into() },
        bound: format!("at least {LEADERS}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            event::{Event, Lane, What},
            rehearsal,
        },
        *,
    };

    /// The verdict on a rehearsal in which `change` has changed or dropped events.
    fn verdict(change: impl Fn(&mut Event) -> bool) -> Verdict {
        let mut timeline = Timeline::beginning_at(rehearsal::BEGAN);
        for mut event in rehearsal::events() {
            if change(&mut event) {
                timeline.take(event);
            }
        }
        Verdict::on(&timeline, &rehearsal::evidence(), rehearsal::ttl(), None)
    }

    fn failures(verdict: &Verdict) -> Vec<&str> {
        verdict.failures().map(|claim| claim.name).collect()
    }

    #[test]
    fn a_rehearsal_holds_with_the_moments_that_it_has() {
        let verdict = verdict(|_| true);
        assert!(verdict.held(), "{verdict:?}");
        let measured = &verdict.measured;
        assert_eq!(measured.crash_failover, Some(Duration::from_millis(2_010)));
        assert_eq!(measured.handover, Some(Duration::from_millis(330)));
        assert_eq!(measured.kill_after_deadline, Some(Offset::After(Duration::from_millis(1))));
        assert_eq!(measured.next_after_kill, Some(Offset::After(Duration::from_millis(431))));
        assert_eq!((measured.overlaps, measured.epochs.len()), (0, 4));
    }

    #[test]
    fn the_bounds_at_two_seconds() {
        let ttl = rehearsal::ttl();
        assert_eq!(longest_failover(ttl), Duration::from_millis(2_400));
        assert_eq!(longest_handover(ttl), Duration::from_millis(600));
    }

    #[test]
    fn a_kill_that_is_early_or_late_is_found() {
        for died in [7_687, 7_709] {
            let verdict = verdict(|event| {
                if event.what == What::HostDied {
                    event.at = rehearsal::at(died);
                }
                true
            });
            assert_eq!(failures(&verdict), ["hang: dead after its deadline by"], "{died}");
        }
    }

    #[test]
    fn a_next_one_that_works_before_the_stopped_host_is_dead_is_found() {
        let verdict = verdict(|event| {
            if matches!(event.what, What::WorkBegan(epoch, _) if epoch == rehearsal::epoch(4)) {
                event.at = rehearsal::at(7_500);
            }
            true
        });
        assert_eq!(failures(&verdict), ["hang: the next one works after that by"]);
    }

    #[test]
    fn a_slow_succession_is_found() {
        let late = |count, millis| {
            verdict(move |event| {
                if matches!(event.what, What::WorkBegan(epoch, _) if epoch == rehearsal::epoch(count)) {
                    event.at = rehearsal::at(millis);
                }
                true
            })
        };
        assert_eq!(failures(&late(2, 1_600 + 2_401)), ["crash: the next one works after"]);
        assert_eq!(failures(&late(3, 4_800 + 601)), ["clean stop: the next one works after"]);
    }

    #[test]
    fn a_crash_that_hands_back_is_none() {
        let mut timeline = Timeline::beginning_at(rehearsal::BEGAN);
        for event in rehearsal::events() {
            timeline.take(event);
            if event.what == What::Crashed {
                let what = What::Released(rehearsal::epoch(1));
                timeline.take(Event { at: event.at, lane: event.lane, what });
            }
        }
        let verdict = Verdict::on(&timeline, &rehearsal::evidence(), rehearsal::ttl(), None);
        assert_eq!(failures(&verdict), ["crash: the next one works after"]);
    }

    #[test]
    fn what_was_not_seen_does_not_hold() {
        let verdict = verdict(|event| event.lane == Lane::A && event.at < rehearsal::at(1_000));
        assert_eq!(failures(&verdict).len(), 5, "all but what the logs say: {verdict:?}");
        assert!(verdict.failures().any(|claim| claim.found == UNSEEN));
    }

    #[test]
    fn a_run_that_is_cut_short_does_not_hold() {
        let cut = Cut::InVain { awaited: "a first leader", limit: Duration::from_secs(36) };
        let timeline = rehearsal::whole();
        let verdict = Verdict::on(&timeline, &rehearsal::evidence(), rehearsal::ttl(), Some(&cut));
        let [claim] = verdict.failures().collect::<Vec<_>>()[..] else { panic!("one failure") };
        assert!(claim.to_string().contains("in vain for a first leader"), "{claim}");
    }

    #[test]
    fn an_overlap_is_named() {
        let mut evidence = rehearsal::evidence();
        evidence.stints[0].last = evidence.stints[1].first;
        let verdict = Verdict::on(&rehearsal::whole(), &evidence, rehearsal::ttl(), None);
        assert_eq!(failures(&verdict), ["two at work at once"]);
        let said = verdict.failures().next().unwrap().to_string();
        assert!(said.contains("A's worker 103") && said.contains("B's worker 203"), "{said}");
    }

    #[test]
    fn an_epoch_that_falls_is_found() {
        let mut evidence = rehearsal::evidence();
        evidence.stints[2].epoch = rehearsal::epoch(2);
        let verdict = Verdict::on(&rehearsal::whole(), &evidence, rehearsal::ttl(), None);
        assert_eq!(failures(&verdict), ["workers, each with a larger epoch"]);
    }
}
