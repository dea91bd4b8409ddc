//! Work that is done once per period, as by `vvm once`: which periods of a name are done, in a fenced document beside
//! the record. Only the leader writes it (I2). It counts each start of the work before the start, and marks the period
//! as done after the work has succeeded and before the release. If the leader dies:
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

mod order;
mod writer;

pub use order::PeriodOrder;
pub use writer::{AttemptEnd, OnceWork, PeriodOutcome, PeriodWriter};

use ielections::{Document, DocumentId, DocumentStorage, Epoch};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;
use vvm_storage::ElectionKey;

/// The document's id. It lacks the byte that ends a collection's name, so no instance has the same id.
const ID: &[u8] = b"vvm-once";

/// The longest text of a period, in bytes.
pub const LONGEST_PERIOD: usize = 64;

/// The fewest periods that may be kept: by so many of one form, texts that rise are told from others, such as days
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
    #[serde(default)]
    removed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_removed: Option<String>,
    /// The most periods that any start has asked to keep.
    #[serde(default)]
    keep: u32,
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
    /// Nothing: this newer period is done, and then the work is not wanted.
    Superseded(PastPeriod),
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
            Self::Done(_) | Self::Superseded(_) | Self::Older { .. } => true,
        }
    }
}

impl Periods {
    /// Returns those that are kept, in the order of their first attempts.
    pub fn list(&self) -> &[PastPeriod] {
        &self.periods
    }

    /// Decides about the work of `once`.
    pub fn decide_for(&self, once: &Once) -> Decision {
        let decision = self.decide(&once.period, once.attempts);
        if !once.skip_if_newer_done || matches!(decision, Decision::Done(_)) {
            return decision;
        }
        let Some(order) = PeriodOrder::parse(&once.period) else { return decision };
        let is_newer = |known: &&PastPeriod| {
            known.done && PeriodOrder::parse(&known.period).is_some_and(|other| other > order)
        };
        self.periods.iter().rev().find(is_newer).map_or(decision, |newer| Decision::Superseded(newer.clone()))
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

    /// Returns the oldest kept period if `period` comes before it, and older ones were removed. `None` in doubt: if
    /// the form of the text shows no order, if the kept texts of its form do not rise, or if there are few.
    fn oldest_above(&self, period: &str) -> Option<&str> {
        let order = PeriodOrder::parse(period)?;
        let of_its_form =
            |text: &str| PeriodOrder::parse(text).filter(|other| other.is_comparable_to(&order));
        let kept = self.periods.iter().filter_map(|known| Some((of_its_form(&known.period)?, known)));
        let kept = kept.collect::<Vec<_>>();
        let is_told = self.removed > 0
            && kept.len() >= LEAST_KEPT as usize
            && kept.is_sorted_by(|(one, _), (next, _)| one < next);
        // An attempt of an old period keeps that one, and may have removed later ones.
        let gap = self.last_removed.as_deref().and_then(of_its_form);
        let mut kept = kept.iter().skip_while(|(known, _)| gap.as_ref().is_some_and(|gap| known <= gap));
        let (oldest, known) = kept.next().filter(|_| is_told)?;
        (order < *oldest).then_some(known.period.as_str())
    }

    /// Counts an attempt of `own`, and removes the oldest of the others beyond the longest `keep` of all starts, or
    /// until the rest has at most `bytes`.
    fn count(&mut self, own: PastPeriod, keep: u32, bytes: usize) {
        let period = own.period.clone();
        match self.periods.iter_mut().find(|known| known.period == period) {
            Some(known) => *known = own,
            None => self.periods.push(own),
        }
        self.keep = self.keep.max(keep);
        // The text of an end may follow.
        while self.periods.len() > self.keep as usize
            || self.body().len() > bytes.saturating_sub(crate::history::END)
        {
            let Some(oldest) = self.periods.iter().position(|known| known.period != period) else { break };
            self.last_removed = Some(self.periods.remove(oldest).period);
            self.removed = self.removed.saturating_add(1);
        }
    }

    fn body(&self) -> Vec<u8> {
        // Numbers and texts: every value can be written as JSON.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Fails if the document is of a later version: unlike a history, it must not be taken for an empty one.
    fn from_document(document: Option<&Document>) -> Result<Self, PeriodError> {
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
    /// The record has no entry of the period whose attempt has ended.
    #[error("the record of periods has no entry of this one")]
    NoEntry,
    /// The storage has no documents.
    #[error("this storage keeps no documents, and so no record of periods")]
    NoDocuments,
    /// The storage did not answer a candidate or an operator.
    #[error("{0}")]
    Unanswered(String),
}

/// Reads the periods of a name; `key` is its slot. Cancel safe.
pub async fn read(
    documents: Option<&dyn DocumentStorage<ElectionKey>>,
    key: &ElectionKey,
) -> Result<Periods, PeriodError> {
    let (Some(documents), Ok(id)) = (documents, DocumentId::new(ID)) else {
        return Err(PeriodError::NoDocuments);
    };
    let document =
        documents.document(key, &id).await.map_err(|cause| PeriodError::Unanswered(cause.to_string()))?;
    Periods::from_document(document.as_ref())
}

/// The work that is to be done once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Once {
    /// For which period.
    pub period: String,
    /// How often the work may be started.
    pub attempts: NonZeroU32,
    /// How many periods are kept, at least: the longest of all starts counts.
    pub keep: NonZeroU32,
    /// Whether the work is not wanted any more if a newer period of the same form is done.
    pub skip_if_newer_done: bool,
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
        Periods { periods, ..Periods::default() }
    }

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
        assert_eq!(periods.list(), [past("a", 2), done("b")]);
        periods.count(past("c", 1), LEAST_KEPT, BYTES);
        assert_eq!(periods.list(), [past("a", 2), done("b"), past("c", 1)]);
    }

