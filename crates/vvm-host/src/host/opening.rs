//! Opening the storage of a host: once, or repeatedly while the obstacle may pass.

use super::{HostError, HostSettings, start_line::StartLine};
use crate::status::{Call, HostStatus};
use ielections::{AcquireError, Timing, TtlStorage as _, WriteError};
use std::{sync::Arc, time::Duration};
use vvm_clock::{Clock, Instant};
use vvm_orch::Acquisition;
use vvm_storage::{ElectionsTtlStorage, SettleError};

/// The pause between two attempts to open a storage that is busy or full. A campaign polls as often.
const PAUSE: Duration = Duration::from_secs(1);

/// Opens the storage of `settings`, settles its slot count, and logs which storage that is and which holder
/// leads.
///
/// # Errors
/// [`HostError::Storage`], [`HostError::TtlTooShort`] and [`HostError::Slots`].
///
/// # Cancel safety
/// May be dropped at will, and called again.
pub(super) async fn open_once(
    settings: &HostSettings,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<ElectionsTtlStorage>, HostError> {
    let opened = vvm_storage::open(&settings.storage, Arc::clone(clock)).await;
    let storage = Arc::new(ElectionsTtlStorage::new(opened.map_err(HostError::Storage)?));
    let (ttl, least) = (settings.ttl.get(), storage.limits().min_ttl);
    if ttl < least {
        return Err(HostError::TtlTooShort(AcquireError::TtlTooShort { ttl, least }));
    }
    storage.settle_slot_count(&settings.cluster(), settings.slots).await?;
    StartLine::of(&storage, settings, &**clock).await.log(settings);
    Ok(storage)
}

/// Repeats [`open_once`] while the obstacle may pass, for as long as the host would wait for leadership.
///
/// # Errors
/// As [`open_once`], and [`HostError::StorageTimedOut`].
///
/// # Cancel safety
/// May be dropped at will, and called again.
pub(super) async fn open(
    settings: &HostSettings,
    clock: &Arc<dyn Clock>,
    status: &HostStatus,
) -> Result<Arc<ElectionsTtlStorage>, HostError> {
    let give_up_at = match settings.acquisition {
        // As the campaign itself would (I10).
        Acquisition::UntilLeaderSeen => clock.now().after(Timing::of(settings.ttl).outage()),
        Acquisition::Forever => Instant::NEVER,
        Acquisition::Within(duration) => clock.now().after(duration),
    };
    let name = settings.name.as_str();
    let mut is_logged = false;
    loop {
        let error = match open_once(settings, clock).await {
            Err(error) if error.is_passing() => error,
            outcome => {
                if outcome.is_ok() {
                    if is_logged {
                        tracing::info!(target: "vvm", event = "storage_works_again", name);
                    }
                    status.storage_answered(Call::Read);
                }
                return outcome;
            }
        };
        status.storage_not_opened(&error);
        if clock.now() >= give_up_at {
            return Err(HostError::StorageTimedOut(error.to_string()));
        }
        if !std::mem::replace(&mut is_logged, true) {
            let reason = error.to_string();
            tracing::warn!(
                target: "vvm", event = "storage_trouble", name, call = "open", reason,
                "{name}: {error}; trying again"
            );
        }
        clock.sleep_until(clock.now().after(PAUSE).min(give_up_at)).await;
    }
}

impl HostError {
    /// Whether the obstacle may pass by itself.
    fn is_passing(&self) -> bool {
        match self {
            Self::Storage(cause) => cause.is_passing(),
            Self::Slots(SettleError::Storage(cause)) => !matches!(cause, WriteError::Fatal(_)),
            _ => false,
        }
    }
}
