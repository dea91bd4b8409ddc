//! [`StartLine`]: the log line before the first campaign. It names the opened storage and its leader, so that
//! an operator notices two candidates that do not share a storage.

use super::HostSettings;
use crate::status::Since;
use ielections::{Entry, Holder, Slot, Timing, Ttl, TtlStorage as _};
use std::fmt;
use vvm_clock::Clock;
use vvm_storage::{ElectionKey, ElectionsTtlStorage, Opened, SlotNumber};

/// The opened storage and its leaders.
#[derive(Debug)]
pub(super) struct StartLine {
    opened: Option<Opened>,
    ttl: Ttl,
    /// The slots, or why the storage did not answer.
    seen: Result<Vec<Slot>, String>,
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
        let (cluster, ttl) = (settings.cluster(), settings.ttl);
        let keys = SlotNumber::all(settings.slots).map(|slot| ElectionKey { cluster: cluster.clone(), slot });
        let keys = keys.collect::<Vec<_>>();
        let seen = tokio::select! {
            biased;
            seen = storage.scan(&keys) => seen.map_err(|failure| failure.to_string()),
            () = clock.sleep(Timing::of(ttl).attempt_timeout()) => Err("the storage is slow".into()),
        };
        Self { opened: storage.opened(), ttl, seen }
    }

    /// Logs it, as the event `storage_opened`. Warns of a leader with this candidate's holder.
    pub(super) fn log(&self, settings: &HostSettings) {
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
                write!(out, "slot 1 is held by {holder}, epoch {epoch}{}", Since(*epoch))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::record;
    use ielections::Vacant;
    use std::time::Duration;
    use vvm_storage::Provenance;

    fn held(proven_age: Option<Duration>) -> Slot {
        Slot::Held { entry: record(7), proven_age }
    }

    fn line(slots: Vec<Slot>) -> String {
        let opened = Opened::at("/var/lib/leader.db", Provenance::Existing).on("ext4");
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
}
