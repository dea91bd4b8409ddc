//! What a host decides about its warm app, and what both say. `run/warm.rs` of the program does it.

pub mod machine;
pub mod protocol;
