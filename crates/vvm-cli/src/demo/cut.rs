//! [`Cut`]: why a run does not go on to its end.

use super::{event::Lane, heartbeat::Unreadable};
use ielections::ReadError;
use rustix::process::Signal;
use std::{io, time::Duration};
use vvm_containment::Ended;

/// Why the run was cut short.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Cut {
    /// We were told to stop.
    #[error("interrupted")]
    Interrupted(Signal),
    /// What had to happen did not.
    #[error("waited {limit:?} in vain for {awaited}")]
    InVain { awaited: &'static str, limit: Duration },
    /// A `vvm run` has ended that nobody had ended.
    #[error("the vvm run of {lane} {ended}, and nobody had asked it to")]
    LeftUnasked { lane: Lane, ended: Ended },
    /// A `vvm run` did not end as it should.
    #[error("the vvm run of {lane} {ended}, and should have {should}")]
    LeftOtherwise { lane: Lane, ended: Ended, should: &'static str },
    #[error(transparent)]
    Log(#[from] Unreadable),
    #[error("the demo can't look at the record: {0}")]
    Record(#[from] ReadError),
    #[error("the demo can't start or stop a process: {0}")]
    Processes(#[source] io::Error),
    #[error("nobody reads what the demo shows: {0}")]
    Audience(#[source] io::Error),
}