    #[test]
    fn longest_keep_of_all_starts_counts() {
        let mut periods = Periods::default();
        for number in 0..2 * LEAST_KEPT {
            let keep = if number == 0 { 2 * LEAST_KEPT } else { LEAST_KEPT };
            periods.count(done(&number.to_string()), keep, BYTES);
        }
        assert_eq!(periods.list().len(), 2 * LEAST_KEPT as usize);
    }

    fn after_all(numbers: std::ops::RangeInclusive<u32>, name: impl Fn(u32) -> String) -> Periods {
        let mut periods = Periods::default();
        for number in numbers {
            periods.count(done(&name(number)), LEAST_KEPT, BYTES);
        }
        periods
    }

    /// Forms of texts: what was run, a forgotten one, and whether that is told to be older. What is not told is new.
    #[test]
    fn older_is_judged_only_among_texts_of_one_form_that_shows_an_order() {
        let day = |number: u32| (1 + number / 28, 1 + number % 28);
        type Name = fn(u32, (u32, u32)) -> String;
        let table: [(Name, &str, bool); 22] = [
            (|_, (month, day)| format!("2026-{month:02}-{day:02}"), "2026-01-02", true),
            (|_, (month, day)| format!("2026/{month}/{day}"), "2026/1/2", true),
            (|_, (month, day)| format!("2026{month:02}{day:02}"), "20260102", true),
            (|_, (month, day)| format!("backup 2026-{month:02}-{day:02}"), "backup 2026-01-02", true),
            (|n, _| format!("{}-W{:02}", 2024 + n / 52, 1 + n % 52), "2024-W02", true),
            (|n, _| format!("2026-11-{:02}T{:02}", 1 + n / 24, n % 24), "2026-11-01T01", true),
            (|n, _| format!("{}", 1_795_402_862 + n), "1795402862", true),
            (|n, _| format!("0.{}.{}", n / 20, n % 20), "0.0.1", true),
            (|n, _| format!("v1.{}.{}", n / 20, n % 20), "v1.0.1", true),
            (|n, _| format!("0.1.{n}"), "0.2.0", false),
            (|n, _| format!("0.{}.{}", n / 20, n % 20), "v0.0.1", false),
            (|n, _| format!("0.1.{n}"), "0.1.1-rc1", false),
            (|n, _| n.to_string(), "1", true),
            (|n, _| format!("build-{n}"), "build-1", true),
            (|n, _| (940 + n).to_string(), "1000", false),
            // Hashes, other forms, and forms in which a later text may come first.
            (|n, _| format!("{:08x}", n.wrapping_mul(0x9e37_79b1)), "00000001", false),
            (|_, (month, day)| format!("2026-{month:02}-{day:02}"), "2026-01-02-again", false),
            (|_, (month, day)| format!("2026-{month:02}-{day:02}"), "20260102", false),
            (|n, _| format!("20261124{n:02}"), "20261124", false),
            (|_, (month, day)| format!("{month}/{day}/2026"), "1/1/2027", false),
            (|_, (month, day)| format!("{month}.{day}.2026"), "1.1.2027", false),
            (|n, _| format!("{:03}", 300 + n), "001", false),
        ];
        for (name, asked, is_told) in table {
            let known = after_all(1..=50, |number| name(number, day(number)));
            assert_eq!((known.list().len(), known.removed), (32, 18));
            let oldest = known.list()[0].period.clone();
            let expected =
                if is_told { Decision::Older { oldest } } else { Decision::Run { attempt: 1, last: None } };
            assert_eq!(known.decide(asked, ATTEMPTS), expected, "{asked} after {}", name(50, day(50)));
        }
        assert!(Decision::Older { oldest: "1".into() }.needs_no_leader());
        // Nothing was removed; texts that did not rise.
        let few = after_all(2..=31, |day| format!("2026-01-{day:02}"));
        assert!(matches!(few.decide("2026-01-01", ATTEMPTS), Decision::Run { .. }));
        let falling = after_all(1..=50, |number| (1_000 - number).to_string());
        assert!(matches!(falling.decide("5", ATTEMPTS), Decision::Run { .. }));
    }

