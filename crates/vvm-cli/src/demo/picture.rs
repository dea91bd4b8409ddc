//! [`Course`]: what happened to the candidates, for the picture of `--svg`.

use super::{
    candidate::CandidateEnd,
    checks::{Moments, seconds},
    worker::{WorkPeriod, overlaps},
};
use ielections::{Timing, Ttl};
use std::{ops::Range, time::Duration};
use vvm_clock::{Instant, SystemClock};
use vvm_host::operate::{Axis, Bar, BarKind, Mark, MarkKind, Timeline};

#[derive(Debug)]
pub(super) struct Course {
    pub(super) began: Instant,
    /// Each `vvm run`, from its start to its end.
    runs: Vec<(&'static str, Instant, Option<Instant>)>,
    pub(super) acts: Vec<(&'static str, CandidateEnd, Instant)>,
    /// When the last renewal before the crash was seen.
    pub(super) renewed: Option<Instant>,
}

impl Course {
    pub(super) fn new(began: Instant) -> Self {
        Self { began, runs: Vec::new(), acts: Vec::new(), renewed: None }
    }

    pub(super) fn started(&mut self, name: &'static str) {
        self.runs.push((name, SystemClock::read(), None));
    }

    pub(super) fn ended(&mut self, name: &'static str) {
        let runs = self.runs.iter_mut().filter(|(of, _, ended)| *of == name && ended.is_none());
        runs.for_each(|(_, _, ended)| *ended = Some(SystemClock::read()));
    }

    /// Returns what the workers' logs, the demo and the result of the host that hung tell, and nothing else.
    pub(super) fn timeline(&self, moments: &Moments, work: &[WorkPeriod], ttl: Ttl) -> Timeline {
        let at = |moment: Instant| self.began.until(moment);
        let end = SystemClock::read();
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
                    moments
                        .host_died
                        .iter()
                        .for_each(|died| mark(name, MarkKind::Kill, *died, "killed at its deadline"));
                    moments.deadline.map(|deadline| deadline.before(kill_after))
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
        let ends = ends.chain(moments.host_died).collect::<Vec<_>>();
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
