//! [`Results`]: the promises of the demo, compared with measurements and the workers' logs.

use super::worker::{WorkPeriod, overlaps};
use ielections::{Terms, Ttl};
use serde_json::{Value, json};
use std::time::Duration;
use vvm_clock::Instant;

pub(super) const RENEWALS: usize = 3;

#[derive(Clone, Default, Debug)]
pub(super) struct Moments {
    pub(super) renewals: usize,
    pub(super) crashed: Option<Instant>,
    pub(super) released: bool,
    pub(super) asked_to_stop: Option<Instant>,
    pub(super) host_stopped: Option<Instant>,
    /// The kill deadline of the stopped host, and when that died. Known only after its end.
    pub(super) deadline: Option<Instant>,
    pub(super) host_died: Option<Instant>,
    /// The longest time for which this machine did not run the demo, and in which step that was. It may not have run a
    /// leader for as long either.
    pub(super) stall: (Duration, usize),
}

/// One promise: its name, the finding, and the bound or the reason why it failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Check {
    pub(super) holds: bool,
    pub(super) text: String,
}

/// The checks of a run, and its figures for programs. A figure that was not measured is null.
#[derive(Debug)]
pub(super) struct Results {
    pub(super) checks: [Check; 8],
    pub(super) summary: Value,
    /// The stall that may be the cause that a check failed, and its step.
    pub(super) inconclusive_by: Option<(Duration, usize)>,
}

impl Results {
    pub(super) fn new(moments: &Moments, work: &[WorkPeriod], ttl: Ttl, early: Option<&str>) -> Self {
        let Moments { renewals, deadline, host_died: died, .. } = *moments;
        let next_after = |moment: Option<Instant>| {
            let first = |moment| work.iter().find(|period| period.first > moment).map(|period| period.first);
            moment.and_then(first)
        };
        let until_next = |moment: Option<Instant>| Some(moment?.until(next_after(moment)?));
        let epochs = || work.iter().map(|period| period.epoch);
        // A leader that released its record did not crash: the next one did not have to wait.
        let failover = until_next(moments.crashed).filter(|_| !moments.released);
        let handover = until_next(moments.asked_to_stop);
        let next = next_after(moments.host_stopped);
        let overlaps = overlaps(work);
        let never = match overlaps.first() {
            Some([earlier, later]) => format!("{earlier} and {later}"),
            None if work.is_empty() => "unknown: no worker has written".into(),
            None => "never, by the workers' own logs".into(),
        };
        let apart = overlaps.is_empty() && !work.is_empty();
        let rise = epochs().is_sorted_by(|earlier, later| earlier < later);
        let [late, later] = [signed_ms(deadline, died), signed_ms(died, next)];
        let is_negative = |span: Option<f64>| span.is_some_and(|span| span < 0.0);
        // What holds on a machine that stalls, too.
        let is_unsafe = !overlaps.is_empty() || !rise || is_negative(late) || is_negative(later);
        let on_time = late.is_some_and(|late| (0.0..=20.0).contains(&late));
        let in_turn = later.is_some_and(|later| later > 0.0);
        let enough = if rise { "at least 4" } else { "an epoch fell" };
        // One leader at first, and one after each of crash, clean stop, and hang.
        let rise = rise && work.len() >= 4;

        let check = |holds, name: &str, found: &str, bound: &str| Check {
            holds,
            text: format!("{name:<45} {found:>8}   {bound}"),
        };
        let count = |holds, name, found: usize, bound: &str| check(holds, name, &found.to_string(), bound);
        let within = |name, found: Option<Duration>, most| {
            let text = found.map_or("not seen".into(), seconds);
            let holds = found.is_some_and(|found| found <= most);
            check(holds, name, &text, &format!("at most {}", seconds(most)))
        };
        let offset = |holds, name, found: Option<f64>, bound| {
            check(holds, name, &found.map_or("not seen".into(), |found| format!("{found:.1} ms")), bound)
        };
        // A tenth of a TTL and the constant: the observer's clock, its polls, and the starts of processes.
        let longest_failover = ttl.get() * 11 / 10 + Duration::from_millis(200);
        let longest_handover = Terms::usual_poll(ttl) + Duration::from_millis(100);
        let (done, cause) = early.map_or(("yes", ""), |error| ("no", error));
        let checks = [
            check(early.is_none(), "every step was done", done, cause),
            count(renewals >= RENEWALS, "renewals of the first leader", renewals, "at least 3"),
            within("crash: the next worker begins after", failover, longest_failover),
            within("clean stop: the next worker begins after", handover, longest_handover),
            offset(on_time, "hang: the host is dead after its deadline by", late, "0 to 20 ms"),
            offset(in_turn, "hang: the next worker begins after that by", later, "more than 0"),
            count(apart, "two workers at the same time", overlaps.len(), &never),
            count(rise, "workers, each with a larger epoch", work.len(), enough),
        ];
        let failures =
            checks.iter().filter(|check| !check.holds).map(|check| &check.text).collect::<Vec<_>>();
        let summary = json!({
            "event": "summary", "held": failures.is_empty(), "failures": failures,
            "ttl_ms": milliseconds(ttl.get()), "renewals": renewals,
            "crash_failover_ms": failover.map(milliseconds), "handover_ms": handover.map(milliseconds),
            "kill_after_deadline_ms": late, "next_after_kill_ms": later, "overlaps": overlaps.len(),
            "epochs": epochs().map(|epoch| epoch.get()).collect::<Vec<_>>(),
        });
        // For as long as a leader's attempt to renew may take.
        let is_excused = !failures.is_empty() && !is_unsafe && moments.stall.0 >= ttl.get() / 10;
        Self { checks, summary, inconclusive_by: is_excused.then_some(moments.stall) }
    }

