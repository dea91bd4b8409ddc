//! The sysvvm keyspace: one partition per election key, and one driver per database behind one trait.
//!
//! - [`SysVvmStorage`]: what a new backend implements.
//! - [`ElectionsTtlStorage`]: the storage of elections on top of it; owns every key prefix.
#![forbid(unsafe_code)]

mod partition;
mod sysvvm;

pub use partition::Partition;
pub use sysvvm::SysVvmStorage;
