//! [`FaultyStorage`]: any storage, behind a network that misbehaves on demand.
//!
//! What lives here: which fault strikes which call ([`Plan`](plan)), writes that are under way
//! ([`Network`](network)), and what really happened ([`Counts`]). Deterministic: no real time, no thread, no
//! task, and randomness from a seed.
//!
//! What does not: a mock of a database's own protocol. Drivers are tested against real servers.

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
