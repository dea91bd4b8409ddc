//! A successor, so that the loss of a machine costs seconds, at any TTL: what elections need of a network for it.
//!
//! While a leader has a *successor*, the leader must hear from it, or from the storage, within a short support period
//! P. If it hears from neither, it is lost at 0.65 P and dead at 0.8 P, and the successor may claim the record after P.
//! The rules stand in `protocol::successor`.
//! [`Elections::acquire_with_successor`](crate::Elections::acquire_with_successor) takes [`SuccessorTerms`]. Its
//! [`PeerLink`] carries datagrams, and knows when a deadline is in force in other processes.

pub use crate::{
    protocol::successor::{FromStandby, Pairing, Ping, Withdrawal},
    timing::{SupportPeriod, SupportPeriodOutOfRange},
};

use crate::Entry;
use std::{
    fmt::{self, Debug},
    sync::Arc,
};
use vvm_clock::Instant;

/// How a candidate takes part in succession: as a standby it offers itself, and as a leader it names a successor.
#[derive(Clone, Debug)]
pub struct SuccessorTerms<K> {
    /// P of this process as leader.
    pub period: SupportPeriod,
    /// Its network.
    pub link: Arc<dyn PeerLink<K>>,
}

/// The network of one candidate, and what stands between its kill deadline and its processes. No call blocks.
///
/// A datagram may be lost, late, doubled or reordered. It must not be forged: an implementation drops what it can't
/// authenticate, and delivers at most a few hundred datagrams a second to its [`PeerInbox`].
pub trait PeerLink<K>: Debug + Send + Sync + 'static {
    /// Delivers to this inbox from now on. Called when a campaign begins, and when it has won.
    fn connect(&self, inbox: PeerInbox);

    /// A look of the campaign showed this record. Returns whether the link knows where its leader listens. If not, it
    /// finds out, and then delivers [`PeerMessage::Found`].
    fn find_leader(&self, slot: &K, entry: &Entry) -> bool;

    /// Sends a datagram now, or drops it.
    fn send(&self, datagram: Datagram);

    /// The deadman has entered this deadline. Deliver [`PeerMessage::InForce`] with it as soon as every other process
    /// that enforces the deadline has confirmed this one. One that is at least as late does not count: the message with
    /// this one may still be on its way (N2).
    fn tighten(&self, kill_at: Instant);

    /// The answer to [`PeerMessage::Stop`]: the planned stop may begin.
    fn may_stop(&self);

    /// This leader's successor is no longer named.
    fn withdrawn(&self, why: Withdrawal);

    /// This standby has won by the right of a successor, and leads.
    fn has_succeeded(&self);
}

/// To another process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Datagram {
    /// From the leader to the standby of this offer.
    ToStandby(Ping),
    /// From a standby to its leader.
    ToLeader(FromStandby),
}

/// From the link to the engine.
#[derive(Clone, Debug)]
pub enum PeerMessage {
    /// The link has found where the leader of this record listens.
    Found(Entry),
    /// A datagram arrived, and is authentic.
    Received(Datagram),
    /// This deadline is in force everywhere.
    InForce(Instant),
    /// The process is to stop, or to stop leading, and goes on until [`PeerLink::may_stop`] answers: for a standby once it
    /// has no right, so limit the wait; for a leader once it has withdrawn, lost its lease, or P has passed.
    Stop,
}

/// Where a link delivers. Clones are equal.
#[derive(Clone)]
pub struct PeerInbox(Arc<dyn Fn(PeerMessage) + Send + Sync>);

impl PeerInbox {
    /// An inbox that calls `deliver`, for tests of a link.
    pub fn new(deliver: impl Fn(PeerMessage) + Send + Sync + 'static) -> Self {
        Self(Arc::new(deliver))
    }

    /// Delivers a message. Never blocks. It is dropped if the campaign or leadership has ended.
    pub fn deliver(&self, message: PeerMessage) {
        (self.0)(message);
    }
}

impl Debug for PeerInbox {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("PeerInbox")
    }
}