    pub(super) fn hold(&self) -> bool {
        self.checks.iter().all(|check| check.holds)
    }
}

/// Returns milliseconds from one moment to another, negative if that is the earlier one.
fn signed_ms(from: Option<Instant>, to: Option<Instant>) -> Option<f64> {
    let (from, to) = from.zip(to)?;
    Some(if from <= to { milliseconds(from.until(to)) } else { -milliseconds(to.until(from)) })
}

fn milliseconds(span: Duration) -> f64 {
    span.as_micros() as f64 / 1e3
}

pub(super) fn seconds(span: Duration) -> String {
    match span.as_millis() {
        millis @ ..100 => format!("{millis} ms"),
        _ => format!("{:.2} s", span.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::worker::tests::{at, epoch, work};

    /// Crash, clean stop and hang, with a worker after each.
    const WORKERS: [(&str, i32, u64, u64, u64); 4] = [
        ("A", 103, 1, 140, 1590),
        ("B", 203, 2, 3610, 4803),
        ("C", 303, 3, 5130, 7680),
        ("A", 113, 4, 8120, 9203),
    ];

    fn moments() -> Moments {
        Moments {
            renewals: 3,
            crashed: Some(at(1_600)),
            released: false,
            asked_to_stop: Some(at(4_800)),
            host_stopped: Some(at(6_340)),
            deadline: Some(at(7_688)),
            host_died: Some(at(7_689)),
            stall: (Duration::ZERO, 1),
        }
    }

    fn results(
        moments: &Moments,
        workers: &[(&'static str, i32, u64, u64, u64)],
        early: Option<&str>,
    ) -> Results {
        Results::new(moments, &work(workers), Ttl::new(Duration::from_secs(2)).unwrap(), early)
    }

    fn failing(results: &Results) -> Vec<usize> {
        (0..8).filter(|place| !results.checks[*place].holds).collect()
    }

    #[test]
    fn sample_holds_and_its_summary_has_every_figure() {
        let epochs = [1, 2, 3, 4].map(|count| epoch(count).get());
        let expected = json!({
            "event": "summary", "held": true, "failures": [], "ttl_ms": 2000.0, "renewals": 3,
            "crash_failover_ms": 2010.0, "handover_ms": 330.0, "kill_after_deadline_ms": 1.0,
            "next_after_kill_ms": 431.0, "overlaps": 0, "epochs": epochs,
        });
        let results = results(&moments(), &WORKERS, None);
        assert_eq!(results.summary, expected);
        assert!(results.checks[2].text.ends_with("at most 2.40 s"), "{}", results.checks[2].text);
        assert!(results.checks[3].text.ends_with("at most 0.60 s"), "{}", results.checks[3].text);
    }

    #[test]
    fn event_at_the_wrong_moment_or_unseen_fails_its_checks_alone() {
        let with = |change: &dyn Fn(&mut Moments)| {
            let mut moments = moments();
            change(&mut moments);
            failing(&results(&moments, &WORKERS, None))
        };
        assert_eq!(with(&|it| it.host_died = Some(at(7_687))), [4], "before the deadline");
        assert_eq!(with(&|it| it.host_died = Some(at(7_709))), [4], "after 21 ms");
        assert_eq!(with(&|it| it.host_died = Some(at(8_120))), [4, 5], "the next worker has begun");
        assert_eq!(with(&|it| it.crashed = Some(at(3_610 - 2_401))), [2]);
        assert_eq!(with(&|it| it.asked_to_stop = Some(at(5_130 - 601))), [3]);
        assert_eq!(with(&|it| it.renewals = 2), [1]);
        assert_eq!(with(&|it| it.crashed = None), [2]);
        assert_eq!(with(&|it| it.released = true), [2]);
        assert_eq!(with(&|it| it.asked_to_stop = None), [3]);
        assert_eq!(with(&|it| it.host_stopped = None), [5]);
        assert_eq!(with(&|it| it.deadline = None), [4]);
        assert_eq!(with(&|it| it.host_died = None), [4, 5]);
    }

    #[test]
    fn error_overlap_and_falling_epoch_fail() {
        let stopped = results(&moments(), &WORKERS, Some("no first leader"));
        assert_eq!(failing(&stopped), [0]);
        assert!(stopped.checks[0].text.contains("no first leader"));

        let mut overlapping = WORKERS;
        overlapping[0].4 = overlapping[1].3;
        let overlapping = results(&moments(), &overlapping, None);
        assert_eq!(failing(&overlapping), [6]);
        let both = &overlapping.checks[6].text;
        assert!(both.contains("A's worker 103") && both.contains("B's worker 203"), "{both}");
        assert_eq!(failing(&results(&moments(), &[], None)), [2, 3, 5, 6, 7]);

        let mut falling = WORKERS;
        falling[2].2 = 2;
        assert_eq!(failing(&results(&moments(), &falling, None)), [7]);
    }

    #[test]
    fn stall_excuses_what_is_late_or_missing_and_nothing_unsafe() {
        let stalled = |millis, change: Moments, workers: &[_], early| {
            let stall = (Duration::from_millis(millis), 3);
            results(&Moments { stall, ..change }, workers, early).inconclusive_by.is_some()
        };
        let ended = Some("A exited with status 137");
        assert_eq!([199, 200].map(|millis| stalled(millis, moments(), &WORKERS, ended)), [false, true]);
        let late = Moments { crashed: Some(at(1_200)), ..moments() };
        assert!(stalled(200, late, &WORKERS, None));
        assert!(!stalled(200, moments(), &WORKERS, None), "every check holds");

        let early = Moments { host_died: Some(at(7_687)), ..moments() };
        assert!(!stalled(1_600, early, &WORKERS, None));
        let (mut overlapping, mut falling) = (WORKERS, WORKERS);
        overlapping[0].4 = overlapping[1].3;
        falling[2].2 = 2;
        for broken in [overlapping, falling] {
            assert!(!stalled(1_600, moments(), &broken, None), "{broken:?}");
        }
    }
}
