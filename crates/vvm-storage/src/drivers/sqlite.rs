//! Driver `sqlite`: one file, shared by processes on one machine. The embedded default.
//!
//! **Writes.** One thread, `vvm-sqlite`, owns the connection. It applies all waiting writes within one
//! `BEGIN IMMEDIATE` transaction and answers them after `COMMIT`, so that they share one sync. With WAL and
//! `synchronous=FULL`, an answered write survives a power cut. Within the transaction each write reads,
//! compares and writes for itself. One that is refused or fails does not affect the others. If one ends the
//! transaction (a full disk), the others are applied again without it.
//!
//! **Reads** see the last commit of any process. They run on the same thread and wait for its commits, but
//! for no lock of another process. A call whose caller has gone before its turn is skipped.
//!
//! **Documents** have tables of their own, and a savepoint for each batch. A file of format 1 has no such
//! tables and gets them when it is opened. Versions that know only format 1 then refuse to open it; those
//! that have it open continue.
//!
//! **Never early.** Only a write ends a record. A writer stamps each record with boot time, boot id and time
//! namespace. An age is proven only to a reader of the same boot and namespace, which has the same clock, and
//! only if the stamp is not in the future. Without a proven age an observer waits one TTL of its own. Ages
//! are proven on Linux only.
//!
//! **Permissions.** The file is created for its user alone (0600), or with `mode=0660` for the group, too.
//! Its side files have the same permissions. Another user that can only read it could hold a lock and stop
//! the elections.
//!
//! **Errors.**
//!
//! | error of SQLite | before `COMMIT` | at `COMMIT` | of a read |
//! |---|---|---|---|
//! | `BUSY`, `LOCKED`, `PROTOCOL`, for longer than a second | `NotApplied` | `NotApplied` | `Unavailable` |
//! | `FULL` | `NotApplied` | `NotApplied`: the commit frame is written last | `Unavailable` |
//! | `READONLY`, `PERM`, `AUTH` | `Fatal` | `Fatal` | `Fatal` |
//! | `CORRUPT`, `NOTADB`, a malformed row | `Fatal` | `Unknown` | `Fatal` |
//! | `ERROR` (a table is missing), `MISMATCH`, `CONSTRAINT`, `MISUSE`, `TOOBIG` | `Fatal` | `Unknown` | `Fatal` |
//! | `IOERR`, `NOMEM`, `CANTOPEN`, `INTERRUPT`, any other | `NotApplied` | `Unknown` | `Unavailable` |
//! | file, `-wal` or `-shm` deleted or replaced while open | `Replaced` | `Replaced` | `Replaced` |
//! | the thread has ended | `Unknown` | `Unknown` | `Unavailable` |
//!
//! A write that fails before `COMMIT` is rolled back, so it is not applied. After a sync that fails at
//! `COMMIT`, the log may contain the transaction, and a crash of all processes would replay it: unknown.
//!
//! **Limits.** A process that is stopped (`SIGSTOP`) within a transaction keeps the write lock. All renewals
//! wait until it continues or ends; a leader is ended by its deadman. Deleting or replacing the file, its
//! `-wal` or its `-shm` while they are in use makes a second storage, on which another candidate can lead at
//! once. Before each read, before each transaction and after each commit, a handle of the old files checks
//! that their paths still lead to them. If not, it answers `Replaced`, which ends a leadership at once. So
//! the old leader works beside the new one until its next renewal (0.25 TTL) and until its work has stopped
//! (0.15 TTL at most).

mod driver;
mod errors;
mod open;
mod rows;

pub use driver::SqliteStorage;
pub use open::{OpenError, OpenOptions};

/// Returns owner and mode of the file at `path`, and whether its folder has another owner.
pub(crate) fn owners(path: &std::path::Path) -> String {
    open::owners(path)
}

/// Fails if a database would not be opened or created at `path`. Changes nothing.
pub(crate) fn check_place(path: &std::path::Path, options: OpenOptions) -> Result<(), OpenError> {
    open::check_place(path, options)
}
