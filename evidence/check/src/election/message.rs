//! What passes between processes and their storage, and between a leader and its successor.

use ielections::{
    Entry, Slot, Version,
    protocol::successor::{FromStandby, Ping},
};
use std::hash::{Hash, Hasher};
use vvm_storage::Step;

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Request {
    Scan,
    Get,
    Write(Step),
}

/// The slot that a read shows, or that refused a write; `None` if the write was applied.
#[derive(Clone, Debug)]
pub(crate) struct Answer(pub(crate) Option<Slot>);

/// Why a call has no answer that says what became of it.
#[derive(Clone, Copy, PartialEq, Hash, Debug)]
pub(crate) enum Failure {
    Unanswered,
    NotApplied,
    Replaced,
    Fatal,
}

#[derive(Clone, Hash, Debug)]
pub(crate) enum Datagram {
    ToStandby(Ping),
    ToLeader(FromStandby),
}

impl Request {
    pub(crate) fn told(&self) -> String {
        let shown = |entry: &Entry| {
            let Version { incarnation, write } = entry.version;
            format!("[{:?} {incarnation:?} write {write}]", entry.epoch)
        };
        match self {
            Self::Scan => "a scan".into(),
            Self::Get => "a read".into(),
            Self::Write(Step::Claim { from: Slot::Held { entry, .. }, to }) => {
                format!("a take-over of {} by {}", shown(entry), shown(to))
            }
            Self::Write(Step::Claim { to, .. }) => format!("a claim {}", shown(to)),
            Self::Write(Step::Renew { from, to }) => {
                format!("a renewal {}, before write {}", shown(to), from.version.write)
            }
            Self::Write(Step::Release { incarnation, epoch }) => {
                format!("a release of [{epoch:?} {incarnation:?}]")
            }
            Self::Write(other) => format!("{other:?}"),
        }
    }

    pub(super) fn step(&self) -> Option<&Step> {
        if let Self::Write(step) = self { Some(step) } else { None }
    }
}

impl Hash for Request {
    fn hash<H: Hasher>(&self, to: &mut H) {
        match self {
            Self::Scan => to.write_u8(0),
            Self::Get => to.write_u8(1),
            Self::Write(Step::Claim { from, to: entry }) => {
                to.write_u8(2);
                hash_slot(from, to);
                entry.hash(to);
            }
            Self::Write(Step::Renew { from, to: entry }) => {
                to.write_u8(3);
                (from, entry).hash(to);
            }
            Self::Write(Step::Release { incarnation, epoch }) => {
                to.write_u8(4);
                (incarnation, epoch).hash(to);
            }
            // Documents and settings are not checked.
            Self::Write(Step::Batch { .. } | Step::Settle { .. }) => to.write_u8(5),
        }
    }
}

impl Hash for Answer {
    fn hash<H: Hasher>(&self, to: &mut H) {
        to.write_u8(u8::from(self.0.is_some()));
        if let Some(slot) = &self.0 {
            hash_slot(slot, to);
        }
    }
}

/// Of a slot, all but the age that its storage proves.
pub(super) fn hash_slot<H: Hasher>(slot: &Slot, to: &mut H) {
    (slot.entry(), slot.last_epoch()).hash(to);
}
