//! What an operator asks of those who campaign and lead: `vvm pause`, `vvm resume`, `vvm step-down`.
//!
//! What lives here: opening the storage for it, which creates nothing, and how such a command ends. Each command has a file
//! of its own. What follows from a request is in `host/gate.rs` and `host/heed.rs`.

mod pause;
mod slots;
mod step_down;

pub(crate) use pause::{pause, resume};
pub(crate) use step_down::step_down;

use crate::{announce::say, async_runtime, cli::exit, shortage::Shortage};
use clock::{Clock, SystemClock, SystemWallClock, WallClock as _};
use ielections::{Entropy as _, Incarnation, OsEntropy, ReadError, TtlStorage as _, WriteError};
use std::{
    io::{self, Write as _},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};
use vvm_storage::{Ask, ClusterName, ElectionsTtlStorage};

/// Why a request came to nothing, or not to what was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("--storage: {0}")]
    Open(#[from] vvm_storage::OpenError),
    #[error("--storage {0}: there is no such storage yet: the first `vvm run` creates it")]
    NoStorage(String),
    #[error("nobody has ever campaigned for {name} in {storage}: check --name")]
    UnknownName { name: String, storage: String },
    #[error("{0}")]
    Misuse(String),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    System(Shortage),
    #[error("can't write: {0}")]
    Output(io::Error),
    /// Nothing has happened.
    #[error("{0}")]
    Refused(String),
    /// It has begun, and has not (yet) come to what was asked for.
    #[error("{0}")]
    Unfinished(String),
}

impl From<io::Error> for Refusal {
    fn from(cause: io::Error) -> Self {
        Self::System(cause.into())
    }
}

impl Refusal {
    fn status(&self) -> u8 {
        match self {
            Self::Open(cause) if cause.is_misuse() => exit::MISUSE,
            Self::Open(cause) if cause.is_of_system() => exit::SYSTEM,
            Self::Open(_) | Self::Read(_) | Self::Write(_) => exit::STORAGE,
            Self::Misuse(_) => exit::MISUSE,
            Self::NoStorage(_) | Self::UnknownName { .. } => exit::UNKNOWN,
            Self::System(_) | Self::Output(_) => exit::SYSTEM,
            Self::Refused(_) => exit::NOT_ACQUIRED,
            Self::Unfinished(_) => exit::UNFINISHED,
        }
    }
}

/// A storage, opened to ask something of those who share it.
pub(crate) struct Desk {
    pub(crate) storage: ElectionsTtlStorage,
    url: String,
    pub(crate) name: String,
    cluster: ClusterName,
    clock: Arc<dyn Clock>,
    entropy: OsEntropy,
}

/// Between two looks at what has come of a request.
const LOOK: Duration = Duration::from_millis(100);

impl Desk {
    /// What tells a new request from every other.
    fn ask(&self) -> Ask {
        let mut bytes = [0; 16];
        self.entropy.fill(&mut bytes);
        Ask {
            incarnation: Incarnation::from_bytes(bytes),
            since_unix_epoch: SystemWallClock.since_unix_epoch(),
        }
    }

    /// Tells whoever waits. That nobody reads it any more changes nothing.
    fn tell(&self, line: impl std::fmt::Display) {
        let _ = writeln!(io::stdout().lock(), "{}: {line}", self.name);
    }
}

/// Opens the storage, does it, and says what came of it.
pub(crate) fn conclude(
    url: &str,
    name: &str,
    act: impl AsyncFnOnce(&Desk) -> Result<(), Refusal>,
) -> ExitCode {
    let done = async_runtime::start().map_err(Refusal::from).and_then(|runtime| {
        runtime.block_on(async {
            let clock = Arc::new(SystemClock::start()?) as Arc<dyn Clock>;
            if !vvm_storage::url::exists(url)? {
                return Err(Refusal::NoStorage(url.to_owned()));
            }
            let storage = ElectionsTtlStorage::new(vvm_storage::open(url, Arc::clone(&clock)).await?);
            let (url, name, cluster) = (url.to_owned(), name.to_owned(), ClusterName::from(name));
            let desk = Desk { storage, url, name, cluster, clock, entropy: OsEntropy::default() };
            let done = act(&desk).await;
            desk.storage.close().await;
            done
        })
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            say!("{refusal}");
            refusal.status().into()
        }
    }
}
