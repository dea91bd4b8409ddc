//! What operators ask of candidates and leaders, heeded: `vvm pause` and `vvm step-down`, seen from the other side.
//!
//! What lives here: the [`Lookout`], which sees requests with each scan; the [`Gate`], which keeps a candidate from claiming
//! and from working when it is not to; [`Heeding`], which answers. What does not: how work is stopped, which is each host's
//! own, and the requests themselves (`vvm_storage::Requests`).

mod gate;
mod heed;
mod lookout;

pub(crate) use gate::Gate;
pub(crate) use heed::Heeding;
pub(crate) use lookout::Lookout;

use ielections::Holder;

/// Why a leadership is to be given up that could be kept.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Demand {
    /// Nobody shall lead.
    #[error("paused by {by}")]
    Paused {
        /// Who said so, and why.
        by: String,
    },
    /// It was not to be found out whether nobody shall lead, so that nothing was started.
    #[error("could not see whether it is paused: {cause}")]
    PauseUnseen {
        /// What the storage said.
        cause: String,
    },
    /// An operator asked for it.
    #[error("asked to step down{}", to.as_ref().map(|to| format!(" in favour of {to}")).unwrap_or_default())]
    SteppingDown {
        /// Who shall come next; `None` for anybody else.
        to: Option<Holder>,
    },
}

impl Demand {
    /// One word, for logs.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Paused { .. } => "paused",
            Self::PauseUnseen { .. } => "pause_unseen",
            Self::SteppingDown { .. } => "stepping_down",
        }
    }

    /// Who paused, where that is why.
    pub(crate) fn by(&self) -> Option<&str> {
        match self {
            Self::Paused { by } => Some(by),
            Self::PauseUnseen { .. } | Self::SteppingDown { .. } => None,
        }
    }

    /// Who shall come next, where somebody was named.
    pub(crate) fn to(&self) -> Option<&str> {
        match self {
            Self::SteppingDown { to } => to.as_ref().map(Holder::as_str),
            Self::Paused { .. } | Self::PauseUnseen { .. } => None,
        }
    }
}
