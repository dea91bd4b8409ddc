//! Driver `mem`: in the memory of this process, for tests and single-process use.
//!
//! A [`MemDatabase`] is the data. Its [`MemStorage`] handles can be opened, closed and reopened as if each
//! belonged to another process. The data is lost with the last of them. A new database's epochs still rise,
//! because epochs follow the wall clock.
//!
//! The age of a record is always proven: writer and reader share the database's clock. A record can be taken
//! over as soon as its TTL has passed, and never earlier (I5).

mod driver;
mod errors;
mod open;
mod rows;

pub use driver::MemStorage;
pub use open::MemDatabase;
