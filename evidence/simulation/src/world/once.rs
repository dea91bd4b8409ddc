//! Jobs that are done once per period, as by `vvm once`: each run is counted before it begins, one that follows
//! another one is needed, none begins after the period was done, and each period is done at last. That no two run at
//! once is I1.

use super::World;
use crate::{clock::Process, records::Write};
use bytes::Bytes;
use ielections::{DocumentWrite, Epoch, Fence, Incarnation};
use std::{collections::BTreeMap, num::NonZeroU32};

/// The id of the document with the periods.
const ID: &[u8] = b"vvm-once";

/// What is known of all periods.
#[derive(Default)]
pub(crate) struct Periods {
    by_number: BTreeMap<u32, Period>,
    /// The document as it stands.
    document: Option<Bytes>,
    /// What each process that ended has said about its period.
    answers: BTreeMap<Process, OnceAnswer>,
    /// The machines for which no period is left.
    pub(crate) machines_ready: u32,
}

#[derive(Default)]
struct Period {
    runs: Vec<Run>,
    is_marked: bool,
    is_given_up: bool,
}

struct Run {
    incarnation: Incarnation,
    /// Whether the job did its work; `None` until it ends by itself or is stopped.
    succeeded: Option<bool>,
}

/// How a start for a period ends, if it is not to be repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnceAnswer {
    Done,
    NoAttemptLeft,
}

impl Periods {
    /// Whether the process has said that its period needs no other start.
    pub(crate) fn has_answer(&self, process: Process) -> bool {
        self.answers.contains_key(&process)
    }

    /// What the storage says about a period: whether it is done, its attempts, and the epoch of the last one. Not
    /// read with the types of the code under test.
    fn stored(&self, period: u32) -> Option<(bool, u64, u64)> {
        let document: serde_json::Value = serde_json::from_slice(self.document.as_ref()?).ok()?;
        let periods = document["periods"].as_array()?;
        let own = periods.iter().find(|known| known["period"] == period.to_string().as_str())?;
        Some((own["done"].as_bool()?, own["attempts"].as_u64()?, own["epoch"].as_u64()?))
    }
}

impl World {
    /// `process` is about to start a job, as attempt `number`.
    pub(crate) fn job_begins(
        &self,
        process: Process,
        (period, most): (u32, NonZeroU32),
        number: u32,
        (epoch, incarnation): (Epoch, Incarnation),
    ) {
        let mut state = self.state();
        let stored = state.periods.stored(period);
        let known = state.periods.by_number.entry(period).or_default();
        let (is_over, runs) = (known.is_marked || known.is_given_up, known.runs.len());
        let last = known.runs.last().map(|run| run.succeeded);
        known.runs.push(Run { incarnation, succeeded: None });
        let counts = &mut state.counts;
        counts.once_runs += 1;
        match last {
            None => {}
            Some(None) => counts.once_after_a_death += 1,
            Some(Some(true)) => counts.once_without_a_mark += 1,
            Some(Some(false)) => counts.once_after_a_failure += 1,
        }
        drop(state);
        if is_over {
            self.violated("once", format_args!("{process} runs period {period} after its end"));
        }
        if stored != Some((false, number.into(), epoch.get())) {
            let what = format_args!(
                "{process} runs period {period}, attempt {number}, {epoch}: stored is {stored:?}"
            );
            self.violated("once", what);
        }
        if number > most.get() || runs >= most.get() as usize {
            self.violated(
                "once",
                format_args!("period {period} has run {runs} times, at most {most}: {number}"),
            );
        }
    }

    /// The job of a leadership ends by itself or is stopped, if it is one.
    pub(crate) fn job_ends(&self, incarnation: Incarnation, succeeded: bool) {
        let mut state = self.state();
        let runs = state.periods.by_number.values_mut().flat_map(|period| &mut period.runs);
        for run in runs.filter(|run| run.incarnation == incarnation) {
            run.succeeded = Some(succeeded);
        }
    }

    /// `process` ends, and says how its period stands.
    pub(crate) fn tells(&self, process: Process, period: u32, answer: OnceAnswer) {
        self.note(format_args!("{process} says of period {period}: {answer:?}"));
        let mut state = self.state();
        let working = state.at_work().map(|(_, of, _)| of).collect::<Vec<_>>();
        state.periods.answers.insert(process, answer);
        let known = state.periods.by_number.entry(period).or_default();
        let is_working = known.runs.iter().any(|run| working.contains(&run.incarnation));
        known.is_given_up |= answer == OnceAnswer::NoAttemptLeft;
        let is_marked = known.is_marked;
        let counts = &mut state.counts;
        match answer {
            OnceAnswer::Done => counts.once_done += 1,
            OnceAnswer::NoAttemptLeft => counts.once_given_up += 1,
        }
        drop(state);
        let what = match answer {
            OnceAnswer::Done if !is_marked => "is done, which it is not",
            OnceAnswer::NoAttemptLeft if is_marked => "has no attempt left, and is done",
            OnceAnswer::NoAttemptLeft if is_working => "has no attempt left, while the last one runs",
            OnceAnswer::Done | OnceAnswer::NoAttemptLeft => return,
        };
        self.violated("once", format_args!("{process} says that period {period} {what}"));
    }

    /// Checks a batch that was applied: the leader marks only the period whose job it has done.
    pub(super) fn check_marks(&self, process: Process, write: &Write) {
        let Write::Batch(_, Fence { incarnation, .. }, writes) = write else { return };
        let body = writes.iter().find_map(|write| match write {
            DocumentWrite::Put { id, body, .. } if id.as_bytes() == ID => Some(body.clone()),
            _ => None,
        });
        let Some(body) = body else { return };
        let mut state = self.state();
        let periods = &mut state.periods;
        periods.document = Some(body);
        let numbers: Vec<u32> = periods.by_number.keys().copied().collect();
        let mut wrong = None;
        for number in numbers {
            let is_done = periods.stored(number).is_some_and(|(is_done, ..)| is_done);
            let Some(known) = periods.by_number.get_mut(&number) else { continue };
            if is_done == known.is_marked {
                continue;
            }
            let last = known.runs.last();
            let is_proven =
                last.is_some_and(|run| run.incarnation == *incarnation && run.succeeded == Some(true));
            if known.is_marked || known.is_given_up || !is_proven {
                wrong = Some(number);
            }
            known.is_marked |= is_done;
        }
        drop(state);
        if let Some(number) = wrong {
            self.violated(
                "once",
                format_args!("{process} marks period {number}, whose job it has not done: {write:?}"),
            );
        }
    }
}
