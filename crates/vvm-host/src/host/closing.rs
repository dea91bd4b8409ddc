//! Closing the storage at the end of a host, in bounded time (I10).

use crate::host_storage::HostStorage;
use ielections::TtlStorage as _;
use std::{sync::Arc, time::Duration};
use vvm_clock::Clock;

/// How long a storage may take to close after the hand-back. One second: a process that is told to stop shall
/// end, even if a thread of its storage hangs in a system call, as fsync on a failing disk.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Closes `storage`, or logs that it does not close in time and abandons it.
///
/// # Cancel safety
/// Dropped, it leaves the storage to its owners.
pub(super) async fn close(storage: Arc<HostStorage>, name: &str, clock: &Arc<dyn Clock>) {
    let is_closed = tokio::select! {
        biased;
        () = storage.close() => true,
        () = clock.sleep(TIMEOUT) => false,
    };
    if !is_closed {
        let timeout_ms = TIMEOUT.as_millis() as u64;
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
    use crate::status::tests::{host_storage, in_steps, status};
    use testing_time::MockClock;
    use vvm_storage::{mem::MemDatabase, testing::FaultyStorage};

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
        in_steps(&mock, TIMEOUT / 10, close(Arc::new(storage), "payroll", &clock)).await;
        assert_eq!(mock.now().since(began), TIMEOUT);
        assert!(kept.upgrade().is_some(), "dropping a real driver would hang");
    }
}
