//! [`GuardianSilent`]: why a leadership that was won is handed back before the command starts.

/// The guardian did not confirm the kill deadline, so the command would not be contained.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the guardian does not answer (stopped by Ctrl-Z?), so that the command would not be contained")]
pub(super) struct GuardianSilent;
