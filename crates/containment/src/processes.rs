//! Other processes: who descends from this one, and how they end.
//!
//! What lives here: [`Family`], the descendants as `/proc` shows them; [`reap()`].
//!
//! What does not: starting processes (`launch`), killing them all (`sweep`), and when (`guard`, `supervise`).

mod family;
mod proc_fs;
mod reap;

pub use family::{Family, Member};
pub use proc_fs::{ForeignProcFs, own_group};
pub(crate) use proc_fs::{group_of, own_session};
pub use reap::{Ended, Reap, Reaped, reap};
pub(crate) use reap::{has_ended, wait_for_any};
