use crate::{
    exit_status,
    local_wakeups::{LocalDir, WakeSender},
    resource_limit::ResourceLimit,
};
use ielections::{ReadError, Slot, TtlStorage as _};
use std::{io, num::NonZeroU32, sync::Arc};
use vvm_clock::{Clock, SystemClock};
use vvm_storage::{ClusterName, ElectionKey, ElectionsTtlStorage, SlotNumber, StorageUrl};

/// What a storage is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// To read. Works on a server where this user may only read; a SQLite file must be writable.
    Read,
    /// To read and write.
    ReadAndWrite,
}

/// An existing storage that processes can share, opened for one name in it.
#[derive(Debug)]
pub struct StorageInspector {
    /// The storage, open.
    pub storage: ElectionsTtlStorage,
    /// The name that is led.
    pub name: String,
    /// The name as part of each key.
    pub cluster: ClusterName,
    /// The clock of this process.
    pub clock: Arc<dyn Clock>,
    url: StorageUrl,
}

/// Why an operator command failed.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The storage can't be opened.
    #[error("--storage: {0}")]
    Open(#[from] vvm_storage::OpenError),
    /// Other processes can't share the storage.
    #[error("--storage {0}: only the process that has it open can see into it")]
    NotShared(StorageUrl),
    /// The storage does not exist.
    #[error(
        "--storage {0}: there is no such storage yet: `vvm init-storage` or the first `vvm run` creates it"
    )]
    NoStorage(StorageUrl),
    /// No process has campaigned for the name.
    #[error("no candidate has ever campaigned for {name} in {storage}: check --name")]
    UnknownName {
        /// The name.
        name: String,
        /// The storage's URL.
        storage: StorageUrl,
    },
    /// A read failed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The operating system refused.
    #[error(transparent)]
    System(ResourceLimit),
    /// The output can't be written.
    #[error("can't write: {0}")]
    Output(io::Error),
}

impl InspectError {
    /// Wraps a refusal by the operating system.
    pub fn system(cause: io::Error) -> Self {
        Self::System(cause.into())
    }

    /// Returns the exit status.
    pub fn status(&self) -> u8 {
        match self {
            Self::Open(cause) => exit_status::of_open_error(cause),
            Self::Read(_) => exit_status::STORAGE,
            Self::NotShared(_) => exit_status::MISUSE,
            Self::NoStorage(_) | Self::UnknownName { .. } => exit_status::UNKNOWN,
            Self::System(_) | Self::Output(_) => exit_status::SYSTEM,
        }
    }
}

impl StorageInspector {
    /// Opens the storage at `url` for `name`. Cancel safe.
    pub async fn open(url: &str, name: &str, purpose: Purpose) -> Result<Self, InspectError> {
        let clock = Arc::new(SystemClock::start().map_err(InspectError::system)?) as Arc<dyn Clock>;
        if !vvm_storage::url::shared_between_processes(url)? {
            return Err(InspectError::NotShared(url.into()));
        }
        if !vvm_storage::url::exists(url)? {
            return Err(InspectError::NoStorage(url.into()));
        }
        let opened = match purpose {
            Purpose::Read => vvm_storage::url::open_read_only(url, Arc::clone(&clock)).await?,
            Purpose::ReadAndWrite => vvm_storage::open(url, Arc::clone(&clock)).await?,
        };
        let (url, name, cluster) = (StorageUrl::from(url), name.to_owned(), ClusterName::from(name));
        Ok(Self { storage: ElectionsTtlStorage::new(opened), name, cluster, clock, url })
    }

    /// Wraps a storage that is open already, for a simulation.
    #[cfg(feature = "testing")]
    pub fn on_storage(storage: ElectionsTtlStorage, name: &str, clock: Arc<dyn Clock>) -> Self {
        let (name, cluster) = (name.to_owned(), ClusterName::from(name));
        Self { storage, name, cluster, clock, url: StorageUrl::from("") }
    }

    /// Wakes this machine's candidates to look at the storage at once. One that is not woken looks within its poll.
    pub fn wake_candidates(&self, local_dir: Option<&LocalDir>) {
        if let Ok(candidates) = WakeSender::to(local_dir.unwrap_or(&LocalDir::Usual), &self.name) {
            candidates.wake();
        }
    }

    /// Returns the number of slots, if a candidate has settled it, and the keys of [`keys_of`](Self::keys_of).
    pub async fn keys(&self) -> Result<(Option<NonZeroU32>, Vec<ElectionKey>), ReadError> {
        let settled = self.storage.slot_count(&self.cluster).await?;
        Ok((settled, self.keys_of(settled)))
    }

    /// Returns the keys of so many slots; of the first one alone if no candidate has settled their number.
    pub fn keys_of(&self, settled: Option<NonZeroU32>) -> Vec<ElectionKey> {
        let slots = SlotNumber::all(settled.unwrap_or(NonZeroU32::MIN));
        slots.map(|slot| ElectionKey { cluster: self.cluster.clone(), slot }).collect()
    }

    /// Returns the keys of all slots. Fails, too, if no candidate has ever campaigned for the name.
    pub async fn slots(&self) -> Result<Vec<ElectionKey>, InspectError> {
        let (settled, keys) = self.keys().await?;
        if settled.is_none() {
            self.check_known(&self.storage.scan(&keys).await?)?;
        }
        Ok(keys)
    }

    /// Fails with [`InspectError::UnknownName`] if none of `slots` was ever led.
    pub fn check_known(&self, slots: &[Slot]) -> Result<(), InspectError> {
        if !self.is_unknown(slots) {
            return Ok(());
        }
        Err(InspectError::UnknownName { name: self.name.clone(), storage: self.url.clone() })
    }

    /// Returns whether none of `slots` was ever led.
    pub fn is_unknown(&self, slots: &[Slot]) -> bool {
        slots.iter().all(|slot| slot.last_epoch().is_none())
    }
}
