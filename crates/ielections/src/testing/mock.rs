//! [`FaultyStorage`]: a storage behind a network with planned or random faults. Deterministic: no real time,
//! no thread, no task, and randomness from a seed. It does not mock the protocol of a database: drivers are
//! tested with real servers.

mod call;
mod counts;
mod documents;
mod fault;
mod network;
mod plan;
mod storage;
mod tamper;
#[cfg(test)]
mod tests;

pub use counts::Counts;
pub use fault::{Fault, Injected, Verb};
pub use plan::Odds;
pub use storage::FaultyStorage;
