//! The worker: the user's command.

pub(crate) mod environment;
