//! [`Names`]: the instants, incarnations, writes and epochs of a state, and what they are called in their stead.

use super::message::{Datagram, Request};
use ielections::{Epoch, Incarnation, Slot, Version, protocol::Rebase};
use std::time::Duration;
use vvm_clock::Instant;
use vvm_storage::Step;

/// What every clock shows in a rebased state, but for less than a [`GRAIN`].
pub(crate) const NOW: Instant = Instant::from_nanos(100 * GRAIN * 1000);

/// Renewals are due at multiples of a thousandth of the TTL, so clocks are shifted by multiples of it.
pub(super) const GRAIN: u64 = 9_900_000;

/// All instants before have passed, whatever counts from them: no span is longer, for a candidate that never gives up.
const PAST: Duration = Duration::from_nanos(2000 * GRAIN);

/// The names that occur, then their replacements.
#[derive(Default)]
pub(super) struct Names {
    pub(super) renames: bool,
    /// How far the clock of the process at hand is shifted, and what it shows then.
    pub(super) shift: Duration,
    pub(super) now: Option<Instant>,
    pub(super) incarnations: Vec<(Incarnation, u64)>,
    pub(super) least_epoch: Option<u64>,
    pub(super) keeps_writes: bool,
}

impl Rebase for Names {
    fn since(&mut self, at: &mut Instant) {
        if self.renames && *at != Instant::NEVER {
            *at = at.before(self.shift).max(self.now.unwrap_or(NOW).before(PAST));
        }
    }

    fn until(&mut self, at: &mut Instant) {
        if self.renames && *at != Instant::NEVER {
            *at = at.before(self.shift).max(self.now.unwrap_or(NOW));
        }
    }

    fn version(&mut self, version: &mut Version) {
        let known =
            self.incarnations.iter_mut().zip(1..).find(|((known, _), _)| *known == version.incarnation);
        match known {
            Some(((_, least), number)) if self.renames => {
                let mut bytes = [0; 16];
                bytes[0] = number;
                *version = Version {
                    incarnation: Incarnation::from_bytes(bytes),
                    write: version.write.saturating_sub(if self.keeps_writes { 0 } else { *least }),
                };
            }
            Some(((_, least), _)) => *least = (*least).min(version.write),
            None => self.incarnations.push((version.incarnation, version.write)),
        }
    }

    fn epoch(&mut self, epoch: &mut Epoch) {
        let least = self.least_epoch.get_or_insert(epoch.get());
        if !self.renames {
            *least = (*least).min(epoch.get());
        } else if let Ok(renamed) = Epoch::new(epoch.get() - *least + 1) {
            *epoch = renamed;
        }
    }
}

impl Names {
    pub(super) fn incarnation(&mut self, incarnation: &mut Incarnation) {
        // No version is meant, so the largest write, for which none is renumbered.
        let mut version = Version { incarnation: *incarnation, write: u64::MAX };
        self.version(&mut version);
        *incarnation = version.incarnation;
    }

    pub(super) fn slot(&mut self, slot: &mut Slot) {
        match slot {
            Slot::Held { entry, .. } => self.entry(entry),
            Slot::Vacant(vacant) => vacant.last_epoch.iter_mut().for_each(|epoch| self.epoch(epoch)),
        }
    }

    pub(super) fn request(&mut self, request: &mut Request) {
        match request {
            Request::Write(Step::Claim { from, to }) => {
                self.slot(from);
                self.entry(to);
            }
            Request::Write(Step::Renew { from, to }) => {
                self.entry(from);
                self.entry(to);
            }
            Request::Write(Step::Release { incarnation, epoch }) => {
                self.incarnation(incarnation);
                self.epoch(epoch);
            }
            Request::Scan | Request::Get | Request::Write(_) => {}
        }
    }

    pub(super) fn datagram(&mut self, datagram: &mut Datagram) {
        match datagram {
            Datagram::ToStandby(ping) => ping.rebase(self),
            Datagram::ToLeader(message) => message.rebase(self),
        }
    }
}
