//! [`FaultyStorage`]: a storage behind a network with planned or random faults. Deterministic: no real time,
//! no thread, no task, and randomness from a seed. It does not mock the protocol of a database: drivers are
//! tested with real servers.

mod network;
mod storage;
#[cfg(test)]
mod tests;

pub use network::{Fault, Injected, Verb};
pub use storage::Counts;
pub use storage::FaultyStorage;
pub use storage::Odds;
