//! A candidate and a storage that answers slowly, or not at all.

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

/// Counts up, so that no two numbers are the same.
#[derive(Debug, Default)]
pub(crate) struct Counting(AtomicU8);

impl Entropy for Counting {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(self.0.fetch_add(1, Ordering::Relaxed));
    }
}

pub(crate) const BEGAN: Instant = Instant::from_nanos(1_000_000_000_000);

pub(crate) fn campaign(timeout: AcquireTimeout, poll: Duration) -> Campaign {
    let terms = Terms { holder: Holder::new("somebody").unwrap(), ttl: Ttl::DEFAULT, timeout, poll };
    Campaign::begin(terms, 1, BEGAN, Arc::new(Counting::default()), Arc::new(MockWallClock::new()))
}

pub(crate) fn vacant() -> Slot {
    Slot::Vacant(Vacant::default())
}

pub(crate) fn held() -> Slot {
    let entry = Entry {
        holder: Holder::new("somebody else").unwrap(),
        version: Version { incarnation: Incarnation::from_bytes([0xff; 16]), write: 0 },
        ttl: Ttl::DEFAULT,
        epoch: Epoch::new(1).unwrap(),
    };
    Slot::Held { entry, proven_age: None }
}

/// Lets the campaign send what it waits to send.
pub(crate) fn sends(campaign: &mut Campaign, now: Instant, event: CampaignEvent) -> CampaignStep {
    let step = campaign.on(now, event);
    assert!(matches!(step, CampaignStep::Send), "{step:?}");
    campaign.on(now, CampaignEvent::MaySend)
}

#[test]
fn a_scan_that_takes_longer_than_a_poll_still_leads_to_a_claim() {
    let mut campaign = campaign(AcquireTimeout::Forever, Terms::POLL);
    assert!(matches!(sends(&mut campaign, BEGAN, CampaignEvent::Woken), CampaignStep::Scan(_)));
    let answered_at = BEGAN.after(Terms::POLL * 3 / 2);
    let step = sends(&mut campaign, answered_at, crate::scanned([vacant()]));
    assert!(matches!(step, CampaignStep::Insert(0, ..)), "{step:?}");
}

#[test]
fn one_look_is_one_look_however_slow_the_storage() {
    let mut campaign = campaign(AcquireTimeout::Within(Duration::ZERO), Terms::POLL);
    assert!(matches!(sends(&mut campaign, BEGAN, CampaignEvent::Woken), CampaignStep::Scan(_)));
    let answered_at = BEGAN.after(Terms::POLL * 3 / 2);
    let step = campaign.on(answered_at, crate::scanned([held()]));
    assert!(matches!(step, CampaignStep::Failed(AcquireError::TimedOut { .. })), "{step:?}");
}

#[test]
fn a_candidate_that_is_told_to_poll_without_a_pause_pauses() {
    let mut campaign = campaign(AcquireTimeout::Forever, Duration::ZERO);
    assert!(matches!(sends(&mut campaign, BEGAN, CampaignEvent::Woken), CampaignStep::Scan(_)));
    let step = campaign.on(BEGAN, crate::scanned([held()]));
    assert!(matches!(step, CampaignStep::Sleep(until) if until > BEGAN), "{step:?}");
    let mut campaign = self::campaign(AcquireTimeout::Forever, Duration::ZERO);
    assert!(matches!(sends(&mut campaign, BEGAN, CampaignEvent::Woken), CampaignStep::Scan(_)));
    let failed = CampaignEvent::Scanned(Vec::new(), Err(ReadError::Unavailable("down".into())));
    let step = campaign.on(BEGAN, failed);
    assert!(matches!(step, CampaignStep::Sleep(until) if until > BEGAN), "{step:?}");
}

/// However long an outage lasts, it leaves one attempt to resolve.
#[test]
fn a_claim_that_went_unanswered_is_read_until_a_read_is_answered() {
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
        panic!("undecided is no reason to hurry");
    };
    let CampaignStep::Insert(0, _, second, _) = sends(&mut campaign, until, CampaignEvent::Woken) else {
        panic!("undecided, and not tried again");
    };
    assert_ne!(first.incarnation(), second.incarnation());
    let (slot, left) = campaign.abandon().unwrap();
    assert_eq!((slot, left), (0, vec![first, second]));
}
