//! Other processes: who descends from this one, and how they end.
//!
//! What lives here: [`Family`], the descendants as `/proc` shows them; [`reap()`].
//!
//! What does not: starting processes (`stage`, `worker`), killing them all (`containment`), and when (`guardian`, `host`).

mod family;
mod proc_fs;
mod reap;

pub(crate) use family::Family;
pub(crate) use proc_fs::{ForeignProcFs, group_of, own_group, own_session};
pub(crate) use reap::{Ended, Reap, Reaped, reap, wait_for_any};
