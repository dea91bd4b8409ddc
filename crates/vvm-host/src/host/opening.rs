//! Opening the storage of a host: once, or repeatedly while the obstacle may pass. Closing it in bounded time (I10).

use super::{ended::HostError, settings::HostSettings};
use crate::{
    SuccessorRefusal,
    host_storage::HostStorage,
    status::{Call, HostStatus},
};
use ielections::{AcquireError, Entry, Holder, Slot, Timing, Ttl, TtlStorage as _, WriteError, env::caught};
use std::{fmt, io, pin::Pin, sync::Arc, time::Duration};
use vvm_clock::{Clock, Instant};
use vvm_orch::AcquireTimeout;
use vvm_storage::{ElectionKey, ElectionsTtlStorage, OpenedStorage, SettleError, SlotNumber, SysVvmStorage};

/// The pause between two attempts to open a storage that is busy or full. A campaign polls as often.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

pub(super) async fn open_once(
    settings: &HostSettings,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<ElectionsTtlStorage>, HostError> {
    let opened = vvm_storage::open(&settings.storage, Arc::clone(clock)).await;
    prepare(opened.map_err(HostError::Storage)?, settings, clock).await
}

/// Checks TTL and support period against the driver, settles the number of slots, and logs what the storage shows.
pub(super) async fn prepare(
    opened: Arc<dyn SysVvmStorage>,
    settings: &HostSettings,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<ElectionsTtlStorage>, HostError> {
    let storage = Arc::new(ElectionsTtlStorage::new(opened));
    let (ttl, least) = (settings.ttl.get(), storage.limits().min_ttl);
    if ttl < least {
        return Err(HostError::TtlTooShort(AcquireError::TtlTooShort { ttl, least }));
    }
    if let Some(period) = settings.successor.map(|successor| successor.period) {
        if period < least {
            return Err(SuccessorRefusal::PeriodTooShort { period, least }.into());
        }
        if storage.documents().is_none() {
            return Err(SuccessorRefusal::NoDocuments.into());
        }
    }
    storage.settle_slot_count(&settings.cluster(), settings.slots).await?;
    StartLine::read(&storage, settings, &**clock).await.log(settings);
    Ok(storage)
}

/// Repeats [`open_once`] while the obstacle may pass, until `give_up_at`.
pub(super) async fn open(
    settings: &HostSettings,
    clock: &Arc<dyn Clock>,
    status: &HostStatus,
    give_up_at: Instant,
) -> Result<Arc<ElectionsTtlStorage>, HostError> {
    let give_up_at = match settings.acquisition {
        // As the campaign itself would (I10).
        AcquireTimeout::UntilLeaderSeen => clock.now().after(Timing::new(settings.ttl).outage()),
        _ => give_up_at,
    };
    retry(|| Box::pin(open_once(settings, clock)), settings, clock, status, give_up_at).await
}

/// Repeats `attempt` until it succeeds, is refused, or `give_up_at` has come. A host that acquires within zero time makes
/// one attempt, which has the time limits of its driver.
async fn retry<'a, T>(
    // A type of its own would nest too deeply for the compiler.
    attempt: impl Fn() -> Pin<Box<dyn Future<Output = Result<T, HostError>> + Send + 'a>>,
    settings: &HostSettings,
    clock: &Arc<dyn Clock>,
    status: &HostStatus,
    give_up_at: Instant,
) -> Result<T, HostError> {
    let is_one_attempt = settings.acquisition == AcquireTimeout::Within(Duration::ZERO);
    let limit = if is_one_attempt { Instant::NEVER } else { give_up_at };
    let mut last = None::<HostError>;
    loop {
        let outcome = tokio::select! {
            biased;
            outcome = caught(attempt()) => outcome,
            () = clock.sleep_until(limit) => {
                return Err(HostError::StorageTimedOut(last.map(Box::new)));
            }
        };
        let error = match outcome {
            Err(panic) => HostError::System(io::Error::other(panic.to_string())),
            Ok(Err(error)) if error.is_passing() => error,
            Ok(outcome) => {
                if outcome.is_ok() {
                    status.storage_answered(Call::Read);
                }
                return outcome;
            }
        };
        if clock.now() >= give_up_at {
            return Err(HostError::StorageTimedOut(Some(Box::new(error))));
        }
        status.storage_not_opened(&error);
        last = Some(error);
        clock.sleep_until(clock.now().after(RETRY_PAUSE).min(give_up_at)).await;
    }
}

impl HostError {
    fn is_passing(&self) -> bool {
        match self {
            Self::Storage(cause) => cause.is_passing(),
            Self::Slots(SettleError::Storage(cause)) => !matches!(cause, WriteError::Fatal(_)),
            _ => false,
        }
    }
}

/// The log line before the first campaign: storage and leader, so that an operator notices candidates on two storages.
#[derive(Debug)]
struct StartLine {
    opened: Option<OpenedStorage>,
    ttl: Ttl,
    seen: Result<Vec<Slot>, String>,
}

impl StartLine {
    async fn read(storage: &ElectionsTtlStorage, settings: &HostSettings, clock: &dyn Clock) -> Self {
        let (cluster, ttl) = (settings.cluster(), settings.ttl);
        let keys = SlotNumber::all(settings.slots).map(|slot| ElectionKey { cluster: cluster.clone(), slot });
        let keys = keys.collect::<Vec<_>>();
        let seen = tokio::select! {
            biased;
            seen = storage.scan(&keys) => seen.map_err(|failure| failure.to_string()),
            () = clock.sleep(Timing::new(ttl).attempt_timeout()) => Err("the storage is slow".into()),
        };
        Self { opened: storage.opened(), ttl, seen }
    }

    fn log(&self, settings: &HostSettings) {
        let (name, slots) = (settings.name.as_str(), settings.slots.get());
        let opened = self.opened.as_ref();
        let storage = opened.map(|opened| opened.location.as_str());
        let file_system = opened.and_then(|opened| opened.file_system.as_deref());
        let provenance = opened.map(|opened| opened.provenance.to_string());
        let ttl_ms = self.ttl.get().as_millis() as u64;
        let leaders = || self.seen.iter().flatten().filter_map(Slot::entry);
        let held = self.seen.as_ref().ok().map(|_| leaders().count() as u64);
        let leader = leaders().next().filter(|_| slots == 1);
        let slot = leader.map(|_| 1_u64);
        let epoch = leader.map(|entry| entry.epoch.get());
        let leader = leader.map(|entry| entry.holder.as_str());
        tracing::info!(
            target: "vvm", event = "storage_opened", name, storage, file_system, provenance, ttl_ms, slots,
            held, leader, slot, epoch, "{name}: {self}"
        );
        let is_taken = |own: &&Holder| leaders().any(|entry| entry.holder == **own);
        if let Some(holder) = settings.holder.as_ref().filter(is_taken).map(Holder::as_str) {
            tracing::warn!(
                target: "vvm", event = "holder_in_use", name, holder,
                "{name}: {holder}, this candidate's own name, holds a slot already: if that is no earlier \
                 run of it, give each candidate a holder of its own"
            );
        }
    }
}

impl fmt::Display for StartLine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(opened) = &self.opened {
            write!(out, "storage {opened}; ")?;
        }
        write!(out, "TTL {}; ", self.ttl)?;
        match self.seen.as_deref() {
            Ok([Slot::Held { entry, proven_age }]) => {
                let Entry { holder, epoch, .. } = entry;
                write!(out, "slot 1 is held by {holder}, epoch {epoch}")?;
                let is_over = proven_age.is_some_and(|age| age >= entry.ttl.get());
                if is_over { out.write_str(", expired") } else { Ok(()) }
            }
            Ok([Slot::Vacant(_)]) => out.write_str("no leader"),
            Ok(slots) => {
                let held = slots.iter().filter(|slot| slot.entry().is_some()).count();
                write!(out, "{held} of {} slots are held", slots.len())
            }
            Err(reason) => write!(out, "leader unknown: {reason}"),
        }
    }
}

