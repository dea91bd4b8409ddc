//! [`Results`]: the promises of the demo, compared with measurements and the workers' logs.

use super::{
    course::{CandidateEnd, Course, seconds},
    worker::{WorkPeriod, overlaps},
};
use ielections::{Terms, Timing, Ttl};
use serde_json::{Value, json};
use std::time::Duration;
use vvm_clock::Instant;

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
    /// The stall that may be the cause that a check failed, and its step.
    pub(super) inconclusive_by: Option<(Duration, usize)>,
}

impl Results {
    pub(super) fn new(course: &Course, work: &[WorkPeriod], ttl: Ttl, early: Option<&str>) -> Self {
        let Course { renewals, deadline, host_died: died, .. } = *course;
        let next_after = |done| {
            let moment = course.moment(done)?;
            work.iter().map(|period| period.first).find(|first| *first > moment)
        };
        let until_next = |done| Some(course.moment(done)?.until(next_after(done)?));
        let epochs = || work.iter().map(|period| period.epoch);
        // A leader that released its record did not crash: the next one did not have to wait.
        let failover = until_next(CandidateEnd::Crashed).filter(|_| !course.released);
        let handover = until_next(CandidateEnd::AskedToStop);
        let next = next_after(CandidateEnd::HostStopped);
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
        // From the kill deadline until the end of the TTL, when another candidate can lead.
        let most_late = ttl.get() - Timing::new(ttl).kill_at(Instant::ORIGIN).since(Instant::ORIGIN);
        let on_time = late.is_some_and(|late| (0.0..=milliseconds(most_late)).contains(&late));
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
        let killed_by = format!("0 to {}, when its TTL ends", seconds(most_late));
        let (done, cause) = early.map_or(("yes", ""), |error| ("no", error));
        let checks = [
            check(early.is_none(), "every step was done", done, cause),
            count(renewals >= RENEWALS, "renewals of the first leader", renewals, "at least 3"),
            within("crash: the next worker begins after", failover, longest_failover),
            within("clean stop: the next worker begins after", handover, longest_handover),
            offset(on_time, "hang: the host is dead after its deadline by", late, &killed_by),
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
        let is_excused = !failures.is_empty() && !is_unsafe && course.stall.0 >= ttl.get() / 10;
        Self { checks, summary, inconclusive_by: is_excused.then_some(course.stall) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::{
        course::tests::{WORKERS, Worker, course},
        worker::tests::{at, epoch, work},
    };

    fn results(course: &Course, workers: &[Worker], early: Option<&str>) -> Results {
        Results::new(course, &work(workers), Ttl::new(Duration::from_secs(2)).unwrap(), early)
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
        let results = results(&course(), &WORKERS, None);
        assert_eq!(results.summary, expected);
        assert!(results.checks[2].text.ends_with("at most 2.40 s"), "{}", results.checks[2].text);
        assert!(results.checks[3].text.ends_with("at most 0.60 s"), "{}", results.checks[3].text);
    }

    #[test]
    fn event_at_the_wrong_moment_or_unseen_fails_its_checks_alone() {
        let with = |change: &dyn Fn(&mut Course)| {
            let mut course = course();
            change(&mut course);
            failing(&results(&course, &WORKERS, None))
        };
        assert_eq!(with(&|it| it.host_died = Some(at(7_687))), [4], "before the deadline");
        assert_eq!(with(&|it| it.host_died = Some(at(8_089))), [4], "after the end of its TTL");
        assert_eq!(with(&|it| it.host_died = Some(at(8_120))), [4, 5], "the next worker has begun");
        assert_eq!(with(&|it| it.acts[0].2 = at(3_610 - 2_401)), [2]);
        assert_eq!(with(&|it| it.acts[1].2 = at(5_130 - 601)), [3]);
        assert_eq!(with(&|it| it.renewals = 2), [1]);
        assert_eq!(with(&|it| it.released = true), [2]);
        for (act, check) in [(0, 2), (1, 3), (2, 5)] {
            let failing = with(&|it| {
                it.acts.remove(act);
            });
            assert_eq!(failing, [check]);
        }
        assert_eq!(with(&|it| it.deadline = None), [4]);
        assert_eq!(with(&|it| it.host_died = None), [4, 5]);
    }

    #[test]
    fn error_overlap_and_falling_epoch_fail() {
        let stopped = results(&course(), &WORKERS, Some("no first leader"));
        assert_eq!(failing(&stopped), [0]);
        assert!(stopped.checks[0].text.contains("no first leader"));

        let mut overlapping = WORKERS;
        overlapping[0].4 = overlapping[1].3;
        let overlapping = results(&course(), &overlapping, None);
        assert_eq!(failing(&overlapping), [6]);
        let both = &overlapping.checks[6].text;
        assert!(both.contains("A's worker 103") && both.contains("B's worker 203"), "{both}");
        assert_eq!(failing(&results(&course(), &[], None)), [2, 3, 5, 6, 7]);

        let mut falling = WORKERS;
        falling[2].2 = 2;
        assert_eq!(failing(&results(&course(), &falling, None)), [7]);
    }

    #[test]
    fn stall_excuses_what_is_late_or_missing_and_nothing_unsafe() {
        let stalled = |millis, change: Course, workers: &[_], early| {
            let stall = (Duration::from_millis(millis), 3);
            results(&Course { stall, ..change }, workers, early).inconclusive_by.is_some()
        };
        let ended = Some("A exited with status 137");
        assert_eq!([199, 200].map(|millis| stalled(millis, course(), &WORKERS, ended)), [false, true]);
        let mut late = course();
        late.acts[0].2 = at(1_200);
        assert!(stalled(200, late, &WORKERS, None));
        assert!(!stalled(200, course(), &WORKERS, None), "every check holds");

        let early = Course { host_died: Some(at(7_687)), ..course() };
        assert!(!stalled(1_600, early, &WORKERS, None));
        let (mut overlapping, mut falling) = (WORKERS, WORKERS);
        overlapping[0].4 = overlapping[1].3;
        falling[2].2 = 2;
        for broken in [overlapping, falling] {
            assert!(!stalled(1_600, course(), &broken, None), "{broken:?}");
        }
    }
}
