//! [`Slots`]: the state of each slot as last seen. [`Change`]: a difference between two looks.

use super::{Look, Paused};
use crate::shown::{Moment, Span};
use ielections::{Entry, Epoch, ReadError, Slot, Ttl};
use serde::{Serialize, Serializer};
use std::{collections::BTreeMap, fmt, time::Duration};
use vvm_clock::Instant;
use vvm_host::operate::InspectError;

/// A change that was seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Change {
    /// When it was seen, in Unix time.
    pub(super) at: Duration,
    /// None if it concerns all slots.
    pub(super) slot: Option<u32>,
    pub(super) what: What,
}

/// What has changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum What {
    /// The first look found a record.
    Held(Record),
    /// The first look found no record.
    Free {
        epoch: Option<u64>,
    },
    /// The first look found that no candidate has used the name.
    Unknown,
    Paused {
        by: String,
    },
    Resumed,
    /// A new leadership.
    Leads {
        #[serde(flatten)]
        record: Record,
        after: Option<String>,
    },
    Released {
        epoch: u64,
    },
    /// No renewal was seen for a TTL.
    Overdue {
        holder: String,
        silent_ms: u64,
    },
    /// A renewal was seen after that.
    RenewsAgain {
        holder: String,
    },
    /// Several looks found an older state than before.
    WentBack {
        from_epoch: Option<u64>,
        epoch: Option<u64>,
    },
    /// The storage can't be read.
    #[serde(rename = "trouble")]
    Unreadable {
        cause: String,
    },
    #[serde(rename = "works_again")]
    ReadableAgain,
}

/// A leader's record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Record {
    holder: String,
    epoch: u64,
    #[serde(rename = "ttl_ms", serialize_with = "milliseconds")]
    ttl: Ttl,
}

fn milliseconds<S: Serializer>(ttl: &Ttl, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u128(ttl.get().as_millis())
}

impl Record {
    pub(super) fn of(entry: &Entry) -> Self {
        Self { holder: entry.holder.to_string(), epoch: entry.epoch.get(), ttl: entry.ttl }
    }
}

impl What {
    /// Returns whether an operator should look into it.
    pub(super) fn is_alarming(&self) -> bool {
        matches!(self, Self::Overdue { .. } | Self::WentBack { .. } | Self::Unreadable { .. })
    }

    pub(super) fn free(last_epoch: Option<Epoch>) -> Self {
        Self::Free { epoch: last_epoch.map(Epoch::get) }
    }
}

impl Change {
    /// Returns one JSON object on one line.
    pub(super) fn to_json(&self) -> serde_json::Result<String> {
        let mut members = serde_json::to_value(&self.what)?;
        members["at"] = Moment(self.at).to_string().into();
        members["unix_ms"] = (self.at.as_millis() as u64).into();
        members["slot"] = self.slot.into();
        members["says"] = self.what.to_string().into();
        Ok(members.to_string())
    }
}

impl fmt::Display for Change {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}  ", Moment(self.at))?;
        self.slot.iter().try_for_each(|slot| write!(out, "slot {slot}: "))?;
        self.what.fmt(out)
    }
}

/// Texts from the storage are escaped: they may contain control sequences of terminals.
impl fmt::Display for What {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(record) => write!(out, "held by {record}"),
            Self::Free { epoch: None } => out.write_str("free, and never led"),
            Self::Free { epoch: Some(epoch) } => write!(out, "free, last epoch {epoch}"),
            Self::Unknown => out.write_str("no candidate has ever used this name: check --name"),
            Self::Paused { by } => write!(out, "paused by {}: no new leader begins", by.escape_debug()),
            Self::Resumed => out.write_str("resumed: candidates may lead again"),
            Self::Leads { record, after: None } => write!(out, "leads: {record}"),
            Self::Leads { record, after: Some(after) } => {
                write!(out, "leads: {record}, after {}", after.escape_debug())
            }
            Self::Released { epoch } => write!(out, "released, free, last epoch {epoch}"),
            Self::Overdue { holder, silent_ms } => {
                let (holder, silent) = (holder.escape_debug(), Span(Duration::from_millis(*silent_ms)));
                write!(out, "no renewal of {holder} seen for {silent}: candidates may take over")
            }
            Self::RenewsAgain { holder } => write!(out, "{} renews again", holder.escape_debug()),
            Self::WentBack { from_epoch, epoch } => {
                let text = |epoch: &Option<u64>| epoch.map_or("none".into(), |epoch| epoch.to_string());
                let (from, to) = (text(from_epoch), text(epoch));
                write!(out, "the storage shows an older epoch, {to} after {from}: restored from a backup?")
            }
            Self::Unreadable { cause } => write!(out, "can't be read: {cause}; trying again"),
            Self::ReadableAgain => out.write_str("can be read again"),
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}, epoch {}, TTL {}", self.holder.escape_debug(), self.epoch, self.ttl)
    }
}

