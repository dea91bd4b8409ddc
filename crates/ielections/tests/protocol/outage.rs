//! A candidate and a storage that answers slowly or not at all.

use ielections::{
    AcquireError, AcquireTimeout, Entropy, Entry, Epoch, Holder, Incarnation, ReadError, Slot, Terms, Ttl,
    Vacant, Version, WriteError,
    protocol::{Campaign, CampaignEvent, CampaignStep},
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

/// Counts up, so that all numbers are different.
#[derive(Debug, Default)]
pub(crate) struct Counting(AtomicU8);

impl Entropy for Counting {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(self.0.fetch_add(1, Ordering::Relaxed));
    }
}

pub(crate) const BEGAN: Instant = Instant::from_nanos(1_000_000_000_000);

pub(crate) fn campaign(timeout: AcquireTimeout, poll: Duration) -> Campaign {
    let terms = Terms { holder: Holder::new("leader").unwrap(), ttl: Ttl::DEFAULT, timeout, poll };
    Campaign::begin(terms, 1, BEGAN, Arc::new(Counting::default()), Arc::new(MockWallClock::new()))
}

pub(crate) fn vacant() -> Slot {
    Slot::Vacant(Vacant::default())
}

pub(crate) fn held() -> Slot {
    let entry = Entry {
        holder: Holder::new("leader else").unwrap(),
        version: Version { incarnation: Incarnation::from_bytes([0xff; 16]), write: 0 },
        ttl: Ttl::DEFAULT,
        epoch: Epoch::new(1).unwrap(),
    };
    Slot::Held { entry, proven_age: None }
}

/// Lets the campaign send its next call.
pub(crate) fn sends(campaign: &mut Campaign, now: Instant, event: CampaignEvent) -> CampaignStep {
    let step = campaign.on(now, event);
    assert!(matches!(step, CampaignStep::Send), "{step:?}");
    campaign.on(now, CampaignEvent::MaySend)
}

#[test]
fn scan_slower_than_a_poll_still_leads_to_a_claim() {
    let mut campaign = campaign(AcquireTimeout::Forever, Terms::POLL);
    assert!(matches!(sends(&mut campaign, BEGAN, CampaignEvent::Woken), CampaignStep::Scan(_)));
    let answered_at = BEGAN.after(Terms::POLL * 3 / 2);
    let step = sends(&mut campaign, answered_at, crate::scanned([vacant()]));
    assert!(matches!(step, CampaignStep::Insert(0, ..)), "{step:?}");
}

#[test]
fn zero_timeout_is_one_scan_even_if_it_is_slow() {
    let mut campaign = campaign(AcquireTimeout::Within(Duration::ZERO), Terms::POLL);
    assert!(matches!(sends(&mut campaign, BEGAN, CampaignEvent::Woken), CampaignStep::Scan(_)));
    let answered_at = BEGAN.after(Terms::POLL * 3 / 2);
    let step = campaign.on(answered_at, crate::scanned([held()]));
    assert!(matches!(step, CampaignStep::Failed(AcquireError::TimedOut { .. })), "{step:?}");
}

#[test]
fn zero_poll_still_pauses_between_scans() {
    let mut campaign = campaign(AcquireTimeout::Forever, Duration::ZERO);
    assert!(matches!(sends(&mut campaign, BEGAN, CampaignEvent::Woken), CampaignStep::Scan(_)));
    let step = campaign.on(BEGAN, crate::scanned([held()]));
    assert!(matches!(step, CampaignStep::Sleep(until) if until > BEGAN), "{step:?}");
    let mut campaign = self::campaign(AcquireTimeout::Forever, Duration::ZERO);
    assert!(matches!(sends(&mut campaign, BEGAN, CampaignEvent::Woken), CampaignStep::Scan(_)));
    let failed = crate::failed(ReadError::Unavailable("down".into()));
    let step = campaign.on(BEGAN, failed);
    assert!(matches!(step, CampaignStep::Sleep(until) if until > BEGAN), "{step:?}");
}

/// A long outage leaves one unresolved attempt.
#[test]
fn unanswered_claim_is_read_back_until_a_read_is_answered() {
    let mut campaign = campaign(AcquireTimeout::Forever, Terms::POLL);
    let mut now = BEGAN;
    assert!(matches!(sends(&mut campaign, now, CampaignEvent::Woken), CampaignStep::Scan(_)));
    let CampaignStep::Insert(0, _, first, _) = sends(&mut campaign, now, crate::scanned([vacant()])) else {
        panic!("no claim of a vacant slot");
    };
    let mut event = CampaignEvent::Claimed(Err(WriteError::Unknown("down".into())));
    for _ in 0..5 {
        let step = sends(&mut campaign, now, event);
        assert!(matches!(step, CampaignStep::Read(0, _)), "{step:?}");
        let step = campaign.on(now, CampaignEvent::Read(Err(ReadError::Unavailable("down".into()))));
        let CampaignStep::Sleep(until) = step else { panic!("{step:?}") };
        now = until;
        event = CampaignEvent::Woken;
    }
    assert!(matches!(sends(&mut campaign, now, event), CampaignStep::Read(0, _)));
    let CampaignStep::Sleep(until) = campaign.on(now, CampaignEvent::Read(Ok(vacant()))) else {
        panic!("no pause after an undecided attempt");
    };
    let CampaignStep::Insert(0, _, second, _) = sends(&mut campaign, until, CampaignEvent::Woken) else {
        panic!("an undecided attempt was not repeated");
    };
    assert_ne!(first.incarnation(), second.incarnation());
    let (slot, left) = campaign.abandon().unwrap();
    assert_eq!((slot, left), (0, vec![first, second]));
}
