//! [`Course`]: what happened to the candidates, and its picture for `--svg`.

use super::worker::{WorkPeriod, overlaps};
use ielections::{Timing, Ttl};
use std::{ops::Range, time::Duration};
use vvm_clock::{Instant, SystemClock};
use vvm_host::operate::{Axis, Bar, BarKind, Mark, MarkKind, Timeline};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CandidateEnd {
    Crashed,
    AskedToStop,
    HostStopped,
}

impl CandidateEnd {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Crashed => "kill -9 of guardian, host and worker, as in a crash",
            Self::AskedToStop => "SIGTERM: a request to stop",
            Self::HostStopped => "SIGSTOP to the host: it hangs, its worker continues",
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Course {
    pub(super) began: Instant,
    /// Each `vvm run`, from its start to its end.
    pub(super) runs: Vec<(&'static str, Instant, Option<Instant>)>,
    pub(super) acts: Vec<(&'static str, CandidateEnd, Instant)>,
    pub(super) renewals: usize,
    /// When the last renewal before the crash was seen.
    pub(super) renewed: Option<Instant>,
    /// Whether the leader that crashed has released its record.
    pub(super) released: bool,
    /// The kill deadline of the stopped host, and when that died. Known only after its end.
    pub(super) deadline: Option<Instant>,
    pub(super) host_died: Option<Instant>,
    /// The longest time for which this machine did not run the demo, or for which processes waited for a processor in one
    /// step; and the step. A leader may have waited for as long.
    pub(super) stall: (Duration, usize),
}

impl Course {
    pub(super) fn new(began: Instant) -> Self {
        Self {
            began,
            runs: Vec::new(),
            acts: Vec::new(),
            renewals: 0,
            renewed: None,
            released: false,
            deadline: None,
            host_died: None,
            stall: (Duration::ZERO, 1),
        }
    }

    pub(super) fn started(&mut self, name: &'static str) {
        self.runs.push((name, SystemClock::read(), None));
    }

    pub(super) fn ended(&mut self, name: &'static str) {
        let runs = self.runs.iter_mut().filter(|(of, _, ended)| *of == name && ended.is_none());
        runs.for_each(|(_, _, ended)| *ended = Some(SystemClock::read()));
    }

    /// Returns when this was first done to a candidate.
    pub(super) fn moment(&self, done: CandidateEnd) -> Option<Instant> {
        self.acts.iter().find(|(_, what, _)| *what == done).map(|(.., moment)| *moment)
    }

    /// Returns what the workers' logs, the demo and the result of the host that hung tell until `end`, and nothing else.
    pub(super) fn timeline(&self, work: &[WorkPeriod], ttl: Ttl, end: Instant) -> Timeline {
        let at = |moment: Instant| self.began.until(moment);
        let bar = |holder: &str, kind, span: Range<Instant>| Bar {
            slot: 1,
            holder: holder.into(),
            kind,
            span: at(span.start)..at(span.end),
        };
        let runs = self.runs.iter();
        let mut bars = runs
            .map(|(name, from, until)| bar(name, BarKind::Runs, *from..until.unwrap_or(end)))
            .collect::<Vec<_>>();
        bars.extend(work.iter().map(|it| bar(it.name, BarKind::Leads(it.epoch.get()), it.first..it.last)));
        let kill_after = Timing::new(ttl).kill_at(Instant::ORIGIN).since(Instant::ORIGIN);
        let mut marks = Vec::new();
        let mut mark = |holder: &str, kind, moment, text: &str| {
            marks.push(Mark { slot: 1, holder: holder.into(), kind, at: at(moment), text: text.into() });
        };
        for (name, done, moment) in &self.acts {
            let (kind, text) = match done {
                CandidateEnd::Crashed => (MarkKind::Kill, "kill -9 of all its processes"),
                CandidateEnd::AskedToStop => (MarkKind::Stop, "asked to stop (SIGTERM)"),
                CandidateEnd::HostStopped => (MarkKind::Hang, "its host hangs (SIGSTOP)"),
            };
            mark(name, kind, *moment, text);
            let renewed = match done {
                CandidateEnd::Crashed => self.renewed,
                CandidateEnd::AskedToStop => None,
                CandidateEnd::HostStopped => {
                    self.host_died
                        .iter()
                        .for_each(|died| mark(name, MarkKind::Kill, *died, "killed at its deadline"));
                    self.deadline.map(|deadline| deadline.before(kill_after))
                }
            };
            if let Some(renewed) = renewed {
                // A guardian that has seen the death of a host releases its record: then the next one need not wait.
                let next = work.iter().map(|next| next.first).find(|first| first > moment).unwrap_or(end);
                let over = renewed.after(ttl.get()).min(next);
                bars.push(bar(name, BarKind::Ttl, renewed..over));
                bars.push(bar(name, BarKind::Dead, renewed.after(kill_after)..over));
            }
        }
        let ends = self
            .acts
            .iter()
            .filter(|(_, done, _)| *done != CandidateEnd::HostStopped)
            .map(|(.., moment)| *moment);
        let ends = ends.chain(self.host_died).collect::<Vec<_>>();
        for next in work {
            if let Some(ended) = ends.iter().filter(|ended| **ended < next.first).max() {
                let text = format!("leads {} later", seconds(ended.until(next.first)));
                mark(next.name, MarkKind::HandOver, next.first, &text);
            }
        }
        let note = match overlaps(work).len() {
            0 => "never two at the same time".to_owned(),
            count => format!("two at the same time: {count} times"),
        };
        Timeline {
            title: format!("Three candidates, one leader, TTL {} s", ttl.get().as_secs_f64()),
            note: format!("A real run of vvm demo. Who led when, by the workers' own logs: {note}."),
            axis: Axis::Seconds,
            span: Duration::ZERO..at(end) + at(end) / 50,
            bars,
            marks,
        }
    }
}

pub(super) fn seconds(span: Duration) -> String {
    match span.as_millis() {
        millis @ ..100 => format!("{millis} ms"),
        _ => format!("{:.2} s", span.as_secs_f64()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::demo::worker::tests::{at, epoch, work};

    /// Candidate, process, epoch, from, until.
    pub(in crate::demo) type Worker = (&'static str, i32, u64, u64, u64);

    /// Crash, clean stop and hang, with a worker after each.
    pub(in crate::demo) const WORKERS: [Worker; 4] = [
        ("A", 103, 1, 140, 1590),
        ("B", 203, 2, 3610, 4803),
        ("C", 303, 3, 5130, 7680),
        ("A", 113, 4, 8120, 9203),
    ];

    pub(in crate::demo) fn course() -> Course {
        let acts = [
            ("A", CandidateEnd::Crashed, at(1_600)),
            ("B", CandidateEnd::AskedToStop, at(4_800)),
            ("C", CandidateEnd::HostStopped, at(6_340)),
            ("A", CandidateEnd::AskedToStop, at(9_200)),
        ];
        Course {
            runs: vec![("A", at(0), Some(at(1_610))), ("C", at(10), None)],
            acts: acts.into(),
            renewals: 3,
            renewed: Some(at(1_590)),
            deadline: Some(at(7_688)),
            host_died: Some(at(7_689)),
            ..Course::new(at(0))
        }
    }

    #[test]
    fn picture_has_every_bar_and_mark_of_the_logs_and_nothing_else() {
        let ttl = Ttl::new(Duration::from_secs(2)).unwrap();
        let drawn = course().timeline(&work(&WORKERS), ttl, at(9_300));
        let bars = drawn
            .bars
            .iter()
            .map(|bar| (&*bar.holder, bar.kind, bar.span.start.as_millis(), bar.span.end.as_millis()));
        let leads = |number| BarKind::Leads(epoch(number).get());
        let expected = [
            ("A", BarKind::Runs, 0, 1_610),
            ("C", BarKind::Runs, 10, 9_300),
            ("A", leads(1), 140, 1_590),
            ("B", leads(2), 3_610, 4_803),
            ("C", leads(3), 5_130, 7_680),
            ("A", leads(4), 8_120, 9_203),
            ("A", BarKind::Ttl, 1_590, 3_590),
            ("A", BarKind::Dead, 3_190, 3_590),
            // The host that hung had renewed 0.8 TTL before its deadline.
            ("C", BarKind::Ttl, 6_088, 8_088),
            ("C", BarKind::Dead, 7_688, 8_088),
        ];
        assert_eq!(bars.collect::<Vec<_>>(), expected);
        let marks =
            drawn.marks.iter().map(|mark| (&*mark.holder, mark.kind, mark.at.as_millis(), &*mark.text));
        let expected = [
            ("A", MarkKind::Kill, 1_600, "kill -9 of all its processes"),
            ("B", MarkKind::Stop, 4_800, "asked to stop (SIGTERM)"),
            ("C", MarkKind::Hang, 6_340, "its host hangs (SIGSTOP)"),
            ("C", MarkKind::Kill, 7_689, "killed at its deadline"),
            ("A", MarkKind::Stop, 9_200, "asked to stop (SIGTERM)"),
            ("B", MarkKind::HandOver, 3_610, "leads 2.01 s later"),
            ("C", MarkKind::HandOver, 5_130, "leads 0.33 s later"),
            ("A", MarkKind::HandOver, 8_120, "leads 0.43 s later"),
        ];
        assert_eq!(marks.collect::<Vec<_>>(), expected);
        assert!(
            drawn.note.ends_with("by the workers' own logs: never two at the same time."),
            "{}",
            drawn.note
        );
    }
}
