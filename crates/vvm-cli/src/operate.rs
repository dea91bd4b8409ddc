//! Requests of operators to candidates and leaders: `vvm pause`, `vvm resume`, `vvm step-down`.

mod occupied;
mod pause;
mod request;
mod step_down;

pub(crate) use pause::{pause, resume};
pub(crate) use request::{Refusal, conclude};
pub(crate) use step_down::step_down;
