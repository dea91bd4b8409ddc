//! Driver `mem`: in the memory of this process, for tests and single-process use.
//!
//! A [`MemDatabase`] is the data; [`MemStorage`] handles to it can be opened, closed and reopened as if each
//! belonged to another process. Everything is lost with the last of them, and with it every epoch; what keeps
//! epochs rising then is the wall clock's share in them.
//!
//! A batch of documents is one step under the same lock. A slot that has none costs nothing for them.
//!
//! The age of a record is always proven: writer and reader share the database's clock. A record is taken over
//! as soon as its TTL has passed, never earlier (I5), with no bound to add.

mod driver;
mod errors;
mod open;
mod rows;

pub use driver::MemStorage;
pub use open::MemDatabase;
