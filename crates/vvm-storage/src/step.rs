//! [`Step`]: a write on one partition. [`decide`]: what it does to a state. Drivers that read, compare and write within
//! a transaction of their own call [`decide`]. A driver that sends a condition to a server states the same condition in
//! the server's language; `testing::compare_steps` (feature) compares random steps on it with [`decide`].

use ielections::{
    DocumentId, DocumentVersion, DocumentWrite, Entry, Epoch, Fence, FenceState, Holder, Incarnation, OnlyIf,
    Slot, Ttl, Vacant, Version, WriteError,
};
use std::{convert::Infallible, fmt::Display, time::Duration};

/// One conditional write on one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Replaces exactly the state `from` by the record `to`: a vacant slot with exactly that last epoch, or a
    /// held one with exactly that version and epoch. The `proven_age` of `from` is ignored.
    Claim {
        /// The state that the candidate saw.
        from: Slot,
        /// Its record. Its epoch exceeds the last one: the caller guarantees it.
        to: Entry,
    },
    /// Replaces exactly the version and epoch of `from` by `to`, of the same incarnation and epoch. `to` is stored as
    /// it is, so holder and TTL may change, as elections never do: observers wait for the TTL that they see.
    Renew {
        /// The record that stands.
        from: Entry,
        /// The next one.
        to: Entry,
    },
    /// Makes the slot vacant if this leadership holds it, with any version. The epoch stays.
    Release {
        /// The incarnation of the leadership.
        incarnation: Incarnation,
        /// Its epoch.
        epoch: Epoch,
    },
    /// Writes documents, and counts the batch, if the fence and all conditions hold. Each write is of another document.
    Batch {
        /// The leadership, and the last batch before this one.
        fence: Fence,
        /// The documents.
        writes: Vec<DocumentWrite>,
    },
    /// Stores a setting if there is none. Sending it again after an unknown outcome is safe.
    Settle {
        /// The setting.
        value: Vec<u8>,
    },
}

impl Step {
    /// See [`Step::Claim`].
    pub fn claim(from: &Slot, to: &Entry) -> Self {
        Self::Claim { from: from.clone(), to: to.clone() }
    }

    /// See [`Step::Renew`].
    pub fn renew(from: &Entry, to: &Entry) -> Self {
        Self::Renew { from: from.clone(), to: to.clone() }
    }

    /// See [`Step::Release`].
    pub fn release(incarnation: Incarnation, epoch: Epoch) -> Self {
        Self::Release { incarnation, epoch }
    }

    /// See [`Step::Batch`].
    pub fn batch(fence: &Fence, writes: &[DocumentWrite]) -> Self {
        Self::Batch { fence: *fence, writes: writes.to_vec() }
    }

    /// See [`Step::Settle`].
    pub fn settle(value: &[u8]) -> Self {
        Self::Settle { value: value.to_vec() }
    }
}

/// The outcome of a step that was answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StepOutcome {
    /// Applied.
    Applied,
    /// Not applied: its condition did not hold.
    Refused(CurrentState),
}

/// What a refusal shows: the state that stands instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CurrentState {
    /// Of a claim, a renewal or a release: the slot, as a read in place of the step would show it.
    Slot(Slot),
    /// Of a setting: the one that stands.
    Setting(Vec<u8>),
    /// Of a batch. A read shows why it was refused.
    Nothing,
}

impl From<Slot> for CurrentState {
    fn from(slot: Slot) -> Self {
        Self::Slot(slot)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the driver of the storage answered with {0:?} for another step")]
struct Mismatched(CurrentState);

impl StepOutcome {
    /// The outcome of a claim, a renewal or a release: the slot that stands instead; `None` if it was applied.
    pub(crate) fn refusal(self) -> Result<Option<Slot>, WriteError> {
        match self {
            Self::Applied => Ok(None),
            Self::Refused(CurrentState::Slot(stands)) => Ok(Some(stands)),
            Self::Refused(other) => Err(WriteError::Fatal(Mismatched(other).into())),
        }
    }

    /// The outcome of [`Step::Settle`]: the setting that stood before; `None` if it was applied.
    pub(crate) fn settled_before(self) -> Result<Option<Vec<u8>>, WriteError> {
        match self {
            Self::Applied => Ok(None),
            Self::Refused(CurrentState::Setting(stands)) => Ok(Some(stands)),
            Self::Refused(other) => Err(WriteError::Fatal(Mismatched(other).into())),
        }
    }
}

/// The outcome of a claim, a renewal or a release that a driver may have refused.
impl From<Option<Slot>> for StepOutcome {
    fn from(refusal: Option<Slot>) -> Self {
        refusal.map_or(Self::Applied, |stands| Self::Refused(stands.into()))
    }
}

/// The state of one partition at one moment. [`decide`] reads of it what a step needs.
pub trait PartitionState {
    /// Why it can't be read.
    type Error;

    /// The leader record, or the vacancy.
    fn slot(&self) -> Result<Slot, Self::Error>;

    /// The leader record and the number of the last batch.
    fn fence(&self) -> Result<FenceState, Self::Error>;

    /// The version of a document, if there is one.
    fn version(&self, id: &DocumentId) -> Result<Option<DocumentVersion>, Self::Error>;

    /// The setting, if there is one.
    fn setting(&self) -> Result<Option<Vec<u8>>, Self::Error>;
}

/// A slot without documents and without a setting.
#[derive(Clone, Copy, Debug)]
pub struct SlotAlone<'slot>(pub &'slot Slot);

impl PartitionState for SlotAlone<'_> {
    type Error = Infallible;

