//! The worker: the user's command, and everything that it starts.
//!
//! - [`shim`]: the worker's process before it becomes the command; ties its life to the host's.
//! - [`environment`]: what the command finds in its environment.
//! - [`aide`]: what runs beside it.
//! - [`hold`]: how the host has hold of it, and [`reins`]: how signals get to it.
//! - [`spawn`](mod@spawn): starting one, and [`refusal`]: why not.
//! - [`supervise`](mod@supervise): from its start until its last descendant is reaped.

pub(crate) mod aide;
pub(crate) mod environment;
pub(crate) mod hold;
mod refusal;
pub(crate) mod reins;
pub(crate) mod shim;
pub(crate) mod spawn;
pub(crate) mod supervise;