/// After so many looks in a row at an older state, the storage went back. Fewer may be a replica that lags.
const BEHIND: u32 = 3;

/// What was seen so far.
///
/// A renewal is a record whose version differs from that of the look before. It was written at some moment
/// between the two, which is known better only if the storage proves the age. Its age counts from the later
/// end.
#[derive(Debug, Default)]
pub(super) struct Slots {
    seen: BTreeMap<u32, Seen>,
    /// Whether a look was answered.
    answered: bool,
    /// Whether the last look failed.
    fails: bool,
    paused: Option<Paused>,
}

/// What was seen of one slot.
#[derive(Clone, Debug)]
struct Seen {
    slot: Slot,
    /// The latest moment at which its state can have been written.
    written: Instant,
    overdue: bool,
    behind: u32,
}

impl Slots {
    /// Adds a look, and returns the changes that it shows. A failed look is a change.
    ///
    /// # Errors
    /// If the storage refuses for good before any look succeeded.
    pub(super) fn changes(&mut self, look: Look) -> Result<Vec<Change>, InspectError> {
        let mut whats = Vec::new();
        match look.found {
            Ok(found) => {
                let is_first = !std::mem::replace(&mut self.answered, true);
                if std::mem::take(&mut self.fails) {
                    whats.push((None, What::ReadableAgain));
                }
                whats.extend(self.saw_pause(found.paused).map(|what| (None, what)));
                let was_led = found.slots.iter().any(|(_, slot)| slot.last_epoch().is_some());
                if is_first && look.settled.is_none() && !was_led {
                    whats.push((None, What::Unknown));
                }
                for (number, slot) in found.slots {
                    whats.extend(self.saw(number, slot, look.at).map(|what| (Some(number), what)));
                }
            }
            Err(cause @ (ReadError::Fatal(_) | ReadError::Replaced(_))) if !self.answered => {
                return Err(InspectError::Read(cause));
            }
            Err(cause) => {
                if !std::mem::replace(&mut self.fails, true) {
                    whats.push((None, What::Unreadable { cause: cause.to_string() }));
                }
            }
        }
        Ok(whats.into_iter().map(|(slot, what)| Change { at: look.wall, slot, what }).collect())
    }

    fn saw_pause(&mut self, paused: Option<Paused>) -> Option<What> {
        let before = std::mem::replace(&mut self.paused, paused);
        match &self.paused {
            Some(paused) if before.as_ref() != Some(paused) => Some(What::Paused { by: paused.by.clone() }),
            None if before.is_some() => Some(What::Resumed),
            _ => None,
        }
    }

    fn saw(&mut self, number: u32, slot: Slot, now: Instant) -> Option<What> {
        let Some(seen) = self.seen.get_mut(&number) else {
            let what = match &slot {
                Slot::Held { entry, .. } => What::Held(Record::of(entry)),
                Slot::Vacant(vacant) => What::free(vacant.last_epoch),
            };
            self.seen.insert(number, Seen::of(slot, now));
            return Some(what);
        };
        if is_older(&slot, &seen.slot) {
            seen.behind += 1;
            if seen.behind < BEHIND {
                return None;
            }
            let [from_epoch, epoch] =
                [&seen.slot, &slot].map(|slot| slot.last_epoch().map(|epoch| epoch.get()));
            *seen = Seen::of(slot, now);
            return Some(What::WentBack { from_epoch, epoch });
        }
        seen.behind = 0;
        if slot.is_as_expected(&seen.slot) {
            return seen.falls_overdue(now);
        }
        let before = std::mem::replace(seen, Seen::of(slot, now));
        match (before.slot.entry(), seen.slot.entry()) {
            (Some(then), Some(entry)) if then.is_of(entry.incarnation(), entry.epoch) => {
                before.overdue.then(|| What::RenewsAgain { holder: entry.holder.to_string() })
            }
            (then, Some(entry)) => {
                let after = then.map(|then| then.holder.to_string());
                Some(What::Leads { record: Record::of(entry), after })
            }
            (_, None) => seen.slot.last_epoch().map(|epoch| What::Released { epoch: epoch.get() }),
        }
    }
}

