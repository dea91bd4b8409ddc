//! [`Stamp`]: when a record was written, in a form that shows which clocks can be compared with it.
//!
//! Boot time is one clock for all processes of one boot and one time namespace. Within those, the difference
//! of two readings is an age. A time namespace shifts boot time under the same boot id, and a container may
//! have a boot id of its own. A namespace's number is reused only after all its processes have ended.

use std::{sync::Arc, time::Duration};
use vvm_clock::Instant;

/// The clock of this process: boot and time namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in super::super) struct Origin {
    boot_id: Arc<str>,
    time_namespace: i64,
}

/// The time of a write, stored beside the record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Stamp {
    pub(super) issued_at_nanos: i64,
    pub(super) boot_id: Arc<str>,
    pub(super) time_namespace: i64,
}

impl Origin {
    /// Returns this process's clock. `None` if the system does not tell: then no age is proven.
    #[cfg(target_os = "linux")]
    pub(in super::super) fn of_this_process() -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let time_namespace = std::fs::metadata("/proc/self/ns/time").ok()?.ino().cast_signed();
        let boot_id = boot_id.trim();
        (!boot_id.is_empty()).then(|| Self { boot_id: boot_id.into(), time_namespace })
    }

    /// Elsewhere [`vvm_clock::SystemClock`] does not count from boot.
    #[cfg(not(target_os = "linux"))]
    pub(in super::super) fn of_this_process() -> Option<Self> {
        None
    }

    pub(super) fn stamp(&self, issued_at: Instant) -> Stamp {
        Stamp {
            // Enough for 292 years of uptime.
            issued_at_nanos: issued_at.as_nanos().cast_signed(),
            boot_id: Arc::clone(&self.boot_id),
            time_namespace: self.time_namespace,
        }
    }

    /// Returns the age of the stamp, if this clock can be compared with its clock (I5).
    pub(super) fn age(&self, stamp: &Stamp, now: Instant) -> Option<Duration> {
        if *stamp != (Stamp { issued_at_nanos: stamp.issued_at_nanos, ..self.stamp(now) }) {
            return None;
        }
        let issued_at = Instant::from_nanos(u64::try_from(stamp.issued_at_nanos).ok()?);
        (issued_at <= now).then(|| now.since(issued_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(boot_id: &str, time_namespace: i64) -> Origin {
        Origin { boot_id: boot_id.into(), time_namespace }
    }

    #[test]
    fn age_is_proven_only_to_the_same_boot_and_namespace() {
        let here = origin("a", 1);
        let now = Instant::from_nanos(1_000);
        let stamp = here.stamp(Instant::from_nanos(400));
        assert_eq!(here.age(&stamp, now), Some(Duration::from_nanos(600)));
        assert_eq!(origin("b", 1).age(&stamp, now), None);
        assert_eq!(origin("a", 2).age(&stamp, now), None);
    }

    #[test]
    fn stamp_from_the_future_or_from_before_boot_proves_nothing() {
        let here = origin("a", 1);
        let stamp = here.stamp(Instant::from_nanos(400));
        assert_eq!(here.age(&stamp, Instant::from_nanos(399)), None);
        assert_eq!(here.age(&stamp, Instant::from_nanos(400)), Some(Duration::ZERO));
        assert_eq!(here.age(&Stamp { issued_at_nanos: -1, ..stamp }, Instant::from_nanos(400)), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn clock_of_this_process_is_known() {
        let here = Origin::of_this_process().unwrap();
        assert_eq!(here.boot_id.len(), 36, "{here:?}");
        assert_eq!(Origin::of_this_process().unwrap(), here);
    }
}
