//! The only error in memory: a call of a closed handle, which is `Fatal`.

pub(super) use crate::drivers::closed::Closed;
