//! Other processes: who descends from this one, and how to end them all.
//!
//! What lives here: [`Family`], the descendants as `/proc` shows them; [`sweep`](sweep()) and [`end_all`], which kill and
//! reap until none is left; [`reap()`].
//!
//! What does not: starting processes (`stage`, `worker`), and when to end them (`guardian`, `host`).
//!
//! Why it works: this process is a sub-reaper, so whatever its descendants leave behind becomes its own child, whatever
//! session, group, or user they moved to. No child left therefore means no descendant left.

mod family;
mod proc_fs;
mod reap;
mod sweep;

pub(crate) use family::Family;
pub(crate) use proc_fs::{ForeignProcFs, group_of, own_group, own_session};
pub(crate) use reap::{Ended, Reap, Reaped, reap};
pub(crate) use sweep::{Complaint, Sweep, end_all, sweep};
