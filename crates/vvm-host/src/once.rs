//! Work that is done once per period, as by `vvm once`: which periods of a name are done, in a fenced document
//! beside the record.
//!
//! Only the leader writes it (I2). It counts each start of the work before the start, and marks the period as
//! done after the work has succeeded and before the release. If the leader dies:
//!
//! | when | the document | what the next leader does |
//! |---|---|---|
//! | before the count was sent | is unchanged | it runs the work as the same attempt |
//! | until the count is confirmed, and until the start | has the count, or has not | nothing ran; at most, an attempt was counted for nothing |
//! | while the work runs | has the count and no end | all of the work is dead before it leads (I1, I6); it runs the work as the next attempt |
//! | after the success, before the mark was applied | has the count and no end | it runs the work again: at least once |
//! | after the mark was applied | has the mark | it runs nothing |
//!
//! A write may still be on its way when its leader dies. If it is applied before the next claim, the next leader
//! reads it. Otherwise it is refused, because a claim and a release each change the fence (I2). The process that
//! releases the record of a dead leader writes nothing here.

mod writer;

pub use writer::{AttemptEnd, OnceWork, PeriodWriter, Settled};

use ielections::{Document, DocumentId, DocumentStorage, Epoch};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;
use vvm_storage::ElectionKey;

/// The document's id. It lacks the byte that ends a collection's name, so no instance has the same id.
const ID: &[u8] = b"vvm-once";

/// The longest text of a period, in bytes.
pub const LONGEST_PERIOD: usize = 64;

/// The fewest periods that may be kept: by so many, periods whose texts rise are told from others, such as days
/// that are written before their month.
pub const LEAST_KEPT: u32 = 32;

/// The most periods that may be kept: about 60 kB, with names of usual length.
pub const MOST_KEPT: u32 = 400;

/// One period.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PastPeriod {
    /// Its text.
    pub period: String,
    /// Whether the work has succeeded.
    pub done: bool,
    /// How many starts of the work were counted.
    pub attempts: u32,
    /// The leader of the last attempt.
    pub holder: String,
    /// The fencing token of the last attempt.
    pub epoch: u64,
    /// When the last attempt began, in milliseconds since 1970, on the leader's wall clock.
    pub started_ms: u64,
    /// When it ended; `None` while it lasts, and if its leader died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// How it ended; `None` while it lasts, and if its leader died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
}

impl PastPeriod {
    /// Returns one word: `done`, `failed`, `running`, or `interrupted` if the leader of the last attempt died or
    /// lost its leadership. `leading` is the epoch of the present record, if there is one.
    pub fn state(&self, leading: Option<Epoch>) -> &'static str {
        match &self.end {
            _ if self.done => "done",
            Some(_) => "failed",
            None if leading.is_some_and(|leading| leading.get() == self.epoch) => "running",
            None => "interrupted",
        }
    }
}

/// The periods of a name.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Periods {
    /// How many older ones were removed.
    #[serde(default)]
    removed: u64,
    /// In the order of their first attempts.
    periods: Vec<PastPeriod>,
}

/// What is to be done about a period.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Run the work.
    Run {
        /// The number of this attempt, from 1.
        attempt: u32,
        /// The period after the attempt before, if there was one.
        last: Option<PastPeriod>,
    },
    /// Nothing: the work has succeeded.
    Done(PastPeriod),
    /// Nothing: every attempt was used. For the leader. For a candidate, the last one may still run.
    NoAttemptLeft(PastPeriod),
    /// Nothing: this period comes before all that are kept, so it may have been done.
    Older {
        /// The oldest that is kept.
        oldest: String,
    },
}

impl Decision {
    /// Whether it holds already for a candidate, which need not lead first.
    pub fn needs_no_leader(&self) -> bool {
        match self {
            Self::Run { .. } => false,
            Self::NoAttemptLeft(last) => last.end.is_some(),
            Self::Done(_) | Self::Older { .. } => true,
        }
    }
}

impl Periods {
    /// Returns those that are kept, in the order of their first attempts.
    pub fn list(&self) -> &[PastPeriod] {
        &self.periods
    }

    /// Decides about `period`, whose work may be started `attempts` times.
    pub fn decide(&self, period: &str, attempts: NonZeroU32) -> Decision {
        match self.find(period) {
            Some(known) if known.done => Decision::Done(known.clone()),
            Some(known) if known.attempts >= attempts.get() => Decision::NoAttemptLeft(known.clone()),
            Some(known) => Decision::Run { attempt: known.attempts + 1, last: Some(known.clone()) },
            None => match self.oldest_above(period) {
                Some(oldest) => Decision::Older { oldest: oldest.into() },
                None => Decision::Run { attempt: 1, last: None },
            },
        }
    }

    fn find(&self, period: &str) -> Option<&PastPeriod> {
        self.periods.iter().find(|known| known.period == period)
    }

