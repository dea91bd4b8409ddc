//! A successor: a standby in another process that takes over seconds after the loss of the leader's machine, at any
//! TTL. The rules are in `ielections::protocol::successor`. Here are its settings, its network ([`link`]), the leader's
//! document ([`document`]), and what confirms a kill deadline ([`DeadlineEnforcer`]).

mod datagram;
mod document;
mod link;
mod probe;

pub use document::named_successor;
pub(crate) use link::UdpPeerLink;
pub use probe::{ProbeOutcome, probe_leader};

use ielections::{
    Ttl,
    successor::{SupportPeriod, SupportPeriodOutOfRange},
};
use std::{io, net::SocketAddr, num::NonZeroU32, time::Duration};
use tokio::sync::watch;
use vvm_clock::{DisplayDuration, Instant};

/// How a host takes part in succession: it offers itself to the leader while it stands by, and names a successor while
/// it leads. Every candidate that shall be a successor, or have one, has these settings.
///
/// While a successor is named, a leader that reaches neither it nor storage for 0.65 [`period`](Self::period) is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SuccessorSettings {
    /// Where this host listens for datagrams (UDP). With port 0 it is any free one.
    pub listen: SocketAddr,
    /// The address by which other hosts reach this one, if that is not [`listen`](Self::listen): behind a translation of
    /// addresses, or if `listen` is `0.0.0.0` or `[::]`. With port 0 it is the port of `listen`.
    pub advertise: Option<SocketAddr>,
    /// How long a successor waits after it heard from the leader last: 2 s to 30 s, at most a quarter of the TTL, at least
    /// the shortest TTL of the storage. Default: 5 s.
    pub period: Duration,
}

impl SuccessorSettings {
    /// The default of [`period`](Self::period).
    pub const PERIOD: Duration = Duration::from_secs(5);

    /// With the default period.
    pub fn new(listen: SocketAddr) -> Self {
        Self { listen, advertise: None, period: Self::PERIOD }
    }
}

/// What a process that enforces the kill deadline beside this one has confirmed last: `None` outside while it does not
/// run, and `None` inside while it has confirmed no deadline. It must pass on every confirmation in the order in which
/// this process sent the deadlines.
pub type DeadlineEnforcer = watch::Receiver<Option<watch::Receiver<Option<Instant>>>>;

/// Why this host can take no part in succession.
#[derive(Debug, thiserror::Error)]
pub enum SuccessorRefusal {
    /// The period does not fit.
    #[error(transparent)]
    Period(#[from] SupportPeriodOutOfRange),
    /// The storage needs more time for a write.
    #[error(
        "a support period of {} is too short for this storage, whose writes need {} or more: choose a longer one",
        DisplayDuration(*period), DisplayDuration(*least)
    )]
    PeriodTooShort {
        /// The period.
        period: Duration,
        /// The shortest TTL of the driver.
        least: Duration,
    },
    /// This version has successors for one slot.
    #[error("a successor is for a name with one slot, and this one has {0}")]
    Slots(NonZeroU32),
    /// The storage is lost with its machine.
    #[error(
        "a successor takes over when the leader's machine is lost, and the storage would be lost with it: use a storage \
         on a server"
    )]
    StorageOfOneMachine,
    /// The address of the leader is in a document.
    #[error("this storage has no documents, so a standby can't learn where the leader listens")]
    NoDocuments,
    /// Standbys could not send there.
    #[error(
        "no other machine reaches this one at {0}: write the address of this machine that the others reach, with its port"
    )]
    Unreachable(SocketAddr),
    /// The socket can't be bound.
    #[error("can't listen for datagrams at {address} ({}): choose a free port, and an address of this machine", .cause)]
    CantListen {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        cause: io::Error,
    },
}

impl SuccessorRefusal {
    /// Whether other settings are the way out, rather than another machine or port.
    pub(crate) fn is_misuse(&self) -> bool {
        !matches!(self, Self::CantListen { .. })
    }
}

impl SuccessorSettings {
    /// Checks what can be known before the storage is open.
    pub(crate) fn checked(
        &self,
        slots: NonZeroU32,
        storage: &str,
        ttl: Ttl,
    ) -> Result<SupportPeriod, SuccessorRefusal> {
        if slots != NonZeroU32::MIN {
            return Err(SuccessorRefusal::Slots(slots));
        }
        // The opening reports a malformed URL.
        if vvm_storage::url::shared_between_machines(storage).is_ok_and(|is_shared| !is_shared) {
            return Err(SuccessorRefusal::StorageOfOneMachine);
        }
        Ok(SupportPeriod::new(self.period, ttl)?)
    }
}
