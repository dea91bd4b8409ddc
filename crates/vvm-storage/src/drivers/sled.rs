//! Driver `sled`: a folder that one process uses, for several VVMs in one process, or for one that must keep
//! its epoch over a restart. Processes on one machine share a file of [`sqlite`](crate::url) instead.
//!
//! **Calls.** One thread, `vvm-sled`, owns the database; all handles of this process on one folder share it.
//! It carries out all waiting calls, writes and syncs the log, and only then answers them, reads included. So
//! every answer, of a read too, survives a power cut. sled on Linux does not flush the disk's cache; this
//! driver does. A call whose caller has gone before its turn is skipped.
//!
//! **Documents** of all partitions are in one tree, because sled writes a batch to one tree as a whole. A
//! document has at most 4 KiB: sled moves larger values into files of their own, which it does not sync.
//!
//! **Never early.** Only a write ends a record. The age of a record is proven, on the clock of the process
//! that wrote it, while that process keeps a handle open. Afterwards an observer waits one TTL of its own.
//!
//! **Errors.**
//!
//! | error of sled | of a write | of a read |
//! |---|---|---|
//! | `Io` before anything was changed | `NotApplied` | `Unavailable` |
//! | `Corruption`, a malformed row, before anything was changed | `Fatal` | `Fatal` |
//! | `CollectionNotFound`, `Unsupported`, `ReportableBug`, before anything was changed | `Fatal` | `Fatal` |
//! | any while it writes | `Unknown` | – |
//! | any while it syncs | `Unknown` | `Unavailable`, `Fatal` as above |
//! | the thread has ended | `Unknown` | `Unavailable` |
//!
//! **Limits.** A second process is refused, because sled locks its folder. The folder must be on a local
//! disk. The library keeps an idle thread, `sled-io`, until the process ends.

mod driver;
mod errors;
mod open;
mod rows;

pub use driver::SledStorage;
pub use open::OpenError;
