//! The history of the database that a write belongs to: that of one server, from one fail-over to the next. The row of
//! table `history` names a server, and has a random *witness*. If the server differs, it was promoted or restored, and
//! the first candidate *adopts* it ([`adoption`](super::statements::Statements::adoption)). Two that are promoted
//! independently differ by their witnesses.

use super::{
    errors::{ClockIsFar, DecodeError},
    rows::Row,
};
use ielections::Ttl;
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};
use vvm_clock::{Clock, Instant, SystemWallClock, WallClock};

/// What holders of adopted slots are called. Nothing leads under this name.
pub(crate) const ADOPTED: &str = "none: waiting after a fail-over of the database";

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Lineage {
    pub(crate) witness: Vec<u8>,
    /// The cluster whose timeline `generation` is. `None` on MySQL, where an old primary is adopted anew.
    system: Option<u64>,
    /// Rises with each fail-over.
    pub(crate) generation: u64,
    /// No claim may have a larger TTL.
    pub(crate) max_ttl: Ttl,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ComparedHistory<'a> {
    pub(crate) history: &'a Lineage,
    /// Whether [`Driver::send_single`](super::driver::Driver::send_single) sends it, on a connection with this history.
    pub(crate) alone: bool,
}

/// What [`Statements::history`](super::statements::Statements::history) shows.
#[derive(Debug)]
pub(crate) struct ServerHistory {
    /// `None` if the server that answers is another one than the history names.
    pub(crate) adopted: Option<Lineage>,
    /// Whether the server accepts writes and keeps them.
    pub(crate) is_fit: bool,
    pub(crate) server_time: Duration,
}

impl Lineage {
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.witness == other.witness
    }

    pub(crate) fn is_before(&self, other: &Self) -> bool {
        self.system.is_some() && self.system == other.system && self.generation < other.generation
    }

    /// Columns: witness, generation, largest TTL, whether it names the server, whether that is fit, its clock in ms, system.
    pub(crate) fn shown(row: Option<&Row>) -> Result<ServerHistory, DecodeError> {
        let row = row.ok_or_else(|| DecodeError::of("the table of the history is empty"))?;
        let system = if row.is_null(6) { None } else { Some(row.number(6)?) };
        let (witness, max_ttl) = (row.bytes(0)?, ttl(row.number(2)?)?);
        let history = Self { witness, system, generation: row.number(1)?, max_ttl };
        Ok(ServerHistory {
            adopted: row.is_true(3)?.then_some(history),
            is_fit: row.is_true(4)?,
            server_time: Duration::from_millis(row.number(5)?),
        })
    }
}

fn ttl(nanos: u64) -> Result<Ttl, DecodeError> {
    Ttl::new(Duration::from_nanos(nanos)).map_err(DecodeError::of)
}

pub(crate) fn nanos(ttl: Ttl) -> u64 {
    // At most 24 h, far within 63 bits.
    ttl.get().as_nanos() as u64
}

/// No claim is made at this difference. Half of the day by which epochs of a timeline exceed those before:
/// the clocks of two servers may take the other half.
const FAR: Duration = Duration::from_secs(12 * 60 * 60);

#[derive(Default, Debug)]
pub(crate) struct Clocks(Mutex<Option<(Instant, Duration)>>);

impl Clocks {
    pub(crate) fn seen(&self, clock: &impl Clock, server: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((clock.now(), server));
    }

    /// Fails if the difference is too large for a claim.
    pub(crate) fn check(&self, clock: &impl Clock) -> Result<(), ClockIsFar> {
        let Some((at, server)) = *self.0.lock().unwrap_or_else(PoisonError::into_inner) else {
            return Ok(());
        };
        let (ours, server) = (SystemWallClock.since_unix_epoch(), server + at.until(clock.now()));
        let difference = ours.abs_diff(server);
        let direction = if ours > server { "ahead of" } else { "behind" };
        if difference < FAR { Ok(()) } else { Err(ClockIsFar { difference, direction }) }
    }
}
