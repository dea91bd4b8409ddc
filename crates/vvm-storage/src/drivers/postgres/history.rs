//! The history of the database that a write belongs to. A promoted standby begins a new one.
//!
//! The row of `history` names a server by system identifier, timeline and a random *witness*. If the server
//! differs, it was promoted or restored, and the first candidate *adopts* it ([`adoption`](super::rows::adoption)). Two standbys
//! that are promoted independently differ only by their witnesses.

use super::errors::{Damaged, Row, ttl};
use ielections::Ttl;
use std::time::Duration;

/// The timeline that the server writes. `pg_control_checkpoint` shows the one before until a checkpoint.
pub(super) const TIMELINE: &str =
    "('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint";

/// 16 random bytes, different in each row.
pub(super) const RANDOM: &str = "uuid_send(gen_random_uuid())";

/// The server's wall clock, in milliseconds.
pub(super) const SERVER_MILLIS: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// That the row of `history` names the server that answers.
pub(super) const NAMES_THIS_SERVER: &str = "h.system = c.system_identifier AND h.timeline = ";

/// The history that the writes of a handle belong to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct History {
    witness: Vec<u8>,
    /// No claim may have a larger TTL.
    pub(super) max_ttl: Ttl,
}

/// What of the history a statement compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Compared {
    /// The witness alone, in the process of the server that is known to have this history: [`PROCESS`].
    ///
    /// A server leaves recovery once, and goes back into it only by a restart, which ends its processes. So
    /// what one answer showed of system identifier and timeline holds for as long as its process lives. The
    /// witness is compared again, since the schema may be created anew under it; and the process, since a
    /// pooler that passes the process off as its own may give another one to each transaction.
    Witness,
    /// Witness, system identifier and timeline.
    Server,
}

/// Stands in a statement for the number of the process that is to carry it out. Replaced when the statement
/// is prepared on a connection to it.
pub(super) const PROCESS: &str = ":process";

/// That the history has the witness that stands at this place, and `condition` with it.
pub(super) fn holds(compared: Compared, witness: &str, condition: &str) -> String {
    let (control, server) = match compared {
        Compared::Witness => ("", format!("pg_backend_pid() = {PROCESS}")),
        Compared::Server => (", pg_control_system() c", format!("{NAMES_THIS_SERVER}{TIMELINE}")),
    };
    format!(
        "EXISTS (SELECT FROM sysvvm.history h{control} \
         WHERE h.witness = {witness} AND {server} AND {condition})"
    )
}

impl History {
    pub(super) fn witness(&self) -> &[u8] {
        &self.witness
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.witness == other.witness
    }

    /// What [`history`] shows.
    pub(super) fn shown(row: Option<&Row>) -> Result<Shown, Damaged> {
        let row = row.ok_or_else(|| Damaged::of("table history is empty"))?;
        let history = Self { witness: row.bytes(0)?, max_ttl: ttl(row.number(2)?)? };
        let server_time = Duration::from_millis(row.number(3)?.try_into().unwrap_or(0));
        Ok(Shown { adopted: row.is_true(1)?.then_some(history), server_time })
    }
}

/// What [`history`] shows.
#[derive(Debug)]
pub(super) struct Shown {
    /// `None` if the server that answers has a later one, which no candidate has adopted.
    pub(super) adopted: Option<History>,
    /// The server's wall clock, since the Unix epoch.
    pub(super) server_time: Duration,
}

/// Shows the history of the server that answers, and its clock.
pub(super) fn history() -> String {
    format!(
        "SELECT encode(h.witness, 'hex'), {NAMES_THIS_SERVER}{TIMELINE}, h.max_ttl_nanos, {SERVER_MILLIS} \
         FROM sysvvm.history h, pg_control_system() c"
    )
}