    #[test]
    fn period_is_skipped_only_if_a_newer_one_of_its_form_is_done() {
        let known = of(vec![done("2026-11-24"), failed("2026-11-26", 1), done("9"), done("2026-11-25")]);
        let decide = |period: &str, skip_if_newer_done| {
            let (period, keep) = (period.to_owned(), ATTEMPTS);
            known.decide_for(&Once { period, attempts: ATTEMPTS, keep, skip_if_newer_done })
        };
        let newer = Decision::Superseded(done("2026-11-25"));
        assert_eq!(decide("2026-11-23", true), newer);
        assert!(newer.needs_no_leader());
        assert_eq!(decide("2026-11-24", true), Decision::Done(done("2026-11-24")));
        let runs =
            [("2026-11-23", false), ("2026-11-26", true), ("2026-11-27", true), ("10", true), ("v8", true)];
        for (period, skips) in runs {
            assert!(matches!(decide(period, skips), Decision::Run { .. }), "{period}");
        }
    }

    /// The entry of the running attempt gets the mark.
    #[test]
    fn own_entry_is_never_removed_and_the_longest_keep_of_all_starts_counts() {
        let name = |number: u32| format!("2026-11-{number:04}");
        let mut periods = Periods::default();
        for number in 1..=300 {
            periods.count(done(&name(number)), 200, BYTES);
        }
        assert_eq!(periods.list().len(), 200);
        let old = name(101);
        periods.count(past(&old, 2), LEAST_KEPT, BYTES);
        assert_eq!((periods.list().len(), periods.find(&old)), (200, Some(&past(&old, 2))));
        // A storage with less room: the oldest of the others go, and are not new afterwards.
        let room = periods.body().len() / 2 + crate::history::END;
        periods.count(past(&old, 3), LEAST_KEPT, room);
        assert_eq!(periods.list()[0], past(&old, 3));
        assert!((LEAST_KEPT as usize..150).contains(&periods.list().len()));
        let oldest = Decision::Older { oldest: periods.list()[1].period.clone() };
        assert_eq!(periods.decide(&name(102), ATTEMPTS), oldest);
        periods.count(past(&old, 4), LEAST_KEPT, 0);
        assert_eq!(periods.list(), [past(&old, 4)]);
    }

    #[test]
    fn document_is_bounded_in_periods_and_bytes() {
        let mut periods = Periods::default();
        for number in 0..200 {
            let holder = "\"".repeat(255);
            let period = format!("{number:064}");
            periods.count(PastPeriod { holder, ..failed(&period, 3) }, MOST_KEPT, BYTES);
            assert!(periods.body().len() < BYTES);
        }
        assert!(periods.list().len() > LEAST_KEPT as usize, "{}", periods.list().len());
        assert_eq!(periods.list().len() as u64 + periods.removed, 200);
        let mut usual = Periods::default();
        for number in 0..450 {
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
        assert_eq!(Periods::from_document(None), Ok(Periods::default()));
        for body in [&b""[..], b"{}", b"[]", b"{\"periods\":[{\"period\":\"p\"}]}"] {
            assert!(matches!(Periods::from_document(Some(&document(body))), Err(PeriodError::Unreadable(_))));
        }
        let stored = of(vec![done("a"), failed("b", 2), past("c", 1)]);
        let kept: &'static [u8] = stored.body().leak();
        assert_eq!(Periods::from_document(Some(&document(kept))), Ok(stored));
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
