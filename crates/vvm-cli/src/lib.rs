//! The part of `vvm` that `evidence/check` runs in all orders of events: decisions as values, without I/O. It is
//! no interface for other programs, and changes with each version. `vvm-host` is the library.
#![forbid(unsafe_code)]

/// What a host decides about its warm app, and what both say. `run/warm.rs` of the program carries it out.
pub mod warm {
    pub mod machine;
    pub mod protocol;
}
