//! When a record was written, told so that another process knows whether its own clock can be compared.
//!
//! Boot time is one clock for all processes of one boot and one time namespace. Within those, the difference
//! of two readings is an age; across them it is noise: a time namespace shifts boot time under the same boot
//! id, and containers may be shown boot ids of their own. The number of a time namespace is given away again
//! only after every process of it has ended, a leader among them.

use std::{sync::Arc, time::Duration};
use vvm_clock::Instant;

/// Where readings of this process's clock come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in super::super) struct Origin {
    boot_id: Arc<str>,
    time_namespace: i64,
}

/// What is stored beside a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Stamp {
    pub(super) issued_at_nanos: i64,
    pub(super) boot_id: Arc<str>,
    pub(super) time_namespace: i64,
}

impl Origin {
    /// This process's; `None` where the system doesn't tell, and then nothing is proven.
    #[cfg(target_os = "linux")]
    pub(in super::super) fn of_this_process() -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let time_namespace = std::fs::metadata("/proc/self/ns/time").ok()?.ino().cast_signed();
        let boot_id = boot_id.trim();
        (!boot_id.is_empty()).then(|| Self { boot_id: boot_id.into(), time_namespace })
    }

    /// Nowhere else does [`vvm_clock::SystemClock`] count from boot.
    #[cfg(not(target_os = "linux"))]
    pub(in super::super) fn of_this_process() -> Option<Self> {
        None
    }

    pub(super) fn stamp(&self, issued_at: Instant) -> Stamp {
        Stamp {
            // 292 years of uptime fit.
            issued_at_nanos: issued_at.as_nanos().cast_signed(),
            boot_id: Arc::clone(&self.boot_id),
            time_namespace: self.time_namespace,
        }
    }

    /// How long before `now` the stamp was made, if that can be said (I5).
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
    fn an_age_is_proven_to_the_same_boot_and_namespace_only() {
        let here = origin("a", 1);
        let now = Instant::from_nanos(1_000);
        let stamp = here.stamp(Instant::from_nanos(400));
        assert_eq!(here.age(&stamp, now), Some(Duration::from_nanos(600)));
        assert_eq!(origin("b", 1).age(&stamp, now), None);
        assert_eq!(origin("a", 2).age(&stamp, now), None);
    }

    #[test]
    fn a_stamp_from_the_future_or_from_before_boot_proves_nothing() {
        let here = origin("a", 1);
        let stamp = here.stamp(Instant::from_nanos(400));
        assert_eq!(here.age(&stamp, Instant::from_nanos(399)), None);
        assert_eq!(here.age(&stamp, Instant::from_nanos(400)), Some(Duration::ZERO));
        assert_eq!(here.age(&Stamp { issued_at_nanos: -1, ..stamp }, Instant::from_nanos(400)), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_knows_where_its_readings_come_from() {
        let here = Origin::of_this_process().unwrap();
        assert_eq!(here.boot_id.len(), 36, "{here:?}");
        assert_eq!(Origin::of_this_process().unwrap(), here);
    }
}
