//! Opens a storage for one operator command, on a runtime of its own.

use crate::{
    announce::{printable, say},
    exit, runtime,
};
use ielections::{Entropy as _, Incarnation, OsEntropy, ReadError, TtlStorage as _, WriteError};
use std::{
    fmt,
    io::{self, Write as _},
    num::NonZeroU32,
    process::ExitCode,
    time::Duration,
};
use vvm_clock::{SystemWallClock, WallClock as _};
use vvm_host::operate::{InspectError, Purpose, StorageInspector};
use vvm_storage::{Ask, ElectionKey};

pub(crate) fn inspect<T, E: From<InspectError>>(
    (url, name): (&str, &str),
    purpose: Purpose,
    act: impl AsyncFnOnce(&StorageInspector) -> Result<T, E>,
) -> Result<T, E> {
    let done = runtime::run(async {
        let inspector = StorageInspector::open(url, name, purpose).await?;
        let done = act(&inspector).await;
        inspector.storage.close().await;
        done
    });
    done.map_err(InspectError::system)?
}

/// As `inspect`. Prints the error, and returns the exit status: that of the error, or that of `act`.
pub(crate) fn operate(
    of: (&str, &str),
    purpose: Purpose,
    act: impl AsyncFnOnce(&StorageInspector) -> Result<u8, InspectionError>,
) -> ExitCode {
    inspect(of, purpose, act).unwrap_or_else(|refusal| refusal.conclude()).into()
}

pub(crate) const INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug, thiserror::Error)]
pub(crate) enum InspectionError {
    #[error(transparent)]
    Inspect(#[from] InspectError),
    #[error("{1}")]
    Status(u8, String),
}

impl From<io::Error> for InspectionError {
    fn from(cause: io::Error) -> Self {
        InspectError::system(cause).into()
    }
}

impl From<ReadError> for InspectionError {
    fn from(cause: ReadError) -> Self {
        InspectError::Read(cause).into()
    }
}

impl From<WriteError> for InspectionError {
    fn from(cause: WriteError) -> Self {
        Self::new(exit::STORAGE, cause)
    }
}

impl InspectionError {
    pub(crate) fn new(status: u8, why: impl ToString) -> Self {
        Self::Status(status, why.to_string())
    }

    pub(crate) fn unconfirmed(cause: impl fmt::Display) -> Self {
        Self::new(exit::UNFINISHED, format!("{cause}. The request may be in force: see `vvm status`"))
    }

    /// Prints it, and returns the exit status. A closed pipe, as of `head`, is no error.
    pub(crate) fn conclude(&self) -> u8 {
        if let Self::Inspect(InspectError::Output(cause)) = self
            && cause.kind() == io::ErrorKind::BrokenPipe
        {
            return 0;
        }
        say!("{self}");
        match self {
            Self::Inspect(refusal) => refusal.status(),
            Self::Status(status, _) => *status,
        }
    }
}

pub(crate) fn slot_of(
    keys: Vec<ElectionKey>,
    number: NonZeroU32,
    name: &str,
) -> Result<ElectionKey, InspectionError> {
    let count = keys.len();
    let found = keys.into_iter().find(|key| key.slot.get() == number);
    found.ok_or_else(|| InspectionError::new(exit::MISUSE, format!("--slot {number}: {name} has {count}")))
}

pub(crate) fn new_ask() -> Ask {
    let mut bytes = [0; 16];
    OsEntropy::default().fill(&mut bytes);
    Ask { incarnation: Incarnation::from_bytes(bytes), since_unix_epoch: SystemWallClock.since_unix_epoch() }
}

pub(crate) fn print(inspector: &StorageInspector, line: impl fmt::Display) {
    let line = printable(&format!("{}: {line}", inspector.name));
    let _ = writeln!(io::stdout().lock(), "{line}");
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use async_trait::async_trait;
    use futures_util::future::BoxFuture;
    use ielections::Slot;
    use std::sync::{Arc, Mutex};
    use vvm_storage::{ElectionsTtlStorage, Partition, SysVvmStorage, testing::Layer};

    type Interruption = BoxFuture<'static, Result<(), ReadError>>;

    /// A storage in which this happens before a read, and may fail it.
    pub(crate) struct Interrupted {
        beneath: Arc<dyn SysVvmStorage>,
        next: Mutex<(u32, Option<Interruption>)>,
    }

    impl Interrupted {
        /// Reads count from 1.
        pub(crate) fn at(
            read: u32,
            beneath: Arc<dyn SysVvmStorage>,
            by: impl Future<Output = Result<(), ReadError>> + Send + 'static,
        ) -> ElectionsTtlStorage {
            let next = Mutex::new((read, Some(Box::pin(by) as Interruption)));
            ElectionsTtlStorage::new(Arc::new(Self { beneath, next }).into_storage())
        }

        async fn pass(&self) -> Result<(), ReadError> {
            let due = {
                let mut next = self.next.lock().unwrap();
                next.0 = next.0.saturating_sub(1);
                if next.0 == 0 { next.1.take() } else { None }
            };
            if let Some(due) = due { due.await } else { Ok(()) }
        }
    }

    impl fmt::Debug for Interrupted {
        fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.beneath.fmt(out)
        }
    }

    #[async_trait]
    impl Layer for Interrupted {
        fn beneath(&self) -> &dyn SysVvmStorage {
            &*self.beneath
        }

        async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
            self.pass().await?;
            self.beneath.read(at).await
        }

        async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError> {
            self.pass().await?;
            self.beneath.setting(at).await
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "it stands for a look-up of a name")]
    fn command_ends_although_a_call_blocks() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}?allow=overlay", folder.path().join("leader.db").display());
        runtime::start().unwrap().block_on(vvm_storage::init_storage(&url)).unwrap();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let blocked = inspect((&url, "a"), Purpose::ReadAndWrite, async |_| {
            let began = std::sync::mpsc::channel();
            let blocked = tokio::task::spawn_blocking(move || {
                began.0.send(()).unwrap();
                ends.recv_timeout(harness::HANG_LIMIT)
            });
            began.1.recv().unwrap();
            Ok::<_, InspectError>(blocked)
        });
        assert!(!blocked.unwrap().is_finished());
        end.send(()).unwrap();
    }

    #[test]
    fn quotes_stay_and_control_sequences_are_escaped() {
        let escaped = "can't run \"a\\u{1b}[2J\"";
        assert_eq!([printable("can't run \"a\u{1b}[2J\""), printable(escaped)], [escaped; 2]);
    }
}
