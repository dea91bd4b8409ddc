//! Driver `sled`: a folder, and one process that has it. Several VVMs in one process, or one VVM that must
//! keep its epoch over a restart; processes that share a machine take [`sqlite`](crate::url) instead.
//!
//! **How the contract is kept.** One thread, `vvm-sled`, owns the database; every handle of this process on
//! the same folder shares it. It takes whatever calls are waiting, carries them out one after another, writes
//! and syncs the log, and answers them only then, reads included: what was answered survives a power cut, and
//! nothing is ever shown that might not. (On Linux sled itself does not ask the disk to empty its cache; this
//! driver does.) A call whose caller has gone before its turn is skipped.
//!
//! **Documents** of all partitions are one tree, to which sled writes a batch as a whole; sync and thread are
//! the same. A document is small (4 KiB): what sled would move into a file of its own, nobody syncs.
//!
//! **Never early.** Nothing ends a record but a write. The age of a record is proven as long as the process
//! that wrote it keeps a handle open, by its own clock; after that, none is, and an observer waits one TTL of
//! its own.
//!
//! **Errors.**
//!
//! | sled says | to a write | to a read |
//! |---|---|---|
//! | `Io` before anything was changed | `NotApplied` | `Unavailable` |
//! | `Corruption`, a row that makes no sense, before anything was changed | `Fatal` | `Fatal` |
//! | `CollectionNotFound`, `Unsupported`, `ReportableBug`, before anything was changed | `Fatal` | `Fatal` |
//! | anything while it writes | `Unknown` | – |
//! | anything while it syncs | `Unknown` | `Unavailable`, `Fatal` as above |
//! | the thread has ended | `Unknown` | `Unavailable` |
//!
//! **What it can't do.** A second process is refused (sled locks its folder). The folder must be on a local
//! disk. The library keeps one idle thread of its own, `sled-io`, until the process ends.

mod driver;
mod errors;
mod open;
mod rows;

pub use driver::SledStorage;
pub use open::OpenError;