/// How long a storage may take to close: a host shall end even if a thread of it hangs in fsync on a failing disk.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) async fn close(storage: Arc<HostStorage>, name: &str, clock: &Arc<dyn Clock>) {
    let is_closed = tokio::select! {
        biased;
        () = storage.close() => true,
        () = clock.sleep(CLOSE_TIMEOUT) => false,
    };
    if !is_closed {
        let timeout_ms = CLOSE_TIMEOUT.as_millis() as u64;
        tracing::error!(
            target: "vvm", event = "storage_not_closed", name, timeout_ms,
            "{name}: the storage did not close within {timeout_ms} ms; ending without it: \
             check its disk or server"
        );
        // Dropping a driver joins its thread, which may hang for ever. It ends with the process.
        std::mem::forget(storage);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::{host_storage, in_steps, record, status};
    use ielections::Vacant;
    use std::{
        sync::atomic::{AtomicU32, Ordering},
        time::Duration,
    };
    use testing_time::MockClock;
    use vvm_storage::{Provenance, mem::MemDatabase, testing::FaultyStorage};

    fn held(proven_age: Option<Duration>) -> Slot {
        Slot::Held { entry: record(7), proven_age }
    }

    fn line(slots: Vec<Slot>) -> String {
        let opened = OpenedStorage::at("/var/lib/leader.db", Provenance::Existing).on("ext4");
        StartLine { opened: Some(opened), ttl: Ttl::DEFAULT, seen: Ok(slots) }.to_string()
    }

    #[test]
    fn start_line_names_location_file_system_ttl_and_leader() {
        let vacant = || Slot::Vacant(Vacant::default());
        let usual = "storage /var/lib/leader.db on ext4, existing; TTL 20s; ";
        assert_eq!(line(vec![vacant()]), format!("{usual}no leader"));
        assert_eq!(line(vec![held(None)]), format!("{usual}slot 1 is held by there, epoch 7"));
        let old = held(Some(Duration::from_secs(20)));
        assert_eq!(line(vec![old]), format!("{usual}slot 1 is held by there, epoch 7, expired"));
        assert_eq!(line(vec![held(None), vacant(), held(None)]), format!("{usual}2 of 3 slots are held"));
    }

    /// The driver's own time limits are longer.
    #[tokio::test]
    async fn opening_of_a_silent_storage_ends_with_the_time_to_acquire() {
        let mock = MockClock::new();
        let clock: Arc<dyn Clock> = Arc::new(mock.clone());
        let mut settings = HostSettings::new("mem:", "payroll");
        settings.acquisition = AcquireTimeout::Within(Duration::from_secs(6));
        let (began, give_up_at) = (mock.now(), mock.now().after(Duration::from_secs(6)));
        let silent = || Box::pin(std::future::pending::<Result<(), HostError>>()) as Pin<Box<_>>;
        let status = status("payroll", "here", &clock);
        let opened = retry(silent, &settings, &clock, &status, give_up_at);
        let opened = in_steps(&mock, Duration::from_millis(500), opened).await;
        assert!(matches!(opened, Err(HostError::StorageTimedOut(_))), "{opened:?}");
        assert_eq!(mock.now().since(began), Duration::from_secs(6));
    }

    #[tokio::test]
    async fn opening_that_panics_is_repeated() {
        let mock = MockClock::new();
        let clock: Arc<dyn Clock> = Arc::new(mock.clone());
        let settings = HostSettings::new("mem:", "payroll");
        let attempts = AtomicU32::new(0);
        let panics_once = || {
            let attempt = attempts.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                assert_ne!(attempt, 0, "no thread for the look-up of a name");
                Ok(())
            }) as Pin<Box<_>>
        };
        let status = status("payroll", "here", &clock);
        let opened = retry(panics_once, &settings, &clock, &status, Instant::NEVER);
        let opened = in_steps(&mock, RETRY_PAUSE, opened).await;
        assert!(opened.is_ok(), "{opened:?}");
        assert_eq!(attempts.into_inner(), 2);
    }

    #[tokio::test]
    async fn storage_that_does_not_close_is_abandoned_after_a_second() {
        let mock = MockClock::new();
        let clock: Arc<dyn Clock> = Arc::new(mock.clone());
        let faulty = FaultyStorage::over(MemDatabase::new(Arc::clone(&clock)).open());
        faulty.hang_close();
        let kept = Arc::downgrade(&faulty);
        let storage = host_storage(&faulty, &status("payroll", "here", &clock));
        drop(faulty);
        let began = mock.now();
        in_steps(&mock, CLOSE_TIMEOUT / 10, close(Arc::new(storage), "payroll", &clock)).await;
        assert_eq!(mock.now().since(began), CLOSE_TIMEOUT);
        assert!(kept.upgrade().is_some(), "dropping a real driver would hang");
    }
}