    /// Returns the oldest kept period if `period` comes before it, and older ones were removed. `None` if the
    /// texts do not rise: then their order says nothing about time.
    fn oldest_above(&self, period: &str) -> Option<&str> {
        // A counter without leading zeros rises, too.
        let place = |text: &'_ str| (text.len(), text.to_owned());
        let rises = self.periods.is_sorted_by(|one, next| place(&one.period) < place(&next.period));
        let is_told = self.removed > 0 && self.periods.len() >= LEAST_KEPT as usize && rises;
        let oldest = self.periods.first().filter(|_| is_told)?;
        (place(period) < place(&oldest.period)).then_some(oldest.period.as_str())
    }

    /// Counts an attempt of `own`, and removes the oldest periods beyond `keep`, or until the rest has at most
    /// `bytes`.
    fn count(&mut self, own: PastPeriod, keep: u32, bytes: usize) {
        match self.periods.iter_mut().find(|known| known.period == own.period) {
            Some(known) => *known = own,
            None => self.periods.push(own),
        }
        let surplus = self.periods.len().saturating_sub(keep as usize);
        self.remove(surplus);
        // The text of an end may follow.
        while self.periods.len() > 1 && self.body().len() > bytes.saturating_sub(crate::history::END) {
            self.remove(1);
        }
    }

    fn remove(&mut self, count: usize) {
        self.periods.drain(..count);
        self.removed = self.removed.saturating_add(count as u64);
    }

    fn body(&self) -> Vec<u8> {
        // Numbers and texts: every value can be written as JSON.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Fails if the document is of a later version: unlike a history, it must not be taken for an empty one.
    fn of(document: Option<&Document>) -> Result<Self, PeriodError> {
        let Some(document) = document else { return Ok(Self::default()) };
        serde_json::from_slice(&document.body).map_err(|cause| PeriodError::Unreadable(cause.to_string()))
    }
}

/// The periods could not be read or written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PeriodError {
    /// The leadership is over. What was written last may have been applied.
    #[error("{0}")]
    Over(String),
    /// The storage refused, and trying again does not help.
    #[error("{0}")]
    Refused(String),
    /// The document can't be decoded.
    #[error("the record of periods can't be read ({0}): was it written by a later version of vvm?")]
    Unreadable(String),
    /// The storage has no documents.
    #[error("this storage keeps no documents, and so no record of periods")]
    NoDocuments,
    /// The storage did not answer a candidate or an operator.
    #[error("{0}")]
    Unanswered(String),
}

/// Reads the periods of a name; `key` is its slot.
///
/// # Errors
/// [`PeriodError`].
///
/// # Cancel safety
/// May be dropped at will.
pub async fn read(
    documents: Option<&dyn DocumentStorage<ElectionKey>>,
    key: &ElectionKey,
) -> Result<Periods, PeriodError> {
    let (Some(documents), Ok(id)) = (documents, DocumentId::new(ID)) else {
        return Err(PeriodError::NoDocuments);
    };
    let document =
        documents.document(key, &id).await.map_err(|cause| PeriodError::Unanswered(cause.to_string()))?;
    Periods::of(document.as_ref())
}

