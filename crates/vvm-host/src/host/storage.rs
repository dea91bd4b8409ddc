//! The storage that the command line names: opened, shared, and of one mind with us about the cluster's size.

use super::surroundings::Surroundings;
use crate::{announce::say_to_people, cli::args::AcquireTimeout};
use ielections::{Timing, WriteError};
use std::{sync::Arc, time::Duration};
use vvm_clock::Instant;
use vvm_storage::{ClusterName, ElectionsTtlStorage, SettleError};

/// Between two attempts to open a storage that is busy or full: as often as a campaign would look at it.
const PAUSE: Duration = Duration::from_secs(1);

/// No storage to campaign on.
#[derive(Debug, thiserror::Error)]
pub(super) enum StorageError {
    /// The URL is wrong, or what it names can't be opened.
    #[error("--storage: {0}")]
    Open(#[from] vvm_storage::OpenError),
    /// The cluster's slot count, which is the first thing that is asked for.
    #[error(transparent)]
    Settle(#[from] SettleError),
    /// It stayed busy or full for as long as leadership was to be waited for.
    #[error("the storage could not be opened in time: {0}")]
    TimedOut(String),
}

impl StorageError {
    /// Whether it may pass by itself.
    fn is_passing(&self) -> bool {
        match self {
            Self::Open(cause) => cause.is_passing(),
            Self::Settle(SettleError::Storage(cause)) => !matches!(cause, WriteError::Fatal(_)),
            Self::Settle(_) | Self::TimedOut(_) => false,
        }
    }
}

/// Opens the storage, and goes on trying while what is in the way may pass, as long as leadership is waited for.
///
/// # Errors
/// [`StorageError`].
///
/// # Cancel safety
/// May be dropped at will, and called again.
pub(super) async fn open(surroundings: &Surroundings) -> Result<Arc<ElectionsTtlStorage>, StorageError> {
    let Surroundings { run, clock, .. } = surroundings;
    let give_up_at = match (run.try_once, run.acquire_timeout) {
        // As the campaign itself would (I10).
        (true, _) => clock.now().after(Timing::of(run.ttl).outage()),
        (false, AcquireTimeout::Never) => Instant::NEVER,
        (false, AcquireTimeout::After(duration)) => clock.now().after(duration),
    };
    let mut said = false;
    loop {
        let refusal = match attempt(surroundings).await {
            Err(refusal) if refusal.is_passing() => refusal,
            outcome => {
                if outcome.is_ok() {
                    if said {
                        tracing::info!(target: "vvm", event = "storage_works_again", name = run.name.as_str());
                    }
                    surroundings.situation.storage_answered();
                }
                return outcome;
            }
        };
        surroundings.situation.storage_is_in_trouble(&refusal);
        if clock.now() >= give_up_at {
            return Err(StorageError::TimedOut(refusal.to_string()));
        }
        if !std::mem::replace(&mut said, true) {
            say_to_people!("{}: {refusal}; trying again", run.name);
            let (event, name, call, reason) =
                ("storage_trouble", run.name.as_str(), "open", refusal.to_string());
            tracing::warn!(target: "vvm", event, name, call, reason);
        }
        clock.sleep_until(clock.now().after(PAUSE).min(give_up_at)).await;
    }
}

async fn attempt(surroundings: &Surroundings) -> Result<Arc<ElectionsTtlStorage>, StorageError> {
    let run = &surroundings.run;
    let sysvvm = vvm_storage::open(&run.storage, Arc::clone(&surroundings.clock)).await?;
    let storage = Arc::new(ElectionsTtlStorage::new(sysvvm));
    storage.settle_slot_count(&ClusterName::from(run.name.as_str()), run.slots).await?;
    Ok(storage)
}
