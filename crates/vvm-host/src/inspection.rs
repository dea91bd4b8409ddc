//! [`Desk`]: a storage, opened to look into it or to ask something of those who share it. Opening creates nothing, and what
//! was opened is closed in the end. Why that, or what came after, did not work.

use crate::{announce::say, async_runtime, cli::exit, shortage::Shortage};
use ielections::{ReadError, Slot, TtlStorage as _};
use std::{io, num::NonZeroU32, process::ExitCode, sync::Arc};
use vvm_clock::{Clock, SystemClock};
use vvm_storage::{ClusterName, ElectionKey, ElectionsTtlStorage, SlotNumber};

/// What somebody comes for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// To look: where nothing may be written, to read.
    Look,
    /// To write, too.
    Ask,
}

/// A storage that is there and that processes share, opened for one name in it.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) storage: ElectionsTtlStorage,
    pub(crate) name: String,
    pub(crate) cluster: ClusterName,
    pub(crate) clock: Arc<dyn Clock>,
    url: String,
}

/// Why it ended, if nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InspectError {
    #[error("--storage: {0}")]
    Open(#[from] vvm_storage::OpenError),
    #[error("--storage {0}: only the process that has it open can see into it")]
    NotShared(String),
    #[error("--storage {0}: there is no such storage yet: the first `vvm run` creates it")]
    NoStorage(String),
    #[error("nobody has ever campaigned for {name} in {storage}: check --name")]
    UnknownName { name: String, storage: String },
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    System(Shortage),
    #[error("can't write: {0}")]
    Output(io::Error),
}

impl InspectError {
    /// What the operating system refused.
    pub(crate) fn system(cause: io::Error) -> Self {
        Self::System(cause.into())
    }

    /// Says it, and with which status to exit. A reader that has seen enough, as `head`, is no error.
    pub(crate) fn conclude(&self) -> ExitCode {
        match self {
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
            _ => say!("{self}"),
        }
        self.status().into()
    }

    /// The status for it.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::Open(cause) if cause.is_misuse() => exit::MISUSE,
            Self::Open(cause) if cause.is_of_system() => exit::SYSTEM,
            Self::Open(_) | Self::Read(_) => exit::STORAGE,
            Self::NotShared(_) => exit::MISUSE,
            Self::NoStorage(_) | Self::UnknownName { .. } => exit::UNKNOWN,
            Self::System(_) | Self::Output(_) => exit::SYSTEM,
        }
    }
}

/// Opens the storage at `url`, does `act` with it, and closes it, on a runtime of its own.
///
/// # Errors
/// [`InspectError`], as part of whatever error `act` has.
pub(crate) fn at_desk<T, E: From<InspectError>>(
    (url, name): (&str, &str),
    purpose: Purpose,
    act: impl AsyncFnOnce(&Desk) -> Result<T, E>,
) -> Result<T, E> {
    let runtime = async_runtime::start().map_err(InspectError::system)?;
    runtime.block_on(async {
        let desk = Desk::open(url, name, purpose).await?;
        let done = act(&desk).await;
        // Whatever came of it: nothing of ours stays open.
        desk.storage.close().await;
        done
    })
}

impl Desk {
    async fn open(url: &str, name: &str, purpose: Purpose) -> Result<Self, InspectError> {
        let clock = Arc::new(SystemClock::start().map_err(InspectError::system)?) as Arc<dyn Clock>;
        if !vvm_storage::url::shared_between_processes(url)? {
            return Err(InspectError::NotShared(url.to_owned()));
        }
        if !vvm_storage::url::exists(url)? {
            return Err(InspectError::NoStorage(url.to_owned()));
        }
        let opened = match purpose {
            Purpose::Look => vvm_storage::url::open_to_look(url, Arc::clone(&clock)).await?,
            Purpose::Ask => vvm_storage::open(url, Arc::clone(&clock)).await?,
        };
        let (url, name, cluster) = (url.to_owned(), name.to_owned(), ClusterName::from(name));
        Ok(Self { storage: ElectionsTtlStorage::new(opened), name, cluster, clock, url })
    }

    /// How many slots there are, if somebody has settled that, and their keys.
    ///
    /// # Errors
    /// When the storage fails.
    pub(crate) async fn keys(&self) -> Result<(Option<NonZeroU32>, Vec<ElectionKey>), ReadError> {
        let settled = self.storage.slot_count(&self.cluster).await?;
        Ok((settled, self.keys_of(settled)))
    }

    /// The keys of so many slots. A program that leads a slot of its own choice need not have settled how many there are.
    pub(crate) fn keys_of(&self, settled: Option<NonZeroU32>) -> Vec<ElectionKey> {
        let slots = SlotNumber::all(settled.unwrap_or(NonZeroU32::MIN));
        slots.map(|slot| ElectionKey { cluster: self.cluster.clone(), slot }).collect()
    }

    /// The keys of all slots of a name that somebody has campaigned for.
    ///
    /// # Errors
    /// When nobody ever has, and when the storage fails.
    pub(crate) async fn slots(&self) -> Result<Vec<ElectionKey>, InspectError> {
        let (settled, keys) = self.keys().await?;
        if settled.is_none() {
            self.check_known(&self.storage.scan(&keys).await?)?;
        }
        Ok(keys)
    }

    /// Whether any of the slots of a name whose count nobody has settled was ever led.
    ///
    /// # Errors
    /// [`InspectError::UnknownName`].
    pub(crate) fn check_known(&self, slots: &[Slot]) -> Result<(), InspectError> {
        if slots.iter().any(|slot| slot.last_epoch().is_some()) {
            return Ok(());
        }
        Err(InspectError::UnknownName { name: self.name.clone(), storage: self.url.clone() })
    }
}