/// The work that is to be done once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Once {
    /// For which period.
    pub period: String,
    /// How often the work may be started.
    pub attempts: NonZeroU32,
    /// How many periods are kept.
    pub keep: NonZeroU32,
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATTEMPTS: NonZeroU32 = NonZeroU32::new(3).unwrap();
    const BYTES: usize = 64 << 10;

    fn past(period: &str, attempts: u32) -> PastPeriod {
        PastPeriod {
            period: period.into(),
            done: false,
            attempts,
            holder: "web1".into(),
            epoch: 7,
            started_ms: 1,
            ended_ms: None,
            end: None,
        }
    }

    fn failed(period: &str, attempts: u32) -> PastPeriod {
        PastPeriod { ended_ms: Some(2), end: Some("it failed".into()), ..past(period, attempts) }
    }

    fn done(period: &str) -> PastPeriod {
        PastPeriod { done: true, ended_ms: Some(2), ..past(period, 1) }
    }

    fn of(periods: Vec<PastPeriod>) -> Periods {
        Periods { removed: 0, periods }
    }

    /// What the document says about the period, what follows, and whether a candidate need not lead for it.
    #[test]
    fn decision_follows_from_document_period_and_attempts() {
        let run = |attempt, last: Option<&PastPeriod>| Decision::Run { attempt, last: last.cloned() };
        let table = [
            (vec![], run(1, None), false),
            (vec![done("before")], run(1, None), false),
            (vec![done("p")], Decision::Done(done("p")), true),
            (
                vec![PastPeriod { attempts: 9, ..done("p") }],
                Decision::Done(PastPeriod { attempts: 9, ..done("p") }),
                true,
            ),
            (vec![failed("p", 1)], run(2, Some(&failed("p", 1))), false),
            (vec![past("p", 2), done("after")], run(3, Some(&past("p", 2))), false),
            // The last attempt may run.
            (vec![past("p", 3)], Decision::NoAttemptLeft(past("p", 3)), false),
            (vec![failed("p", 3)], Decision::NoAttemptLeft(failed("p", 3)), true),
            (vec![failed("p", 4)], Decision::NoAttemptLeft(failed("p", 4)), true),
        ];
        for (periods, expected, needs_no_leader) in table {
            let decision = of(periods.clone()).decide("p", ATTEMPTS);
            assert_eq!((&decision, decision.needs_no_leader()), (&expected, needs_no_leader), "{periods:?}");
        }
    }

    #[test]
    fn attempt_of_a_known_period_keeps_its_place_and_the_others() {
        let mut periods = of(vec![failed("a", 1), done("b")]);
        periods.count(past("a", 2), LEAST_KEPT, BYTES);
        assert_eq!(periods, of(vec![past("a", 2), done("b")]));
        periods.count(past("c", 1), LEAST_KEPT, BYTES);
        assert_eq!(periods, of(vec![past("a", 2), done("b"), past("c", 1)]));
    }

    /// Runs `name` of each number in turn, and returns what is kept.
    fn after_all(numbers: std::ops::RangeInclusive<u32>, name: impl Fn(u32) -> String) -> Periods {
        let mut periods = Periods::default();
        for number in numbers {
            periods.count(done(&name(number)), LEAST_KEPT, BYTES);
        }
        periods
    }

    #[test]
    fn period_before_all_that_are_kept_is_not_run_again() {
        let days = after_all(1..=40, |day| format!("2026-{:02}-{:02}", 1 + day / 30, 1 + day % 30));
        assert_eq!((days.list().len(), days.removed), (32, 8));
        let older = Decision::Older { oldest: "2026-01-10".into() };
        assert_eq!(days.decide("2026-01-09", ATTEMPTS), older);
        assert!(older.needs_no_leader());
        assert_eq!(days.decide("2026-12-01", ATTEMPTS), Decision::Run { attempt: 1, last: None });
        // A counter that gains a digit.
        let counted = after_all(960..=999, |number| number.to_string());
        assert!(matches!(counted.decide("1000", ATTEMPTS), Decision::Run { .. }));
        assert!(matches!(counted.decide("961", ATTEMPTS), Decision::Older { .. }));
        // Days that are written before their month: the next month begins before all of them.
        let days = after_all(1..=40, |day| format!("{:02}.{:02}.2026", 1 + day % 30, 1 + day / 30));
        assert!(matches!(days.decide("01.03.2026", ATTEMPTS), Decision::Run { .. }));
        // Nothing was removed.
        let few = after_all(1..=32, |day| format!("2026-01-{day:02}"));
        assert!(matches!(few.decide("2025-12-31", ATTEMPTS), Decision::Run { .. }));
    }

    #[test]
    fn document_is_bounded_in_periods_and_bytes() {
        let mut periods = Periods::default();
        for number in 0..1_000 {
            let holder = "\"".repeat(255);
            let period = format!("{number:064}");
            periods.count(PastPeriod { holder, ..failed(&period, 3) }, MOST_KEPT, BYTES);
            assert!(periods.body().len() < BYTES);
        }
        assert!(periods.list().len() > LEAST_KEPT as usize, "{}", periods.list().len());
        assert_eq!(periods.list().len() as u64 + periods.removed, 1_000);
        let mut usual = Periods::default();
        for number in 0..1_000 {
            let period = format!("2026-11-24T{number:04}");
            usual.count(PastPeriod { holder: "machine-1:12345".into(), ..done(&period) }, MOST_KEPT, BYTES);
        }
        assert_eq!(usual.list().len(), MOST_KEPT as usize);
    }

    #[test]
    fn document_of_a_later_version_is_not_taken_for_an_empty_one() {
        let document = |body: &'static [u8]| Document {
            id: DocumentId::new(ID).unwrap(),
            version: ielections::DocumentVersion::NONE,
            body: body.into(),
        };
        assert_eq!(Periods::of(None), Ok(Periods::default()));
        for body in [&b""[..], b"{}", b"[]", b"{\"periods\":[{\"period\":\"p\"}]}"] {
            assert!(matches!(Periods::of(Some(&document(body))), Err(PeriodError::Unreadable(_))));
        }
        let stored = of(vec![done("a"), failed("b", 2), past("c", 1)]);
        let kept: &'static [u8] = stored.body().leak();
        assert_eq!(Periods::of(Some(&document(kept))), Ok(stored));
    }

    #[test]
    fn state_is_running_only_while_its_leader_leads() {
        let leading = Epoch::new(7).ok();
        assert_eq!(done("p").state(leading), "done");
        assert_eq!(failed("p", 1).state(None), "failed");
        assert_eq!(past("p", 1).state(leading), "running");
        assert_eq!(past("p", 1).state(None), "interrupted");
        assert_eq!(past("p", 1).state(Epoch::new(8).ok()), "interrupted");
    }
}
