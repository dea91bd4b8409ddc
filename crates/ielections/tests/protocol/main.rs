//! The protocol values in simulated worlds with random events, checked against the invariants.
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

mod campaign;
mod contradiction;
mod hint;
mod lease;
mod outage;
mod own_record;
mod release;
mod tape;
mod world;

use ielections::{
    ReadError, Slot,
    protocol::{CampaignEvent, Scanned},
};

/// A scan that read all slots.
fn scanned(slots: impl IntoIterator<Item = Slot>) -> CampaignEvent {
    let seen = slots.into_iter().map(Some).collect();
    CampaignEvent::Scanned(Scanned { seen, outcome: Ok(()), hints_follow: false })
}

/// A scan that read all slots of a storage whose hints follow releases.
fn scanned_with_hints(slots: impl IntoIterator<Item = Slot>) -> CampaignEvent {
    let CampaignEvent::Scanned(scanned) = scanned(slots) else { unreachable!("it is a scan") };
    CampaignEvent::Scanned(Scanned { hints_follow: true, ..scanned })
}

/// A scan that read no slot.
fn failed(failure: ReadError) -> CampaignEvent {
    CampaignEvent::Scanned(Scanned { seen: Vec::new(), outcome: Err(failure), hints_follow: false })
}

/// A scan that read all slots, or none.
fn scan(outcome: Result<Vec<Slot>, ReadError>) -> CampaignEvent {
    match outcome {
        Ok(slots) => scanned(slots),
        Err(failure) => failed(failure),
    }
}
