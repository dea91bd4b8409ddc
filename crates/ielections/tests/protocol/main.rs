//! The protocol values in simulated worlds with random events, checked against the invariants.
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

mod campaign;
mod contradiction;
mod hint;
mod lease;
mod opening;
mod outage;
mod own_record;
mod release;
mod tape;
mod world;

use ielections::{ReadError, Slot, protocol::CampaignEvent};

/// A scan that read all slots.
fn scanned(slots: impl IntoIterator<Item = Slot>) -> CampaignEvent {
    CampaignEvent::Scanned(slots.into_iter().map(Some).collect(), Ok(()))
}

/// A scan that read all slots, or none.
fn scan(outcome: Result<Vec<Slot>, ReadError>) -> CampaignEvent {
    match outcome {
        Ok(slots) => scanned(slots),
        Err(failure) => CampaignEvent::Scanned(Vec::new(), Err(failure)),
    }
}
