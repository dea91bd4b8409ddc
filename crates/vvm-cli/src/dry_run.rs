//! `--dry-run`: what would be done, without doing any of it.
//!
//! What lives here: looking at the storage, where nothing is created or settled, and the times that follow
//! from the TTL. What does not: what only `vvm run` has, as a level of containment (`guardian`).

use crate::{async_runtime, cli::exit};
use ielections::{Holder, ReadError, Slot, Timing, Ttl, TtlStorage as _, timing::Jitter};
use std::{fmt, io, num::NonZeroU32, sync::Arc, time::Duration};
use vvm_clock::{Clock, Instant, SystemClock};
use vvm_host::operate::ResourceLimit;
use vvm_storage::{ClusterName, ElectionKey, ElectionsTtlStorage, OpenError, SettleError, SlotNumber};

/// Who would campaign for what.
#[derive(Debug)]
pub(crate) struct DryRun<'args> {
    pub(crate) storage: &'args str,
    pub(crate) name: &'args str,
    pub(crate) slots: NonZeroU32,
    pub(crate) ttl: Ttl,
    pub(crate) holder: Holder,
}

/// Why it would be refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProspectError {
    #[error("--storage: {0}")]
    Open(#[from] OpenError),
    #[error(
        "--storage {0}: other processes can't share this storage, so that each of them would lead: use sqlite:PATH"
    )]
    NotShared(String),
    #[error("--ttl {ttl:?} is too short for this storage: at least {least:?}")]
    TtlTooShort { ttl: Duration, least: Duration },
    #[error(transparent)]
    Conflict(SettleError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    System(ResourceLimit),
    #[error("can't write: {0}")]
    Output(io::Error),
}

impl ProspectError {
    /// The exit status of the real thing.
    pub(crate) fn exit_status(&self) -> u8 {
        match self {
            Self::Open(cause) if cause.is_misuse() => exit::MISUSE,
            Self::Open(cause) if cause.is_of_system() => exit::SYSTEM,
            Self::Open(_) | Self::Read(_) => exit::STORAGE,
            Self::NotShared(_) | Self::TtlTooShort { .. } => exit::MISUSE,
            Self::Conflict(_) => exit::CONFLICT,
            Self::System(_) | Self::Output(_) => exit::SYSTEM,
        }
    }
}

/// What a look at the storage shows.
#[derive(Debug)]
enum Outlook {
    /// There is no such storage: the first one to open it creates it.
    NoStorage,
    /// What is in the way may pass, and would be waited for.
    InTheWay(String),
    /// Who leads, and who has paused the name, if somebody has.
    Slots { slots: Vec<(SlotNumber, Slot)>, paused_by: Option<String> },
}

impl DryRun<'_> {
    /// Says what would be done: the lines of `more`, too, each with its name.
    ///
    /// # Errors
    /// [`ProspectError`]: what the real thing would be refused for.
    pub(crate) fn show(&self, more: &[(&str, String)]) -> Result<(), ProspectError> {
        let runtime = async_runtime::start().map_err(|cause| ProspectError::System(cause.into()))?;
        let outlook = runtime.block_on(self.look())?;
        match self.write(&mut io::stdout().lock(), more, &outlook) {
            // A reader that has seen enough, as `head`.
            Err(cause) if cause.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written.map_err(ProspectError::Output),
        }
    }

    async fn look(&self) -> Result<Outlook, ProspectError> {
        if !vvm_storage::url::shared_between_processes(self.storage)? {
            return Err(ProspectError::NotShared(self.storage.into()));
        }
        if !vvm_storage::url::exists(self.storage)? {
            vvm_storage::url::check_place(self.storage)?;
            return Ok(Outlook::NoStorage);
        }
        let clock = Arc::new(SystemClock::start().map_err(|cause| ProspectError::System(cause.into()))?);
        let storage = match vvm_storage::open(self.storage, clock as Arc<dyn Clock>).await {
            Ok(storage) => ElectionsTtlStorage::new(storage),
            Err(cause) if cause.is_passing() => return Ok(Outlook::InTheWay(cause.to_string())),
            Err(cause) => return Err(cause.into()),
        };
        let outlook = self.read(&storage).await;
        storage.close().await;
        outlook
    }

    async fn read(&self, storage: &ElectionsTtlStorage) -> Result<Outlook, ProspectError> {
        let (ttl, least) = (self.ttl.get(), storage.limits().min_ttl);
        if ttl < least {
            return Err(ProspectError::TtlTooShort { ttl, least });
        }
        let cluster = ClusterName::from(self.name);
        if let Some(settled) = storage.slot_count(&cluster).await?
            && settled != self.slots
        {
            let differs = SettleError::Differs { cluster, stands: settled, wanted: self.slots };
            return Err(ProspectError::Conflict(differs));
        }
        let numbers = SlotNumber::all(self.slots).collect::<Vec<_>>();
        let keys = numbers.iter().map(|slot| ElectionKey { cluster: cluster.clone(), slot: *slot });
        let (slots, requests) = storage.scan_with_requests(&cluster, &keys.collect::<Vec<_>>()).await?;
        let paused_by = requests.pause.map(|pause| pause.by().escape_debug().to_string());
        Ok(Outlook::Slots { slots: numbers.into_iter().zip(slots).collect(), paused_by })
    }

    fn write(&self, out: &mut dyn io::Write, more: &[(&str, String)], outlook: &Outlook) -> io::Result<()> {
        let mut line = |what: &str, text: &dyn fmt::Display| writeln!(out, "{what:<12} {text}");
        let (name, slots) = (self.name, self.slots);
        line("would lead", &format_args!("{name}, one of {slots} slots, as {}", self.holder))?;
        for (what, text) in more {
            line(what, text)?;
        }
        line("times", &self.times())?;
        line("storage", &self.storage)?;
        match outlook {
            Outlook::NoStorage => line("", &"there is none yet: it would be created"),
            Outlook::InTheWay(what) => line("", &format_args!("{what}; it would be tried again")),
            Outlook::Slots { slots, paused_by } => {
                if let Some(by) = paused_by {
                    line("", &format_args!("paused by {by}: it would wait until `vvm resume`"))?;
                }
                slots.iter().try_for_each(|(number, slot)| {
                    let number = format!("slot {}", number.get());
                    match (slot.entry(), slot.last_epoch()) {
                        (Some(entry), _) => line(
                            &number,
                            &format_args!(
                                "held by {}, epoch {}, TTL {:?}",
                                entry.holder,
                                entry.epoch,
                                entry.ttl.get()
                            ),
                        ),
                        (None, Some(epoch)) => line(&number, &format_args!("free, last epoch {epoch}")),
                        (None, None) => line(&number, &"free, never led"),
                    }
                })
            }
        }
    }

    fn times(&self) -> String {
        let timing = Timing::of(self.ttl);
        let after = |at: Instant| at.since(Instant::ORIGIN);
        format!(
            "TTL {:?}: renewed every {:?}, at risk {:?} after the last renewal, lost after {:?}, killed after {:?}",
            self.ttl.get(),
            after(timing.renew_at(Instant::ORIGIN, Jitter::NONE)),
            after(timing.at_risk_at(Instant::ORIGIN)),
            after(timing.loss_at(Instant::ORIGIN)),
            after(timing.kill_at(Instant::ORIGIN)),
        )
    }
}
