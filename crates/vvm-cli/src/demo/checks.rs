//! [`Results`]: the promises of the demo, compared with measurements and the workers' logs.

use super::{
    timeline::{Timeline, What},
    work::{WorkPeriod, are_complete, overlaps},
};
use ielections::{Terms, Ttl};
use serde_json::{Value, json};
use std::time::Duration;
use vvm_clock::Instant;

/// How many renewals of the first leader the demo waits for.
pub(super) const RENEWALS: usize = 3;

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
}

impl Results {
    /// Checks a run at this TTL, which ended early if there is an error.
    pub(super) fn of(timeline: &Timeline, work: &[WorkPeriod], ttl: Ttl, early: Option<&str>) -> Self {
        let at = |what| timeline.mark(what).map(|event| event.at);
        let next_after = |what| timeline.next_at_work(at(what)?).map(|event| event.at);
        let until_next = |what| Some(at(what)?.until(next_after(what)?));
        let epochs = || work.iter().map(|period| period.epoch);
        let renewals = epochs().next().map_or(0, |first| timeline.renewals(first).count());
        // A leader that released its record did not crash: the next one did not have to wait.
        let released = epochs().next().and_then(|first| at(What::Released(first))).is_some();
        let failover = until_next(What::Crashed).filter(|_| !released);
        let handover = until_next(What::AskedToStop);
        let (deadline, died) = (at(What::Deadline), at(What::HostDied));
        let next = next_after(What::HostStopped);
        let overlaps = overlaps(work);
        let never = match overlaps.first() {
            Some([earlier, later]) => format!("{earlier} and {later}"),
            None if !are_complete(work) => "unknown: a line of a worker's log is missing".into(),
            None => "never, by the workers' own logs".into(),
        };
        let rise = epochs().is_sorted_by(|earlier, later| earlier < later);
        let [late, later] = [signed_ms(deadline, died), signed_ms(died, next)];
        let on_time = late.is_some_and(|late| (0.0..=20.0).contains(&late));
        let in_turn = later.is_some_and(|later| later > 0.0);
        let apart = overlaps.is_empty() && are_complete(work);
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
        Self { checks, summary }
    }
}

/// Returns milliseconds from one moment to another, negative if that is the earlier one.
fn signed_ms(from: Option<Instant>, to: Option<Instant>) -> Option<f64> {
    let (from, to) = from.zip(to)?;
    Some(if from <= to { milliseconds(from.until(to)) } else { -milliseconds(to.until(from)) })
}

/// Returns milliseconds for programs, to the microsecond.
fn milliseconds(span: Duration) -> f64 {
    span.as_micros() as f64 / 1e3
}

/// Returns a span for people.
pub(super) fn seconds(span: Duration) -> String {
    match span.as_millis() {
        millis @ ..100 => format!("{millis} ms"),
        _ => format!("{:.2} s", span.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::sample;

    /// Returns the results of the sample with the events of `what` at another moment, or without them.
    fn results(what: impl Fn(What) -> bool, at: Option<u64>) -> Results {
        let mut timeline = Timeline::new(sample::BEGAN);
        for mut event in sample::events() {
            match at {
                _ if !what(event.what) => {}
                Some(millis) => event.at = sample::at(millis),
                None => continue,
            }
            timeline.add(event);
        }
        Results::of(&timeline, &sample::work(), sample::ttl(), None)
    }

    /// Returns the places of the checks that fail.
    fn failing(results: &Results) -> Vec<usize> {
        (0..8).filter(|place| !results.checks[*place].holds).collect()
    }

    #[test]
    fn sample_holds_and_its_summary_has_every_figure() {
        let epochs = [1, 2, 3, 4].map(|count| sample::epoch(count).get());
        let expected = json!({
            "event": "summary", "held": true, "failures": [], "ttl_ms": 2000.0, "renewals": 3,
            "crash_failover_ms": 2010.0, "handover_ms": 330.0, "kill_after_deadline_ms": 1.0,
            "next_after_kill_ms": 431.0, "overlaps": 0, "epochs": epochs,
        });
        let results = results(|_| false, None);
        assert_eq!(results.summary, expected);
        assert!(results.checks[2].text.ends_with("at most 2.40 s"), "{}", results.checks[2].text);
        assert!(results.checks[3].text.ends_with("at most 0.60 s"), "{}", results.checks[3].text);
    }

    #[test]
    fn event_at_the_wrong_moment_or_unseen_fails_its_checks_alone() {
        let began = |what, count| matches!(what, What::WorkBegan(epoch, _) if epoch == sample::epoch(count));
        let moved = |what: &dyn Fn(What) -> bool, at| failing(&results(what, Some(at)));
        let unseen = |what: &dyn Fn(What) -> bool| failing(&results(what, None));
        assert_eq!(moved(&|what| what == What::HostDied, 7_687), [4], "before the deadline");
        assert_eq!(moved(&|what| what == What::HostDied, 7_709), [4], "after 21 ms");
        assert_eq!(moved(&|what| began(what, 4), 7_500), [5], "before the host is dead");
        assert_eq!(moved(&|what| began(what, 2), 1_600 + 2_401), [2]);
        assert_eq!(moved(&|what| began(what, 3), 4_800 + 601), [3]);
        assert_eq!(unseen(&|what| what == What::Renewed(sample::epoch(1))), [1]);
        assert_eq!(unseen(&|what| what == What::Crashed), [2]);
        assert_eq!(unseen(&|what| what == What::AskedToStop), [3]);
        assert_eq!(unseen(&|what| what == What::Deadline), [4]);
        assert_eq!(unseen(&|what| what == What::HostDied), [4, 5]);
    }

    #[test]
    fn release_instead_of_crash_error_overlap_and_falling_epoch_fail() {
        let (mut timeline, work, ttl) = (sample::until(10_000), sample::work(), sample::ttl());
        let results = Results::of(&timeline, &work, ttl, Some("no first leader"));
        assert_eq!(failing(&results), [0]);
        assert!(results.checks[0].text.contains("no first leader"));

        let mut overlapping = work.clone();
        overlapping[0].last = overlapping[1].first;
        let results = Results::of(&timeline, &overlapping, ttl, None);
        assert_eq!(failing(&results), [6]);
        let both = &results.checks[6].text;
        assert!(both.contains("A's worker 103") && both.contains("B's worker 203"), "{both}");
        assert_eq!(failing(&Results::of(&timeline, &[], ttl, None)), [1, 6, 7]);

        let mut falling = work.clone();
        falling[2].epoch = sample::epoch(2);
        assert_eq!(failing(&Results::of(&timeline, &falling, ttl, None)), [7]);

        let crash = timeline.mark(What::Crashed).unwrap();
        timeline.add(super::super::timeline::Event { what: What::Released(sample::epoch(1)), ..crash });
        assert_eq!(failing(&Results::of(&timeline, &work, ttl, None)), [2]);
    }
}
