//! `--dry-run`: reads the storage and prints what would be done. Creates and settles nothing.

use crate::{
    args::CandidateArgs,
    inspection::{Refusal, inspect},
};
use ielections::{AcquireError, Entry, Holder, Slot, Timing, TtlStorage as _, timing::Jitter};
use std::{fmt, io};
use vvm_clock::{Instant, Span};
use vvm_host::operate::{InspectError, Purpose, StorageInspector};
use vvm_storage::{SettleError, SlotNumber};

/// The candidate that would campaign.
#[derive(Debug)]
pub(crate) struct DryRun<'args> {
    pub(crate) candidate: &'args CandidateArgs,
    pub(crate) holder: Holder,
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
        let shown = self.look().and_then(|found| {
            Ok(self.write(&mut io::stdout().lock(), more, &found).map_err(InspectError::Output)?)
        });
        shown.map_or_else(|refusal| refusal.conclude(), |()| 0)
    }

    fn look(&self) -> Result<Found, Refusal> {
        let CandidateArgs { storage: url, name, .. } = self.candidate;
        match inspect((url, name), Purpose::Ask, async |inspector| self.read(inspector).await) {
            Err(Refusal::Inspect(InspectError::NoStorage(_))) => {
                vvm_storage::url::check_place(url).map_err(InspectError::from)?;
                Ok(Found::NoStorage)
            }
            Err(Refusal::Inspect(InspectError::Open(cause))) if cause.is_passing() => {
                Ok(Found::Unavailable(cause.to_string()))
            }
            looked => looked,
        }
    }

    async fn read(&self, inspector: &StorageInspector) -> Result<Found, Refusal> {
        let StorageInspector { storage, cluster, .. } = inspector;
        let CandidateArgs { slots, ttl, .. } = self.candidate;
        let (ttl, least) = (ttl.get(), storage.limits().min_ttl);
        if ttl < least {
            return Err(Refusal::Misuse(format!("--ttl: {}", AcquireError::TtlTooShort { ttl, least })));
        }
        if let Some(stands) = storage.slot_count(cluster).await?
            && stands != *slots
        {
            return Err(SettleError::Differs { cluster: cluster.clone(), stands, wanted: *slots }.into());
        }
        let keys = inspector.keys_of(Some(*slots));
        let (slots, requests) = storage.scan_with_requests(cluster, &keys).await?;
        let paused_by = requests.pause.map(|pause| pause.by().escape_debug().to_string());
        Ok(Found::Slots { slots: keys.into_iter().map(|key| key.slot).zip(slots).collect(), paused_by })
    }

    fn write(&self, out: &mut dyn io::Write, more: &[(&str, String)], found: &Found) -> io::Result<()> {
        let mut line = |what: &str, text: &dyn fmt::Display| writeln!(out, "{what:<12} {text}");
        let (verb, how) = self.outcome(found);
        line(verb, &how)?;
        for (what, text) in more {
            line(what, text)?;
        }
        line("times", &self.times())?;
        line("storage", &vvm_storage::StorageUrl::from(self.candidate.storage.as_str()))?;
        match found {
            Found::NoStorage => line("", &"does not exist yet: it would be created"),
            Found::Unavailable(what) => line("", &format_args!("{what}; would try again")),
            Found::Slots { slots, .. } => slots.iter().try_for_each(|(number, slot)| {
                let number = format!("slot {}", number.get());
                match (slot.entry(), slot.last_epoch()) {
                    (Some(Entry { holder, epoch, ttl, .. }), _) => {
                        line(&number, &format_args!("held by {holder}, epoch {epoch}, TTL {ttl}"))
                    }
                    (None, Some(epoch)) => line(&number, &format_args!("free, last epoch {epoch}")),
                    (None, None) => line(&number, &"free, never led"),
                }
            }),
        }
    }

    /// Returns what would follow, in two parts.
    fn outcome(&self, found: &Found) -> (&'static str, String) {
        let CandidateArgs { name, slots, try_once, .. } = self.candidate;
        let what = match slots.get() {
            1 => format!("{name} as {}", self.holder),
            count => format!("{name}, one of {count} slots, as {}", self.holder),
        };
        let (slots, paused_by) = match found {
            Found::Slots { slots, paused_by } => (slots, paused_by),
            Found::NoStorage => return ("would lead", what),
            // `--try` waits for it, too, for as long as an outage would cost a leader.
            Found::Unavailable(_) => {
                return ("would wait", format!("for {what}: the storage can't be used now"));
            }
        };
        // A record whose age is proven to exceed its TTL is taken over at once.
        let is_held = |slot: &Slot| match slot {
            Slot::Held { entry, proven_age } => proven_age.is_none_or(|age| age < entry.ttl.get()),
            Slot::Vacant(_) => false,
        };
        let first = slots.first().and_then(|(_, slot)| slot.entry());
        let obstacle = match (paused_by, first) {
            (Some(by), _) => format!("paused by {by}"),
            (None, Some(leader)) if slots.iter().all(|(_, slot)| is_held(slot)) => match slots.len() {
                1 => format!("slot 1 is held by {}", leader.holder),
                count => format!("all {count} slots are held"),
            },
            _ => return ("would lead", what),
        };
        match (try_once, paused_by) {
            (false, _) => ("would wait", format!("for {what}: {obstacle}")),
            (true, Some(_)) => ("would end", format!("with status 75: {obstacle}")),
            (true, None) => ("would end", format!("with status 75, unless its leader is dead: {obstacle}")),
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
