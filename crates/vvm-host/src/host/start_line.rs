//! [`StartLine`]: the log line before the first campaign. It names the opened storage and its leader, so that
//! an operator notices two candidates that do not share a storage.

use super::HostSettings;
use crate::status::Since;
use ielections::{Entry, Holder, Slot, Timing, Ttl, TtlStorage as _};
use std::{fmt, num::NonZeroU32};
use vvm_clock::Clock;
use vvm_storage::{ElectionKey, ElectionsTtlStorage, Opened, SlotNumber};

/// The opened storage and its leaders.
#[derive(Debug)]
pub(super) struct StartLine {
    opened: Option<Opened>,
    ttl: Ttl,
    slots: NonZeroU32,
    leaders: Leaders,
    /// The candidate's own holder, if a slot is held under it already.
    namesake: Option<Holder>,
}

/// The leaders at the start.
#[derive(Debug)]
enum Leaders {
    /// The number of slots that are held; `only` is the slot of a name with one slot.
    Seen { held: usize, only: Option<Slot> },
    /// The storage did not answer, for this reason.
    Unknown(String),
}

impl StartLine {
    /// Scans once, for as long as an attempt to renew may take.
    ///
    /// # Cancel safety
    /// May be dropped at will.
    pub(super) async fn of(
        storage: &ElectionsTtlStorage,
        settings: &HostSettings,
        clock: &dyn Clock,
    ) -> Self {
        let (cluster, slots, ttl) = (settings.cluster(), settings.slots, settings.ttl);
        let keys = SlotNumber::all(slots).map(|slot| ElectionKey { cluster: cluster.clone(), slot });
        let keys = keys.collect::<Vec<_>>();
        let seen = tokio::select! {
            biased;
            seen = storage.scan(&keys) => seen.map_err(|failure| failure.to_string()),
            () = clock.sleep(Timing::of(ttl).attempt_timeout()) => Err("the storage is slow".into()),
        };
        let is_taken =
            |own: &&Holder| seen.iter().flatten().filter_map(Slot::entry).any(|entry| entry.holder == **own);
        let namesake = settings.holder.as_ref().filter(is_taken).cloned();
        let leaders = seen.map_or_else(Leaders::Unknown, Leaders::seen);
        Self { opened: storage.opened(), ttl, slots, leaders, namesake }
    }

    /// Logs it, as the event `storage_opened`. Warns of a leader with this candidate's holder.
    pub(super) fn log(&self, name: &str) {
        let opened = self.opened.as_ref();
        let storage = opened.map(|opened| opened.location.as_str());
        let file_system = opened.and_then(|opened| opened.file_system.as_deref());
        let provenance = opened.map(|opened| opened.provenance.to_string());
        let ttl_ms = self.ttl.get().as_millis() as u64;
        let slots = self.slots.get();
        let (held, leader) = match &self.leaders {
            Leaders::Seen { held, only } => (Some(*held as u64), only.as_ref().and_then(Slot::entry)),
            Leaders::Unknown(_) => (None, None),
        };
        let slot = leader.map(|_| 1_u64);
        let epoch = leader.map(|entry| entry.epoch.get());
        let leader = leader.map(|entry| entry.holder.as_str());
        tracing::info!(
            target: "vvm", event = "storage_opened", name, storage, file_system, provenance, ttl_ms, slots,
            held, leader, slot, epoch, "{name}: {self}"
        );
        if let Some(holder) = self.namesake.as_ref().map(Holder::as_str) {
            tracing::warn!(
                target: "vvm", event = "holder_in_use", name, holder,
                "{name}: {holder}, this candidate's own name, holds a slot already: if that is no earlier \
                 run of it, give each candidate a holder of its own"
            );
        }
    }
}

impl Leaders {
    fn seen(seen: Vec<Slot>) -> Self {
        let held = seen.iter().filter(|slot| slot.entry().is_some()).count();
        let only = if seen.len() == 1 { seen.into_iter().next() } else { None };
        Self::Seen { held, only }
    }
}

impl fmt::Display for StartLine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(opened) = &self.opened {
            write!(out, "storage {opened}; ")?;
        }
        write!(out, "TTL {}; ", self.ttl)?;
        match &self.leaders {
            Leaders::Seen { only: Some(Slot::Held { entry, proven_age }), .. } => {
                let Entry { holder, epoch, .. } = entry;
                write!(out, "slot 1 is held by {holder}, epoch {epoch}{}", Since(*epoch))?;
                let is_over = proven_age.is_some_and(|age| age >= entry.ttl.get());
                if is_over { out.write_str(", expired") } else { Ok(()) }
            }
            Leaders::Seen { only: Some(Slot::Vacant(_)), .. } => out.write_str("no leader"),
            Leaders::Seen { held, only: None } => write!(out, "{held} of {} slots are held", self.slots),
            Leaders::Unknown(reason) => write!(out, "leader unknown: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ielections::{Epoch, Holder, Incarnation, Vacant, Version};
    use std::time::Duration;
    use vvm_storage::Provenance;

    fn held(proven_age: Option<Duration>) -> Slot {
        let entry = Entry {
            holder: Holder::new("web1:47").unwrap(),
            version: Version { incarnation: Incarnation::from_bytes([1; 16]), write: 0 },
            ttl: Ttl::DEFAULT,
            epoch: Epoch::new(7).unwrap(),
        };
        Slot::Held { entry, proven_age }
    }

    fn line(slots: Vec<Slot>) -> String {
        let opened = Opened::at("/var/lib/leader.db", Provenance::Existing).on("ext4");
        let count = NonZeroU32::new(slots.len() as u32).unwrap();
        let leaders = Leaders::seen(slots);
        let ttl = Ttl::DEFAULT;
        StartLine { opened: Some(opened), ttl, slots: count, leaders, namesake: None }.to_string()
    }

    #[test]
    fn start_line_names_location_file_system_ttl_and_leader() {
        let vacant = || Slot::Vacant(Vacant::default());
        let usual = "storage /var/lib/leader.db on ext4, existing; TTL 20s; ";
        assert_eq!(line(vec![vacant()]), format!("{usual}no leader"));
        assert_eq!(line(vec![held(None)]), format!("{usual}slot 1 is held by web1:47, epoch 7"));
        let old = held(Some(Duration::from_secs(20)));
        assert_eq!(line(vec![old]), format!("{usual}slot 1 is held by web1:47, epoch 7, expired"));
        assert_eq!(line(vec![held(None), vacant(), held(None)]), format!("{usual}2 of 3 slots are held"));
    }
}
