//! How a statement compares the history of the database, and the settings of a transaction.

use std::time::Duration;

/// The timeline that the server writes. `pg_control_checkpoint` shows the one before until a checkpoint.
pub(super) const TIMELINE: &str =
    "('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint";

pub(super) const RANDOM: &str = "uuid_send(gen_random_uuid())";

pub(super) const SERVER_MILLIS: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

pub(super) const NAMES_THIS_SERVER: &str = "h.system = c.system_identifier AND h.timeline = ";

/// Stands in a statement for the number of the process that carries it out, until it is prepared on a connection.
pub(super) const PROCESS: &str = ":process";

/// Stands behind the assignments that write a record, for that of its time. Replaced by [`with_time`] on the
/// connection. A trigger would do without it, but would lock each row once more and take a tenth of a renewal.
pub(super) const WRITTEN_AT_CLAUSE: &str = ":written";

/// `text` with the assignment of the time of the write, by the server's clock, or without it in a schema that was
/// created before records had times. Values in `text` are digits.
pub(super) fn with_time(text: &str, has_times: bool) -> String {
    text.replace(WRITTEN_AT_CLAUSE, if has_times { ", written_at = clock_timestamp()" } else { "" })
}

/// That the database has the history whose witness stands at this place, and `condition` with it. A statement that is
/// sent alone compares the witness in the process of the server that is known to have this history: [`PROCESS`]. A
/// server leaves recovery once, and goes back into it only by a restart, which ends its processes. So what one answer
/// showed of system identifier and timeline holds for as long as its process lives. The witness is compared again,
/// since the schema may be created anew under it; and the process, since a pooler that passes the process off as its
/// own may give another one to each transaction.
pub(super) fn holds(alone: bool, witness: &str, condition: &str) -> String {
    let (control, server) = match alone {
        true => ("", format!("pg_backend_pid() = {PROCESS}")),
        false => (", pg_control_system() c", format!("{NAMES_THIS_SERVER}{TIMELINE}")),
    };
    format!(
        "EXISTS (SELECT FROM sysvvm.history h{control} \
         WHERE h.witness = {witness} AND {server} AND {condition})"
    )
}

/// At which a statement sees what was committed before it, also while it waited for a lock, whatever the login's default is.
pub(super) const ISOLATION: &str = "TRANSACTION ISOLATION LEVEL READ COMMITTED";

/// Makes commits wait for the disk and for synchronous standbys, whatever the settings of server and login are, with the
/// warning that tells of a cancelled wait, and ends waits for a lock after `lock_timeout`; the one for a standby can't be
/// bounded. For one transaction (`LOCAL`) or as long as the connection lasts (`SESSION`).
pub(super) fn settings(extent: &str, lock_timeout: Duration) -> String {
    format!(
        "SET {extent} synchronous_commit = on; SET {extent} client_min_messages = warning; \
         SET {extent} lock_timeout = {}",
        lock_timeout.as_millis().max(1)
    )
}

/// Whether the server lost commits is not shown: one that did was refused when it was connected to.
pub(super) fn history() -> String {
    format!(
        "SELECT encode(h.witness, 'hex'), h.timeline, h.max_ttl_nanos, {NAMES_THIS_SERVER}{TIMELINE}, true, \
            {SERVER_MILLIS}, h.system FROM sysvvm.history h, pg_control_system() c"
    )
}
