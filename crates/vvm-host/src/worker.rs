//! The worker: the user's command, and everything that it starts.
//!
//! - [`shim`]: the worker's process before it becomes the command; ties its life to the host's.
//! - [`environment`]: what the command finds in its environment.
//! - [`spawn`](mod@spawn): starting one, and [`refusal`]: why not.
//! - [`supervise`](mod@supervise): from its start until its last descendant is reaped.

pub(crate) mod environment;
mod refusal;
pub(crate) mod shim;
pub(crate) mod spawn;
pub(crate) mod supervise;
