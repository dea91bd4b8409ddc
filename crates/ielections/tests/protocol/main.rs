//! The protocol values, event by event. `cargo xtask sim` runs them in whole worlds.
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

mod campaign;
mod hint;
mod lease;
mod standby;
mod support;

use ielections::{
    AcquireTimeout, Entropy, Holder, ReadError, Slot, Terms, Ttl, Vacant,
    protocol::{Campaign, CampaignEvent, CampaignStep, ScanAnswer},
    testing,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};
use testing_time::MockWallClock;
use vvm_clock::Instant;

fn scanned(slots: impl IntoIterator<Item = Slot>) -> CampaignEvent {
    let seen = slots.into_iter().map(Some).collect();
    CampaignEvent::Scanned(ScanAnswer { seen, outcome: Ok(()), hints_follow: false })
}

fn scanned_with_hints(slots: impl IntoIterator<Item = Slot>) -> CampaignEvent {
    let CampaignEvent::Scanned(scanned) = scanned(slots) else { unreachable!("it is a scan") };
    CampaignEvent::Scanned(ScanAnswer { hints_follow: true, ..scanned })
}

fn failed(failure: ReadError) -> CampaignEvent {
    CampaignEvent::Scanned(ScanAnswer { seen: Vec::new(), outcome: Err(failure), hints_follow: false })
}

#[derive(Debug, Default)]
struct Counting(AtomicU8);

impl Entropy for Counting {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(self.0.fetch_add(1, Ordering::Relaxed));
    }
}

const BEGAN: Instant = Instant::from_nanos(1_000_000_000_000);

fn campaign(timeout: AcquireTimeout, poll: Duration) -> Campaign {
    let terms = Terms { timeout, poll, ..Terms::new(Holder::new("leader").unwrap(), Ttl::DEFAULT) };
    Campaign::begin(terms, 1, BEGAN, Arc::new(Counting::default()), Arc::new(MockWallClock::new()))
}

fn vacant() -> Slot {
    Slot::Vacant(Vacant::default())
}

fn held() -> Slot {
    testing::held(testing::entry(0xff, 0, 1))
}

fn sends(campaign: &mut Campaign, now: Instant, event: CampaignEvent) -> CampaignStep {
    let step = campaign.on(now, event);
    assert!(matches!(step, CampaignStep::Send), "{step:?}");
    campaign.on(now, CampaignEvent::MaySend)
}
