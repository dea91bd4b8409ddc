//! The events and steps of a campaign.

use crate::{AcquireError, Claim, Entry, ReadError, Slot, Swap, Vacant, WriteError};
use std::time::Duration;
use vvm_clock::Instant;

/// An event of a campaign.
#[derive(Debug)]
pub enum CampaignEvent {
    /// The instant of [`CampaignStep::Sleep`] has come.
    Woken,
    /// The slots may have changed. A hint may be false.
    Hinted,
    /// A request may go out now.
    MaySend,
    /// The scan was answered.
    Scanned(Scanned),
    /// The `get` was answered.
    Read(Result<Slot, ReadError>),
    /// The `insert_if_not_exist` or `take_over` was answered.
    Claimed(Result<Claim, WriteError>),
    /// The `compare_and_swap` was answered.
    Swapped(Result<Swap, WriteError>),
}

/// The answer to a scan.
#[derive(Debug)]
pub struct Scanned {
    /// The slots that were read.
    pub seen: Vec<Option<Slot>>,
    /// The error if not all were read.
    pub outcome: Result<(), ReadError>,
    /// Whether a hint follows every release that the scan does not show
    /// ([`TtlStorage::hints_of_releases`](crate::TtlStorage::hints_of_releases)).
    pub hints_follow: bool,
}

/// The next step of a campaign. Slots are named by their index.
#[derive(Debug)]
pub enum CampaignStep {
    /// Do nothing; deliver `Woken` at that instant. Replaces an earlier `Sleep`.
    Sleep(Instant),
    /// Deliver `MaySend` as soon as a request may go out.
    Send,
    /// Call `scan` on all slots now.
    Scan(Duration),
    /// Call `get` now.
    Read(usize, Duration),
    /// Call `insert_if_not_exist` now.
    Insert(usize, Vacant, Entry, Duration),
    /// Call `take_over` now.
    TakeOver(usize, Entry, Entry, Duration),
    /// Call `compare_and_swap` now.
    Renew(usize, Entry, Entry, Duration),
    /// A slot was won.
    Won(Won),
    /// The campaign has ended without a slot.
    Failed(AcquireError),
}

/// A slot that was won, fresh enough to start work on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Won {
    /// Index of the slot.
    pub slot: usize,
    /// Its record.
    pub entry: Entry,
    /// When the write of the record was sent (I3).
    pub sent_at: Instant,
}
