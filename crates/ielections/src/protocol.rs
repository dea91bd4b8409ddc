//! The protocol as values without I/O, `on(now, event) -> step`: a [`Campaign`] until a slot is won, a [`Lease`] while
//! it is held, a [`Release`] when it is handed back, and two of [`successor`] for a leader with one. A value returns
//! `Send` if it needs the storage, and the call itself on `MaySend`, when a request can go out. So "sent at" is the
//! instant just before the call (I3), however long it was queued.

mod campaign;
mod lease;
mod release;
pub mod successor;

pub use campaign::{Campaign, CampaignEvent, CampaignStep, ScanAnswer, WonSlot};
pub use lease::{Lease, LeaseEvent, LeaseStep};
pub use release::{Release, ReleaseEvent, ReleaseOutcome, ReleaseStep};

/// Gives other names to instants and versions, of which only differences and equality matter. Two states that
/// then are equal have the same future, so an exhaustive search meets each only once.
#[cfg(feature = "testing")]
pub trait Rebase {
    /// An instant from which time is counted.
    fn since(&mut self, at: &mut vvm_clock::Instant);
    /// An instant that is only waited for: all that have passed are alike.
    fn until(&mut self, at: &mut vvm_clock::Instant);
    /// A version.
    fn version(&mut self, version: &mut crate::Version);
    /// An epoch.
    fn epoch(&mut self, epoch: &mut crate::Epoch);
    /// A record.
    fn entry(&mut self, entry: &mut crate::Entry) {
        self.version(&mut entry.version);
        self.epoch(&mut entry.epoch);
    }
}

#[cfg(feature = "testing")]
fn rebase_record((incarnation, epoch): &mut (crate::Incarnation, crate::Epoch), to: &mut dyn Rebase) {
    // It is deleted whatever its write count is, so this count stands for none.
    let mut version = crate::Version { incarnation: *incarnation, write: u64::MAX };
    to.version(&mut version);
    *incarnation = version.incarnation;
    to.epoch(epoch);
}

/// Hands on the number of a write of a leadership, which is not renamed yet.
#[cfg(feature = "testing")]
fn rebase_write(incarnation: crate::Incarnation, write: &mut u64, to: &mut dyn Rebase) {
    let mut version = crate::Version { incarnation, write: *write };
    to.version(&mut version);
    *write = version.write;
}
