//! Driver `mem`: in the memory of this process, for tests and single-process use.
//!
//! A [`MemDatabase`] is the data, which is lost with its last [`MemStorage`] handle. The age of a record is
//! always proven, because writer and reader share the database's clock: a record can be taken over as soon
//! as its TTL has passed, and never earlier (I5).

mod driver;
mod errors;
mod open;
mod rows;

pub use driver::MemStorage;
pub use open::MemDatabase;
