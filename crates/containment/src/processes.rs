//! The descendants of this process ([`Family`]), and reaping them ([`reap()`]).

mod family;
mod proc_fs;
mod reap;

pub use family::{Family, Member};
pub use proc_fs::{ForeignProcFs, own_group};
pub(crate) use proc_fs::{group_of, own_session};
pub use reap::{Ended, Reap, Reaped, reap};
pub(crate) use reap::{has_ended, wait_for_any};
