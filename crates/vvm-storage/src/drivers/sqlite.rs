//! Driver `sqlite`: one file, several processes on one machine. The embedded default.
//!
//! **How the contract is kept.** One thread, `vvm-sqlite`, owns the connection. It takes whatever writes are
//! waiting, carries them out one after another within one `BEGIN IMMEDIATE` transaction, and answers them
//! after `COMMIT`: WAL and `synchronous=FULL`, so that what was answered survives a power cut, and one sync
//! of the disk pays for all. Within the transaction each write reads, compares and writes for itself; one
//! that is refused or fails leaves the others be; where one ends the transaction for all (a full disk), the
//! others are carried out again without it. Reads see the last commit of whichever process. They run on the
//! same thread, and wait for a commit of this process, but for no lock of another. A call whose caller has
//! gone before its turn is skipped.
//!
//! **Documents** are such writes, too, in tables of their own, with a savepoint for each batch: one that
//! fails half-way leaves nothing behind, and the others of its transaction stand. A file from before there
//! were documents gets the tables when it is opened; versions of this program from that time then refuse to
//! open it, and those that have it open go on.
//!
//! **Never early.** Nothing ends a record but a write. A writer stamps each record with boot time, boot id
//! and time namespace; an age is proven only to a reader of the same boot and the same namespace, whose clock
//! is the writer's own, and only if the stamp is not in the future. Late by: nothing where an age is proven,
//! else the observer's own wait of one TTL. Elsewhere than on Linux no age is proven.
//!
//! **Errors.**
//!
//! | SQLite says | before `COMMIT` | at `COMMIT` | to a read |
//! |---|---|---|---|
//! | `BUSY`, `LOCKED`, `PROTOCOL`, for longer than a second | `NotApplied` | `NotApplied` | `Unavailable` |
//! | `FULL` | `NotApplied` | `NotApplied`: the frame that commits is written last | `Unavailable` |
//! | `READONLY`, `PERM`, `AUTH` | `Fatal` | `Fatal` | `Fatal` |
//! | `CORRUPT`, `NOTADB`, a row that makes no sense | `Fatal` | `Unknown` | `Fatal` |
//! | `ERROR` (a table is missing), `MISMATCH`, `CONSTRAINT`, `MISUSE`, `TOOBIG` | `Fatal` | `Unknown` | `Fatal` |
//! | `IOERR`, `NOMEM`, `CANTOPEN`, `INTERRUPT`, any other | `NotApplied` | `Unknown` | `Unavailable` |
//! | file, `-wal` or `-shm` deleted or replaced while open | `Replaced` | `Replaced` | `Replaced` |
//! | the thread has ended | `Unknown` | `Unknown` | `Unavailable` |
//!
//! What fails before `COMMIT` was never committed and is rolled back: certainly not applied. At `COMMIT`, a
//! failed sync may leave a whole transaction in the log, which a crash of all processes would bring back:
//! unknown.
//!
//! **What it can't do.** A process that is stopped (`SIGSTOP`) in the middle of a transaction keeps the write
//! lock, and everybody's renewals wait until it goes on or ends; a leader is ended by its deadman. Deleting
//! or replacing the file, its `-wal` or its `-shm` while they are in use makes a second storage, and whoever
//! opens the new one can lead at once. Every handle on the old one looks before each read, before each
//! transaction and after each commit whether its files are still those that their paths lead to, and answers
//! `Replaced` from then on, by which a leader is lost at once. So a leader works on beside a new one until
//! its next renewal (0.25 TTL) and for as long as its work takes to stop (0.15 TTL at most).

mod driver;
mod errors;
mod open;
mod rows;

pub use driver::SqliteStorage;
pub use open::{OpenError, OpenOptions};

/// Refuses a place where a database would not be opened or created. Changes nothing.
pub(crate) fn check_place(path: &std::path::Path, options: OpenOptions) -> Result<(), OpenError> {
    open::check_place(path, options)
}
