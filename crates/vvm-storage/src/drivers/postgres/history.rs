//! The history of the database that a write belongs to. A promoted standby begins a new one.
//!
//! The row of `history` names a server by system identifier, timeline and a random *witness*. If the server
//! differs, it was promoted or restored, and the first candidate *adopts* it ([`adoption`]). Two standbys
//! that are promoted independently differ only by their witnesses.

use super::{
    errors::Damaged,
    rows::{Hex, Row, is_led, locked, nanos, ttl},
};
use crate::key::{KEY_PREFIX_VVM_LEADER, Partition};
use ielections::Ttl;
use std::time::Duration;

/// The timeline that the server writes. `pg_control_checkpoint` shows the one before until a checkpoint.
pub(super) const TIMELINE: &str =
    "('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint";

/// 16 random bytes, different in each row.
pub(super) const RANDOM: &str = "uuid_send(gen_random_uuid())";

/// The server's wall clock, in milliseconds.
const SERVER_MILLIS: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// That the row of `history` names the server that answers.
const NAMES_THIS_SERVER: &str = "h.system = c.system_identifier AND h.timeline = ";

/// What holders of adopted slots are called. Nothing leads under this name.
const ADOPTED: &str = "none: waiting after a fail-over of PostgreSQL";

/// By how much epochs on a timeline exceed those of the timelines before it, in milliseconds: more than a
/// candidate's clock may be ahead, and the promoted server's behind.
const EPOCHS_OF_A_TIMELINE: u64 = 24 * 60 * 60 * 1000;

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

/// Makes the history of this server ours, if no candidate has done so, and shows the slot of `at`.
///
/// Each slot becomes one that is held: a leader whose claim was forgotten may be at work in any of them, held
/// or vacant. Standbys observe that record for the largest TTL that a claim may have (I1), and its version is
/// new to all of them, so that no observation goes on across the change. Its epoch is larger than each that
/// was given out and forgotten (I2). `at` gets such a record if it has no row.
///
/// A promoted server may have forgotten that the largest TTL was raised. The larger of its own and `known`
/// counts. If it was adopted without this knowledge, it is adopted once more by a handle whose history,
/// `ours`, is another one.
pub(super) fn adoption(at: Option<&Partition>, ours: Option<&History>, known: Option<Ttl>) -> String {
    let led = KEY_PREFIX_VVM_LEADER;
    let (known, ours) = (known.map_or(0, nanos), Hex(ours.map_or(&[], History::witness)));
    let changed = format!(
        "EXISTS (SELECT FROM sysvvm.history h, pg_control_system() c \
         WHERE NOT ({NAMES_THIS_SERVER}{TIMELINE}) \
            OR (h.max_ttl_nanos < {known} AND h.witness <> {ours}))"
    );
    let epoch = format!("{SERVER_MILLIS} + {TIMELINE} * {EPOCHS_OF_A_TIMELINE}");
    let holder = Hex(ADOPTED.as_bytes());
    // The first statement lets one candidate adopt at a time.
    let adopt = format!(
        "SELECT FROM sysvvm.history FOR UPDATE; \
         UPDATE sysvvm.leader SET epoch = GREATEST(epoch + 1, {epoch}), incarnation = {RANDOM}, write = 0, \
            ttl_nanos = (SELECT GREATEST(max_ttl_nanos, {known}) FROM sysvvm.history), holder = {holder} \
            WHERE substr(pk, 1, 1) = {led} AND {changed}; \
         UPDATE sysvvm.history SET system = c.system_identifier, timeline = {TIMELINE}, witness = {RANDOM}, \
            max_ttl_nanos = GREATEST(max_ttl_nanos, {known}), adopted = true \
            FROM pg_control_system() c WHERE {changed}",
        led = Hex(&[led]),
    );
    match at {
        None => adopt,
        Some(at) => {
            let insertion = if is_led(at) { "h.adopted" } else { "false" };
            format!(
                "{adopt}; INSERT INTO sysvvm.leader (pk, epoch, incarnation, write, ttl_nanos, holder) \
                    SELECT {pk}, {epoch}, {RANDOM}, 0, h.max_ttl_nanos, {holder} \
                    FROM sysvvm.history h WHERE {insertion} ON CONFLICT DO NOTHING; {}",
                locked(at),
                pk = Hex(at.as_bytes()),
            )
        }
    }
}
