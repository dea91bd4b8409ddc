//! A successor, so that the loss of a machine costs seconds, at any TTL.
//!
//! A standby in another process, the *successor* S, grants its leader L time in periods of P ([`SupportPeriod`]). The
//! storage does so in periods of the TTL. S may claim the record of L once P has passed since S last granted time. By
//! then L is dead. The storage decides between them. L's permission to S is "you may claim the record of my leadership
//! while its write number is below W". To take it back, L renews with a write number of at least W.
//!
//! Two values without I/O: [`Support`] beside the [`Lease`](super::Lease) of L, [`Successor`] beside the
//! [`Campaign`](super::Campaign) of S. The caller carries out each step. If the step waits for no instant, turn or
//! answer, the caller delivers `Woken` at once. Each `now` is a clock reading made *after* the message or answer was
//! received, never a round's earlier one: P counts from it. The rules:
//!
//! - **N1** While S is named, L is lost at 0.65 P and dead at 0.8 P after the *send* of the newest ping that S
//!   acknowledged, or at the shares of the TTL, whichever is earlier. A loss makes both deadlines final.
//! - **N2** Guardian and keeper confirm this deadline before the first ping that names S is sent; it counts from before
//!   that. Until that send L may disarm it.
//! - **N3** L names after three test pings, each answered within P/10, and only if the storage's last confirmation is
//!   newer than P and took at most P/10. If it is not, L renews at once, and again after pauses that double from P to
//!   TTL/4. An offer is named once. After a withdrawal the next naming waits for such a pause, too.
//! - **N4** Only a confirmation that *shows* a write number of at least W loosens, whichever attempt it confirms. L
//!   withdraws when the newest acknowledged ping was sent P/4 ago, and before a planned stop.
//! - **N5** S waits for P after it last acknowledged a naming ping, and tests that when it sends the claim. The right
//!   ends at the first read that shows another leadership or a number of at least W, at the latest a TTL after that.
//! - **N6** S claims exactly the version that a linearizable read shows. A call takes at most P/10, and is tried again
//!   after P/20.
//! - **N7** A standby that stops asks to be withdrawn, and answers until the storage shows that it was.
//! - **N8** A message counts once, and for one [`Pairing`]. An acknowledgement names its ping.
//! - **N9** Without a successor nothing changes in a renewal.

mod leader;
mod standby;

#[cfg(feature = "testing")]
use super::{Rebase, rebase_write};
use crate::{Epoch, Incarnation, timing::SupportPeriod};
pub use leader::{Support, SupportEvent, SupportStep, Withdrawal};
pub use standby::{Successor, SuccessorEvent, SuccessorStep};

/// A leadership and one offer of a standby. A message for another pairing does not count (N8), as after a restart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pairing {
    /// The leadership.
    pub incarnation: Incarnation,
    /// The leadership.
    pub epoch: Epoch,
    /// 128 random bits of the standby, new for every offer.
    pub offer: [u8; 16],
}

/// From the leader.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ping {
    /// The leadership and offer that it is for.
    pub pairing: Pairing,
    /// Larger than that of every earlier ping of this leadership. The standby answers it once.
    pub number: u64,
    /// The *leader's* P, for which its successor waits, as an observer waits for the writer's TTL: two hosts may be
    /// configured differently.
    pub period: SupportPeriod,
    /// Names the standby: it may claim the record while its write number is below this (W). `None` for a test.
    pub below: Option<u64>,
}

/// From the standby.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FromStandby {
    /// It would succeed the leader.
    Offer(Pairing),
    /// The answer to a ping.
    Answer {
        /// The pairing of the ping.
        pairing: Pairing,
        /// The number of the ping.
        number: u64,
        /// The ping named this standby, which now waits for P. The answer to a test grants no time.
        acknowledges: bool,
        /// The standby asks to be withdrawn (N7).
        leaves: bool,
    },
}

#[cfg(feature = "testing")]
impl Pairing {
    fn rebase(&mut self, to: &mut dyn Rebase) {
        rebase_offer(&mut self.offer, to);
        let mut record = (self.incarnation, self.epoch);
        super::rebase_record(&mut record, to);
        (self.incarnation, self.epoch) = record;
    }
}

/// Gives `to` an offer, which it renames as an incarnation.
#[cfg(feature = "testing")]
fn rebase_offer(offer: &mut [u8; 16], to: &mut dyn Rebase) {
    let mut version = crate::Version { incarnation: Incarnation::from_bytes(*offer), write: u64::MAX };
    to.version(&mut version);
    *offer = *version.incarnation.as_bytes();
}

/// Gives `to` a ping's number as a write number of the inverted `leadership`, which must not be renamed yet.
#[cfg(feature = "testing")]
fn rebase_ping(leadership: Incarnation, number: &mut u64, to: &mut dyn Rebase) {
    let pings = Incarnation::from_bytes(leadership.as_bytes().map(|byte| !byte));
    rebase_write(pings, number, to);
}

#[cfg(feature = "testing")]
impl Ping {
    /// Hands on every name and number.
    pub fn rebase(&mut self, to: &mut dyn Rebase) {
        let leadership = self.pairing.incarnation;
        self.below.iter_mut().for_each(|below| rebase_write(leadership, below, to));
        rebase_ping(leadership, &mut self.number, to);
        self.pairing.rebase(to);
    }
}

#[cfg(feature = "testing")]
impl FromStandby {
    /// Hands on every name and number.
    pub fn rebase(&mut self, to: &mut dyn Rebase) {
        match self {
            Self::Offer(pairing) => pairing.rebase(to),
            Self::Answer { pairing, number, .. } => {
                rebase_ping(pairing.incarnation, number, to);
                pairing.rebase(to);
            }
        }
    }
}