    fn slot(&self) -> Result<Slot, Infallible> {
        Ok(self.0.clone())
    }

    fn fence(&self) -> Result<FenceState, Infallible> {
        Ok(FenceState { slot: self.0.clone(), last: DocumentVersion::NONE })
    }

    fn version(&self, _: &DocumentId) -> Result<Option<DocumentVersion>, Infallible> {
        Ok(None)
    }

    fn setting(&self) -> Result<Option<Vec<u8>>, Infallible> {
        Ok(None)
    }
}

/// What becomes of a state. All of it is one write, and nothing else of the partition changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision<'step> {
    /// The slot is held by this record.
    Hold(&'step Entry),
    /// The slot is vacant, and this is its last epoch.
    Vacate(Epoch),
    /// These documents are written, and this is their version and the number of the last batch.
    Write(DocumentVersion, &'step [DocumentWrite]),
    /// The setting has this value.
    Store(&'step [u8]),
    /// Nothing changes.
    Refuse(CurrentState),
}

/// Decides what a step does to a state: the conditions of the storage contract, for every driver.
///
/// - **(I2)** A claim replaces exactly the state that the candidate saw, and its epoch exceeds that state's, so epochs
///   rise. A vacancy keeps its last epoch, so they rise over a release, too. A batch needs the epoch *and* the
///   incarnation of its leadership, so none lands after the next acquisition. It needs the number of the batch before
///   it, so it lands once, in order, or never. A renewal changes neither, so the fence survives it.
/// - **(I5)** Only a claim replaces a record of another leadership, and only the version that the candidate
///   observed for its TTL. A renewal that landed meanwhile has another version. No time is read here: a
///   record whose TTL has passed is `Held` until a claim or its own release ends it, and never absent.
/// - **(I7)** A version is used for one attempt only, and no state returns once it was replaced. So a step that
///   was applied finds its condition broken by itself: a second copy of it is refused. A read that shows the
///   step's own version proves that it was applied; no refusal and no other state proves that it was not, while
///   a copy may be under way. A refusal is decided on one state at one moment, and shows exactly that state.
pub fn decide<'step, S: PartitionState>(state: &S, step: &'step Step) -> Result<Decision<'step>, S::Error> {
    let replace = |holds: bool, stands: Slot, decision| {
        Ok(if holds { decision } else { Decision::Refuse(CurrentState::Slot(stands)) })
    };
    match step {
        Step::Claim { from, to } => {
            let stands = state.slot()?;
            replace(stands.is_as_expected(from), stands, Decision::Hold(to))
        }
        Step::Renew { from, to } => {
            let stands = state.slot()?;
            let holds = stands.entry().is_some_and(|entry| entry.is_same_write(from));
            replace(holds, stands, Decision::Hold(to))
        }
        Step::Release { incarnation, epoch } => {
            let stands = state.slot()?;
            let holds = stands.entry().is_some_and(|entry| entry.is_of(*incarnation, *epoch));
            replace(holds, stands, Decision::Vacate(*epoch))
        }
        Step::Batch { fence, writes } => {
            if !state.fence()?.admits(fence) {
                return Ok(Decision::Refuse(CurrentState::Nothing));
            }
            for write in writes.iter().filter(|write| write.only_if() != OnlyIf::Always) {
                if !write.only_if().holds(state.version(write.id())?) {
                    return Ok(Decision::Refuse(CurrentState::Nothing));
                }
            }
            Ok(Decision::Write(fence.after.next(), writes))
        }
        Step::Settle { value } => Ok(match state.setting()? {
            None => Decision::Store(value),
            Some(stands) => Decision::Refuse(CurrentState::Setting(stands)),
        }),
    }
}

/// The five columns of a slot that was led once, as databases keep them: without unsigned numbers the same 64 bits.
#[allow(dead_code, reason = "drivers in memory and of cells have other rows")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Columns<'row> {
    pub(crate) epoch: u64,
    pub(crate) record: Option<RecordColumns<'row>>,
}

