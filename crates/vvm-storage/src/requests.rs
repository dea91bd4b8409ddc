//! [`Requests`]: records by which an operator pauses a name, or has a leader step down.
//!
//! A request is a small record in a partition of its own. The verbs of leader records move it, so every
//! driver can hold it: it is claimed when it is made, renewed from stage to stage, and released when it is
//! over. Any process that may lead may also make a request. The calls are in `elections/requests.rs`.

mod step_down;

pub use step_down::{Advanced, RequestExpiry, Stage, StepDown};

use ielections::{Entry, Epoch, Holder, Incarnation, Slot, Ttl, Version, record::EpochOutOfRange};
use std::time::Duration;

/// The requests of operators to one cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Requests {
    /// No member may lead.
    pub pause: Option<Pause>,
    /// One leader shall step down.
    pub step_down: Option<StepDown>,
}

/// A pause: no member of the cluster may lead until an operator resumes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pause {
    entry: Entry,
}

/// The identity of a request, and when it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// Random, and fresh for every attempt: tells one request from another.
    pub incarnation: Incarnation,
    /// The operator's wall clock, since 1970. For display only.
    pub since_unix_epoch: Duration,
}

impl Pause {
    /// Returns the operator and the reason. For display only.
    pub fn by(&self) -> &str {
        self.entry.holder.as_str()
    }

    /// Returns the operator alone.
    pub fn author(&self) -> &str {
        self.by().split_once(": ").map_or(self.by(), |(author, _)| author)
    }

    /// Returns the reason, if the operator gave one.
    pub fn reason(&self) -> Option<&str> {
        self.by().split_once(": ").map(|(_, reason)| reason)
    }

    /// Returns the time of the pause, since 1970 on the operator's wall clock. For display only.
    pub fn since_unix_epoch(&self) -> Duration {
        wall_time(&self.entry)
    }

    /// Whether `ask` made this pause.
    pub fn is(&self, ask: Ask) -> bool {
        self.entry.incarnation() == ask.incarnation
    }

    pub(crate) fn entry(by: &Holder, last: Option<Epoch>, ask: Ask) -> Result<Entry, EpochOutOfRange> {
        // The TTL of a pause is not used.
        request(by.clone(), Ttl::DEFAULT, last, ask)
    }

    pub(crate) fn standing(&self) -> &Entry {
        &self.entry
    }

    /// Returns the pause in `slot`. A pause has no format number: whatever a later version writes beside it,
    /// a held record is a pause to every version.
    pub(crate) fn of(slot: &Slot) -> Option<Self> {
        slot.entry().map(|entry| Self { entry: entry.clone() })
    }
}

/// Returns the record of a new request. Its epoch follows the wall clock, as every epoch does, and so shows
/// when the request was made.
fn request(text: Holder, ttl: Ttl, last: Option<Epoch>, ask: Ask) -> Result<Entry, EpochOutOfRange> {
    let version = Version { incarnation: ask.incarnation, write: 0 };
    Ok(Entry { holder: text, version, ttl, epoch: Epoch::following(last, ask.since_unix_epoch)? })
}

fn wall_time(entry: &Entry) -> Duration {
    Duration::from_millis(entry.epoch.get())
}
