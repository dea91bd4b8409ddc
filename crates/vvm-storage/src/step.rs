//! [`Step`]: a write on one partition. [`decide`]: what it does to a state.
//!
//! Drivers that read, compare and write within a transaction of their own call [`decide`]. A driver that sends
//! a condition to a server states the same condition in the server's language;
//! `testing::compare_steps` compares random steps on it with [`decide`].

use ielections::{
    DocumentId, DocumentVersion, DocumentWrite, Entry, Epoch, Fence, FenceState, Holder, Incarnation, OnlyIf,
    Slot, Ttl, Vacant, Version, WriteError,
};
use std::{fmt::Display, time::Duration};

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
    /// Replaces exactly the version and epoch of `from` by `to`, which has the same incarnation and epoch.
    ///
    /// `to` is stored as it is, so holder and TTL may change: observers wait for the TTL of the record that
    /// they see. Elections never change them.
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
    /// Writes documents, and counts the batch, if the fence and all conditions hold. The writes are about
    /// different documents.
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
pub enum Done {
    /// Applied.
    Applied,
    /// Not applied, and never will be.
    Refused(Shown),
}

/// What a refusal shows: the state that stands instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Shown {
    /// Of a claim, a renewal or a release: the slot, as a read in place of the step would show it.
    Slot(Slot),
    /// Of a setting: the one that stands.
    Setting(Vec<u8>),
    /// Of a batch. A read shows why it was refused.
    Nothing,
}

impl From<Slot> for Shown {
    fn from(slot: Slot) -> Self {
        Self::Slot(slot)
    }
}

/// A refusal does not show what a refusal of this step shows.
#[derive(Debug, thiserror::Error)]
#[error("the driver of the storage answered with {0:?} for another step")]
struct Mismatched(Shown);

impl Done {
    /// The outcome of a claim, a renewal or a release: the slot that stands instead; `None` if it was applied.
    pub(crate) fn refusal(self) -> Result<Option<Slot>, WriteError> {
        match self {
            Self::Applied => Ok(None),
            Self::Refused(Shown::Slot(stands)) => Ok(Some(stands)),
            Self::Refused(other) => Err(WriteError::Fatal(Mismatched(other).into())),
        }
    }

    /// The outcome of [`Step::Settle`]: the setting that stood before; `None` if it was applied.
    pub(crate) fn settled_before(self) -> Result<Option<Vec<u8>>, WriteError> {
        match self {
            Self::Applied => Ok(None),
            Self::Refused(Shown::Setting(stands)) => Ok(Some(stands)),
            Self::Refused(other) => Err(WriteError::Fatal(Mismatched(other).into())),
        }
    }
}

/// The outcome of a claim, a renewal or a release that a driver may have refused.
impl From<Option<Slot>> for Done {
    fn from(refusal: Option<Slot>) -> Self {
        refusal.map_or(Self::Applied, |stands| Self::Refused(stands.into()))
    }
}

/// The state of one partition at one moment. [`decide`] reads of it what a step needs.
pub trait State {
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
    Refuse(Shown),
}

/// Decides what a step does to a state: the conditions of the storage contract, for every driver.
///
/// - **(I2)** A claim replaces exactly the state that the candidate saw, and its epoch exceeds that state's, so
///   epochs rise. A vacancy keeps its last epoch, so they rise over a release, too. A batch needs the epoch
///   *and* the incarnation of its leadership, so none lands after the next acquisition. It needs the number of
///   the batch before it, so it lands once, in order, or never: a second copy finds its number used. A renewal
///   changes neither, so the fence survives it.
/// - **(I5)** Only a claim replaces a record of another leadership, and only the version that the candidate
///   observed for its TTL. A renewal that landed meanwhile has another version. No time is read here: a
///   record whose TTL has passed is `Held` until a claim or its own release ends it, and never absent.
/// - **(I7)** A version is used for one attempt only. So a step whose outcome was lost is either applied, and
///   a read shows its version or a later one, or its condition may still hold; sent a second time, it finds
///   its own version in its place and is refused. `Refuse` is decided on one state at one moment, and shows
///   that state: the step is not applied, and the same call never will be.
///
/// # Errors
/// If the state can't be read.
pub fn decide<'step, S: State>(state: &S, step: &'step Step) -> Result<Decision<'step>, S::Error> {
    let replace = |holds: bool, stands: Slot, decision| {
        Ok(if holds { decision } else { Decision::Refuse(Shown::Slot(stands)) })
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
                return Ok(Decision::Refuse(Shown::Nothing));
            }
            for write in writes.iter().filter(|write| write.only_if() != OnlyIf::Always) {
                if !write.only_if().holds(state.version(write.id())?) {
                    return Ok(Decision::Refuse(Shown::Nothing));
                }
            }
            Ok(Decision::Write(fence.after.next(), writes))
        }
        Step::Settle { value } => Ok(match state.setting()? {
            None => Decision::Store(value),
            Some(stands) => Decision::Refuse(Shown::Setting(stands)),
        }),
    }
}

/// The five columns of a slot that was led at least once, as databases keep them. A database without unsigned
/// numbers keeps the same 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Columns<'row> {
    pub(crate) epoch: u64,
    /// `None` after a release.
    pub(crate) record: Option<RecordColumns<'row>>,
}

/// The columns that a vacant slot lacks.
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

impl<'row> RecordColumns<'row> {
    pub(crate) fn of(entry: &'row Entry) -> Self {
        Self {
            incarnation: entry.version.incarnation.as_bytes(),
            write: entry.version.write,
            // At most 24 h, which fits into 63 bits.
            ttl_nanos: entry.ttl.get().as_nanos() as u64,
            holder: entry.holder.as_str().as_bytes(),
        }
    }
}

/// The columns are not those of a slot.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct DamagedSlot(String);

impl DamagedSlot {
    fn of(what: impl Display) -> Self {
        Self(what.to_string())
    }
}

impl Columns<'_> {
    /// The slot, without a proven age. What is damaged is an error, and never a vacancy (I5).
    pub(crate) fn slot(self) -> Result<Slot, DamagedSlot> {
        let epoch = Epoch::new(self.epoch).map_err(DamagedSlot::of)?;
        let Some(RecordColumns { incarnation, write, ttl_nanos, holder }) = self.record else {
            return Ok(Slot::Vacant(Vacant { last_epoch: Some(epoch) }));
        };
        let sixteen = incarnation.try_into();
        let incarnation = sixteen.map_err(|_| DamagedSlot::of("an incarnation that has not 16 bytes"))?;
        let entry = Entry {
            holder: Holder::new(str::from_utf8(holder).map_err(DamagedSlot::of)?).map_err(DamagedSlot::of)?,
            version: Version { incarnation: Incarnation::from_bytes(incarnation), write },
            ttl: Ttl::new(Duration::from_nanos(ttl_nanos)).map_err(DamagedSlot::of)?,
            epoch,
        };
        Ok(Slot::Held { entry, proven_age: None })
    }
}
