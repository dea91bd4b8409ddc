//! What a campaign is told, and what it asks for in return.

use crate::{AcquireError, Claim, Entry, ReadError, Slot, Swap, Vacant, WriteError};
use std::time::Duration;
use vvm_clock::Instant;

/// What happened.
#[derive(Debug)]
pub enum CampaignEvent {
    /// The instant asked for has come.
    Woken,
    /// Somebody says that the slots have changed. It need not be true.
    Hinted,
    /// A request may go out now.
    MaySend,
    /// The scan is over: what it read, in the order of the slots, and why it did not read the rest.
    Scanned(Vec<Option<Slot>>, Result<(), ReadError>),
    /// The `get` was answered.
    Read(Result<Slot, ReadError>),
    /// The `insert_if_not_exist` or `take_over` was answered.
    Claimed(Result<Claim, WriteError>),
    /// The `compare_and_swap` was answered.
    Swapped(Result<Swap, WriteError>),
}

/// What to do. Slots are named by their index.
#[derive(Debug)]
pub enum CampaignStep {
    /// Nothing until then, whatever was asked for before; deliver `Woken` at that instant.
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
    /// A slot is ours.
    Won(Won),
    /// The campaign is over without one.
    Failed(AcquireError),
}

/// A slot that was won, fresh enough to start work on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Won {
    /// Which slot.
    pub slot: usize,
    /// The record that stands there.
    pub entry: Entry,
    /// When the write that put it there was sent (I3).
    pub sent_at: Instant,
}
