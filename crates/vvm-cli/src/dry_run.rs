//! `--dry-run`: reads the storage and prints what would be done. Creates and settles nothing.

use crate::{announce::say, args::CandidateArgs, async_runtime, exit};
use ielections::{AcquireError, Entry, Holder, ReadError, Slot, Timing, TtlStorage as _, timing::Jitter};
use std::{fmt, io, sync::Arc};
use vvm_clock::{Clock, Instant, Span, SystemClock};
use vvm_host::operate::ResourceLimit;
use vvm_storage::{ClusterName, ElectionKey, ElectionsTtlStorage, OpenError, SettleError, SlotNumber};

/// The candidate that would campaign.
#[derive(Debug)]
pub(crate) struct DryRun<'args> {
    pub(crate) candidate: &'args CandidateArgs,
    pub(crate) holder: Holder,
}

/// Why the real run would be refused.
#[derive(Debug, thiserror::Error)]
enum DryRunError {
    #[error("--storage: {0}")]
    Open(#[from] OpenError),
    #[error("--ttl: {0}")]
    TtlTooShort(AcquireError),
    #[error(transparent)]
    Conflict(SettleError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    System(ResourceLimit),
    #[error("can't write: {0}")]
    Output(io::Error),
}

impl DryRunError {
    /// Returns the exit status of the real run.
    fn exit_status(&self) -> u8 {
        match self {
            Self::Open(cause) if cause.is_misuse() => exit::MISUSE,
            Self::Open(cause) if cause.is_of_system() => exit::SYSTEM,
            Self::Open(_) | Self::Read(_) => exit::STORAGE,
            Self::TtlTooShort(_) => exit::MISUSE,
            Self::Conflict(_) => exit::CONFLICT,
            Self::System(_) | Self::Output(_) => exit::SYSTEM,
        }
    }
}

/// What the storage shows.
#[derive(Debug)]
enum Found {
    /// It does not exist: the first candidate creates it.
    NoStorage,
    /// The real run would try again.
    Unavailable(String),
    /// The leaders, and the author of a pause.
    Slots { slots: Vec<(SlotNumber, Slot)>, paused_by: Option<String> },
}

impl DryRun<'_> {
    /// Prints what would be done, with the lines of `more`. Returns the exit status: 0, or that of a refusal.
    pub(crate) fn show(&self, more: &[(&str, String)]) -> u8 {
        self.try_show(more).map_or_else(
            |refusal| {
                say!("{refusal}");
                refusal.exit_status()
            },
            |()| 0,
        )
    }

    fn try_show(&self, more: &[(&str, String)]) -> Result<(), DryRunError> {
        let runtime = async_runtime::start().map_err(|cause| DryRunError::System(cause.into()))?;
        let found = runtime.block_on(self.look())?;
        match self.write(&mut io::stdout().lock(), more, &found) {
            // The reader, such as `head`, has closed the pipe.
            Err(cause) if cause.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written.map_err(DryRunError::Output),
        }
    }

    async fn look(&self) -> Result<Found, DryRunError> {
        let url = &self.candidate.storage;
        if !vvm_storage::url::exists(url)? {
            vvm_storage::url::check_place(url)?;
            return Ok(Found::NoStorage);
        }
        let clock = Arc::new(SystemClock::start().map_err(|cause| DryRunError::System(cause.into()))?);
        let storage = match vvm_storage::open(url, clock as Arc<dyn Clock>).await {
            Ok(storage) => ElectionsTtlStorage::new(storage),
            Err(cause) if cause.is_passing() => return Ok(Found::Unavailable(cause.to_string())),
            Err(cause) => return Err(cause.into()),
        };
        let found = self.read(&storage).await;
        storage.close().await;
        found
    }

    async fn read(&self, storage: &ElectionsTtlStorage) -> Result<Found, DryRunError> {
        let CandidateArgs { name, slots, ttl, .. } = self.candidate;
        let (ttl, least) = (ttl.get(), storage.limits().min_ttl);
        if ttl < least {
            return Err(DryRunError::TtlTooShort(AcquireError::TtlTooShort { ttl, least }));
        }
        let cluster = ClusterName::from(name.as_str());
        if let Some(settled) = storage.slot_count(&cluster).await?
            && settled != *slots
        {
            let differs = SettleError::Differs { cluster, stands: settled, wanted: *slots };
            return Err(DryRunError::Conflict(differs));
        }
        let numbers = SlotNumber::all(*slots).collect::<Vec<_>>();
        let keys = numbers.iter().map(|slot| ElectionKey { cluster: cluster.clone(), slot: *slot });
        let (slots, requests) = storage.scan_with_requests(&cluster, &keys.collect::<Vec<_>>()).await?;
        let paused_by = requests.pause.map(|pause| pause.by().escape_debug().to_string());
        Ok(Found::Slots { slots: numbers.into_iter().zip(slots).collect(), paused_by })
    }

    fn write(&self, out: &mut dyn io::Write, more: &[(&str, String)], found: &Found) -> io::Result<()> {
        let mut line = |what: &str, text: &dyn fmt::Display| writeln!(out, "{what:<12} {text}");
        let CandidateArgs { name, slots, storage, .. } = self.candidate;
        line("would lead", &format_args!("{name}, one of {slots} slots, as {}", self.holder))?;
        for (what, text) in more {
            line(what, text)?;
        }
        line("times", &self.times())?;
        line("storage", storage)?;
        match found {
            Found::NoStorage => line("", &"does not exist yet: it would be created"),
            Found::Unavailable(what) => line("", &format_args!("{what}; would try again")),
            Found::Slots { slots, paused_by } => {
                if let Some(by) = paused_by {
                    line("", &format_args!("paused by {by}: would wait for `vvm resume`"))?;
                }
                slots.iter().try_for_each(|(number, slot)| {
                    let number = format!("slot {}", number.get());
                    match (slot.entry(), slot.last_epoch()) {
                        (Some(Entry { holder, epoch, ttl, .. }), _) => {
                            line(&number, &format_args!("held by {holder}, epoch {epoch}, TTL {ttl}"))
                        }
                        (None, Some(epoch)) => line(&number, &format_args!("free, last epoch {epoch}")),
                        (None, None) => line(&number, &"free, never led"),
                    }
                })
            }
        }
    }

    fn times(&self) -> String {
        let ttl = self.candidate.ttl;
        let timing = Timing::of(ttl);
        let after = |at: Instant| Span(at.since(Instant::ORIGIN));
        format!(
            "TTL {ttl}: renewed every {}, at risk {} after the last renewal, lost after {}, killed after {}",
            after(timing.renew_at(Instant::ORIGIN, Jitter::NONE)),
            after(timing.at_risk_at(Instant::ORIGIN)),
            after(timing.loss_at(Instant::ORIGIN)),
            after(timing.kill_at(Instant::ORIGIN)),
        )
    }
}
