//! The part of `vvm` that `evidence/check` runs in all orders of events: decisions as values, without I/O. It is
//! no interface for other programs, and changes with each version. `vvm-host` is the library.
#![forbid(unsafe_code)]

pub mod warm;