/// The columns that a vacant slot lacks.
#[allow(dead_code, reason = "see `Columns`")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordColumns<'row> {
    /// 16 bytes.
    pub(crate) incarnation: &'row [u8],
    /// Only ever compared for equality.
    pub(crate) write: u64,
    pub(crate) ttl_nanos: u64,
    /// UTF-8.
    pub(crate) holder: &'row [u8],
}

#[allow(dead_code, reason = "see `Columns`")]
impl<'row> RecordColumns<'row> {
    pub(crate) fn new(entry: &'row Entry) -> Self {
        Self {
            incarnation: entry.version.incarnation.as_bytes(),
            write: entry.version.write,
            // At most 24 h, which fits into 63 bits.
            ttl_nanos: entry.ttl.get().as_nanos() as u64,
            holder: entry.holder.as_str().as_bytes(),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
#[allow(dead_code, reason = "see `Columns`")]
pub(crate) struct DamagedSlot(String);

#[allow(dead_code, reason = "see `Columns`")]
impl DamagedSlot {
    fn new(what: impl Display) -> Self {
        Self(what.to_string())
    }
}

#[allow(dead_code, reason = "see `Columns`")]
impl Columns<'_> {
    /// The slot, without a proven age. What is damaged is an error, and never a vacancy (I5).
    pub(crate) fn slot(self) -> Result<Slot, DamagedSlot> {
        let epoch = Epoch::new(self.epoch).map_err(DamagedSlot::new)?;
        let Some(RecordColumns { incarnation, write, ttl_nanos, holder }) = self.record else {
            return Ok(Slot::Vacant(Vacant { last_epoch: Some(epoch) }));
        };
        let sixteen = incarnation.try_into();
        let incarnation = sixteen.map_err(|_| DamagedSlot::new("an incarnation that has not 16 bytes"))?;
        let entry = Entry {
            holder: Holder::new(str::from_utf8(holder).map_err(DamagedSlot::new)?)
                .map_err(DamagedSlot::new)?,
            version: Version { incarnation: Incarnation::from_bytes(incarnation), write },
            ttl: Ttl::new(Duration::from_nanos(ttl_nanos)).map_err(DamagedSlot::new)?,
            epoch,
        };
        Ok(Slot::Held { entry, proven_age: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ielections::{
        DocumentId,
        testing::{entry, held},
    };

    struct Stands(Slot, Option<&'static [u8]>);

    impl PartitionState for Stands {
        type Error = Infallible;

        fn slot(&self) -> Result<Slot, Infallible> {
            Ok(self.0.clone())
        }

        fn fence(&self) -> Result<FenceState, Infallible> {
            Ok(FenceState { slot: self.0.clone(), last: batch(7) })
        }

        fn version(&self, id: &DocumentId) -> Result<Option<DocumentVersion>, Infallible> {
            Ok((id.as_bytes() == b"a").then(|| batch(6)))
        }

        fn setting(&self) -> Result<Option<Vec<u8>>, Infallible> {
            Ok(self.1.map(<[u8]>::to_vec))
        }
    }

    fn batch(number: u64) -> DocumentVersion {
        DocumentVersion::from_stored(number)
    }

    fn vacant(last_epoch: Option<u64>) -> Slot {
        Slot::Vacant(Vacant { last_epoch: last_epoch.map(|epoch| Epoch::new(epoch).unwrap()) })
    }

    /// Shows I2 and I5.
    #[test]
    fn record_is_replaced_only_in_exactly_the_state_that_the_step_names() {
        let record = || entry(1, 3, 5);
        let aged = Slot::Held { entry: record(), proven_age: Some(Duration::MAX) };
        let states = [
            vacant(None),
            vacant(Some(4)),
            vacant(Some(5)),
            aged,
            held(entry(1, 4, 5)),
            held(entry(2, 3, 5)),
            held(entry(1, 3, 6)),
        ];
        let next = entry(9, 0, 9);
        let claim = |from| Step::Claim { from, to: next.clone() };
        let renewed = entry(1, 4, 5);
        let release = Step::Release { incarnation: record().incarnation(), epoch: record().epoch };
        let hold = Decision::Hold(&next);
        // The step, its decision, and in which of the states it is applied. No time that has passed counts.
        let table = [
            (claim(vacant(None)), &hold, "x......"),
            (claim(vacant(Some(4))), &hold, ".x....."),
            (claim(vacant(Some(5))), &hold, "..x...."),
            (claim(held(record())), &hold, "...x..."),
            (Step::renew(&record(), &renewed), &Decision::Hold(&renewed), "...x..."),
            (release, &Decision::Vacate(record().epoch), "...xx.."),
        ];
        for (step, applied, states_applied) in table {
            for (stands, applies) in states.iter().zip(states_applied.bytes()) {
                let refused = Decision::Refuse(CurrentState::Slot(stands.clone()));
                let expected = if applies == b'x' { applied } else { &refused };
                let Ok(decision) = decide(&Stands(stands.clone(), None), &step);
                assert_eq!(&decision, expected, "{step:?} on {stands:?}");
            }
        }
    }

    /// Shows I2.
    #[test]
    fn batch_is_written_only_by_its_leadership_once_and_under_all_its_conditions() {
        let put = |id: &'static str, only_if| DocumentWrite::Put {
            id: DocumentId::new(id).unwrap(),
            body: "body".into(),
            only_if,
        };
        let [absent, sixth, seventh] = [OnlyIf::Absent, OnlyIf::Version(batch(6)), OnlyIf::Version(batch(7))];
        let renewed = held(entry(1, 8, 5));
        let table = [
            ("of the leader, in any version of its record", &renewed, (1, 5, 7), vec![], true),
            ("conditions that hold", &renewed, (1, 5, 7), vec![put("a", sixth), put("b", absent)], true),
            (
                "one condition that fails",
                &renewed,
                (1, 5, 7),
                vec![put("b", absent), put("a", absent)],
                false,
            ),
            ("an older version", &renewed, (1, 5, 7), vec![put("a", seventh)], false),
            ("a version of nothing", &renewed, (1, 5, 7), vec![put("b", sixth)], false),
            ("a batch that was written", &renewed, (1, 5, 6), vec![], false),
            ("a batch before its turn", &renewed, (1, 5, 8), vec![], false),
            ("an epoch before", &renewed, (1, 4, 7), vec![], false),
            ("another incarnation", &renewed, (2, 5, 7), vec![], false),
            ("after the release", &vacant(Some(5)), (1, 5, 7), vec![], false),
        ];
        for (case, stands, (incarnation, epoch, after), writes, is_written) in table {
            let Entry { version, epoch, .. } = entry(incarnation, 0, epoch);
            let fence = Fence { epoch, incarnation: version.incarnation, after: batch(after) };
            let step = Step::batch(&fence, &writes);
            let Ok(decision) = decide(&Stands(stands.clone(), None), &step);
            let written = Decision::Write(batch(8), &writes);
            let expected = if is_written { written } else { Decision::Refuse(CurrentState::Nothing) };
            assert_eq!(decision, expected, "{case}");
        }
    }

    #[test]
    fn first_setting_stays() {
        let step = Step::settle(b"3");
        assert_eq!(decide(&Stands(vacant(None), None), &step), Ok(Decision::Store(b"3")));
        for stands in [b"3", b"5"] {
            let refused = Decision::Refuse(CurrentState::Setting(stands.to_vec()));
            assert_eq!(decide(&Stands(vacant(None), Some(stands)), &step), Ok(refused));
        }
    }

    #[test]
    fn slot_alone_has_no_document_and_no_setting() {
        let leads = entry(1, 3, 5);
        let fence =
            Fence { epoch: leads.epoch, incarnation: leads.incarnation(), after: DocumentVersion::NONE };
        let id = DocumentId::new("a").unwrap();
        let writes = [DocumentWrite::Put { id, body: "body".into(), only_if: OnlyIf::Absent }];
        let slot = held(leads);
        let first = Decision::Write(batch(1), &writes);
        assert_eq!(decide(&SlotAlone(&slot), &Step::batch(&fence, &writes)), Ok(first));
        assert_eq!(decide(&SlotAlone(&slot), &Step::settle(b"3")), Ok(Decision::Store(b"3")));
    }

    #[test]
    fn columns_of_a_slot_are_decoded_or_damaged_and_never_a_vacancy() {
        let entry = entry(7, u64::MAX, Epoch::MAX);
        let record = RecordColumns::new(&entry);
        let slot = |epoch, record| Columns { epoch, record }.slot();
        assert_eq!(slot(Epoch::MAX, Some(record)), Ok(held(entry.clone())));
        assert_eq!(slot(5, None), Ok(vacant(Some(5))));
        let damaged = [
            (0, record),
            (u64::MAX, record),
            (5, RecordColumns { incarnation: &[7; 15], ..record }),
            (5, RecordColumns { incarnation: &[], ..record }),
            (5, RecordColumns { ttl_nanos: 0, ..record }),
            (5, RecordColumns { ttl_nanos: u64::MAX, ..record }),
            (5, RecordColumns { holder: b"\xff", ..record }),
            (5, RecordColumns { holder: &[b'x'; 256], ..record }),
        ];
        for (epoch, record) in damaged {
            assert!(slot(epoch, Some(record)).is_err(), "{epoch}: {record:?}");
        }
        assert!(slot(0, None).is_err());
    }
}