impl Seen {
    fn of(slot: Slot, now: Instant) -> Self {
        let proven_age = match &slot {
            Slot::Held { proven_age, .. } => proven_age.unwrap_or_default(),
            Slot::Vacant(_) => Duration::ZERO,
        };
        Self { slot, written: now.before(proven_age), overdue: false, behind: 0 }
    }

    fn falls_overdue(&mut self, now: Instant) -> Option<What> {
        let entry = self.slot.entry()?;
        let silent = self.written.until(now);
        if self.overdue || silent < entry.ttl.get() {
            return None;
        }
        self.overdue = true;
        let silent_ms = silent.as_millis() as u64;
        Some(What::Overdue { holder: entry.holder.to_string(), silent_ms })
    }
}

/// Returns whether `slot` certainly precedes the state `known`.
fn is_older(slot: &Slot, known: &Slot) -> bool {
    match (slot.entry(), known.entry()) {
        (Some(entry), Some(known)) => entry.age_order() < known.age_order(),
        // A release keeps the epoch of the leadership that it ends.
        (Some(entry), None) => Some(entry.epoch) <= known.last_epoch(),
        (None, _) => slot.last_epoch() < known.last_epoch(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{liveness, watch::Found};
    use ielections::{Epoch, Vacant};
    use std::num::NonZeroU32;

    fn record(holder: &str, epoch: u64, write: u64) -> Slot {
        Slot::Held { entry: liveness::tests::record(holder, epoch, write), proven_age: None }
    }

    fn free(last_epoch: u64) -> Slot {
        Slot::Vacant(Vacant { last_epoch: Epoch::new(last_epoch).ok() })
    }

    fn look(second: u64, found: Result<Slot, ReadError>) -> Look {
        let at = Instant::ORIGIN.after(Duration::from_secs(100 + second));
        let found = found.map(|slot| Found { slots: vec![(1, slot)], paused: None });
        Look { found, settled: Some(NonZeroU32::MIN), at, wall: Duration::from_secs(second) }
    }

    /// Returns the changes that looks at these moments show, without their moments.
    fn shown(looks: impl IntoIterator<Item = (u64, Result<Slot, ReadError>)>) -> Vec<String> {
        let mut slots = Slots::default();
        let changes = looks.into_iter().flat_map(|(at, found)| slots.changes(look(at, found)).unwrap());
        changes.map(|change| change.to_string().split_once("  ").unwrap().1.to_owned()).collect()
    }

    fn unavailable() -> Result<Slot, ReadError> {
        Err(ReadError::Unavailable("no route".into()))
    }

    #[test]
    fn claims_releases_and_takeovers_are_shown() {
        let shown = shown([
            (0, Ok(free(0))),
            (1, Ok(record("a", 3, 1))),
            (2, Ok(record("a", 3, 2))),
            (6, Ok(record("a", 3, 3))),
            (7, Ok(free(3))),
            (8, Ok(record("b", 4, 1))),
            (9, Ok(record("c", 5, 1))),
        ]);
        let expected = [
            "slot 1: free, and never led",
            "slot 1: leads: a, epoch 3, TTL 20s",
            "slot 1: released, free, last epoch 3",
            "slot 1: leads: b, epoch 4, TTL 20s",
            "slot 1: leads: c, epoch 5, TTL 20s, after b",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn end_of_renewals_and_their_return_are_shown_once() {
        let shown = shown([
            (0, Ok(record("a", 3, 1))),
            (19, Ok(record("a", 3, 1))),
            (20, Ok(record("a", 3, 1))),
            (40, Ok(record("a", 3, 1))),
            (41, Ok(record("a", 3, 2))),
            (42, Ok(record("a", 3, 3))),
        ]);
        let expected = [
            "slot 1: held by a, epoch 3, TTL 20s",
            "slot 1: no renewal of a seen for 20.0s: candidates may take over",
            "slot 1: a renews again",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn record_is_overdue_by_the_age_that_the_storage_proves() {
        let Slot::Held { entry, .. } = record("a", 3, 1) else { unreachable!() };
        let aged = |age| Ok(Slot::Held { entry: entry.clone(), proven_age: Some(Duration::from_secs(age)) });
        let shown = shown([(0, aged(4)), (15, aged(19)), (16, aged(20))]);
        assert_eq!(shown[1..], ["slot 1: no renewal of a seen for 20.0s: candidates may take over"]);
    }

    #[test]
    fn older_state_is_shown_only_after_three_looks() {
        let shown = shown([
            (0, Ok(record("b", 4, 7))),
            (1, Ok(free(3))),
            (2, Ok(record("b", 4, 6))),
            (3, Ok(record("b", 4, 8))),
            (4, Ok(record("a", 3, 9))),
            (5, Ok(record("a", 3, 9))),
            (6, Ok(record("a", 3, 9))),
            (7, Ok(record("a", 3, 9))),
        ]);
        let expected = [
            "slot 1: held by b, epoch 4, TTL 20s",
            "slot 1: the storage shows an older epoch, 3 after 4: restored from a backup?",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn failure_is_shown_once_and_a_refusal_of_the_first_look_is_an_error() {
        let looks = [(0, Ok(free(3))), (1, unavailable()), (2, unavailable()), (3, Ok(free(3)))];
        let expected = [
            "slot 1: free, last epoch 3",
            "can't be read: the storage did not answer: no route; trying again",
            "can be read again",
        ];
        assert_eq!(shown(looks), expected);
        let refused = Err(ReadError::Fatal("no such table".into()));
        assert!(matches!(Slots::default().changes(look(0, refused)), Err(InspectError::Read(_))));
    }

    #[test]
    fn pause_and_its_end_are_shown() {
        let paused = |second, by: Option<&str>| {
            let paused = by.map(|by| Paused { by: by.into(), since: Duration::from_secs(7) });
            Look { found: Ok(Found { slots: vec![(1, free(3))], paused }), ..look(second, unavailable()) }
        };
        let mut slots = Slots::default();
        let looks =
            [paused(0, None), paused(1, Some("a: \x1b")), paused(2, Some("a: \x1b")), paused(3, None)];
        let shown = looks.into_iter().flat_map(|look| slots.changes(look).unwrap());
        let shown =
            shown.map(|change| change.to_string().split_once("  ").unwrap().1.to_owned()).collect::<Vec<_>>();
        let expected = [
            "slot 1: free, last epoch 3",
            "paused by a: \\u{1b}: no new leader begins",
            "resumed: candidates may lead again",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn name_without_candidates_is_shown_once() {
        let unknown = |second| Look { settled: None, ..look(second, Ok(free(0))) };
        let mut slots = Slots::default();
        let shown = [unknown(0), unknown(1)].into_iter().flat_map(|look| slots.changes(look).unwrap());
        let shown = shown.map(|change| change.what.to_string()).collect::<Vec<_>>();
        let expected = ["no candidate has ever used this name: check --name", "free, and never led"];
        assert_eq!(shown, expected);
    }

    #[test]
    fn change_is_one_json_object_on_one_line() {
        let mut slots = Slots::default();
        slots.changes(look(0, Ok(free(3)))).unwrap();
        let changes = slots.changes(look(61, Ok(record("a\n\"", 4, 1)))).unwrap();
        let line = changes[0].to_json().unwrap();
        assert!(!line.contains('\n'), "{line}");
        let shown: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            (&shown["event"], &shown["slot"], &shown["epoch"]),
            (&"leads".into(), &1.into(), &4.into())
        );
        assert_eq!((&shown["at"], &shown["unix_ms"]), (&"1970-01-01T00:01:01Z".into(), &61_000.into()));
        assert_eq!((&shown["holder"], &shown["ttl_ms"]), (&"a\n\"".into(), &20_000.into()));
    }
}
