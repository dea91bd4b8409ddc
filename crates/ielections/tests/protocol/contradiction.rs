//! A candidate and a storage that contradicts itself: stale answers are no harm, lost writes are, and
//! refusing what it offers must not make anybody spin.

use crate::outage::{BEGAN, campaign, sends, vacant};
use ielections::{
    AcquireError, AcquireTimeout, Claim, Entry, Epoch, Holder, Incarnation, Slot, Terms, Ttl, Vacant,
    Version, WriteError,
    protocol::{Campaign, CampaignEvent, CampaignStep},
};
use vvm_clock::Instant;

fn epoch(number: u64) -> Epoch {
    Epoch::new(number).unwrap()
}

fn held(number: u64) -> Slot {
    let entry = Entry {
        holder: Holder::new("somebody else").unwrap(),
        version: Version { incarnation: Incarnation::from_bytes([number as u8; 16]), write: 0 },
        ttl: Ttl::DEFAULT,
        epoch: epoch(number),
    };
    Slot::Held { entry, proven_age: None }
}

/// Has seen one slot held under epoch 5, and scans again.
fn second_look() -> (Campaign, Instant) {
    let mut campaign = campaign(AcquireTimeout::Forever, Terms::POLL);
    sends(&mut campaign, BEGAN, CampaignEvent::Woken);
    let CampaignStep::Sleep(until) = campaign.on(BEGAN, crate::scanned([held(5)])) else {
        panic!("nothing to wait for");
    };
    assert!(matches!(sends(&mut campaign, until, CampaignEvent::Woken), CampaignStep::Scan(_)));
    (campaign, until)
}

/// The slot as a scan may show it, and no longer is.
fn older() -> Slot {
    Slot::Vacant(Vacant { last_epoch: Some(epoch(4)) })
}

#[test]
fn a_slot_that_seems_to_go_back_is_looked_at_closely() {
    let (mut campaign, now) = second_look();
    let step = sends(&mut campaign, now, crate::scanned([older()]));
    assert!(matches!(step, CampaignStep::Read(0, _)), "{step:?}");
    // It was a stale answer: the record stands, and has been observed since the first look.
    let step = campaign.on(now, CampaignEvent::Read(Ok(held(5))));
    assert!(matches!(step, CampaignStep::Sleep(_)), "{step:?}");
    let expired = BEGAN.after(Ttl::DEFAULT.get());
    assert!(matches!(sends(&mut campaign, expired, CampaignEvent::Woken), CampaignStep::Scan(_)));
    let step = sends(&mut campaign, expired, crate::scanned([held(5)]));
    assert!(matches!(step, CampaignStep::TakeOver(0, ..)), "{step:?}");
}

/// A record of the epoch that was released comes before the release, and not after it.
#[test]
fn a_released_slot_that_seems_held_again_is_looked_at_closely() {
    let mut campaign = campaign(AcquireTimeout::Forever, Terms::POLL);
    sends(&mut campaign, BEGAN, CampaignEvent::Woken);
    let released = Slot::Vacant(Vacant { last_epoch: Some(epoch(5)) });
    sends(&mut campaign, BEGAN, crate::scanned([released]));
    let busy = WriteError::NotApplied("busy".into());
    let step = campaign.on(BEGAN, CampaignEvent::Claimed(Err(busy)));
    let CampaignStep::Sleep(until) = step else { panic!("{step:?}") };
    sends(&mut campaign, until, CampaignEvent::Woken);
    let step = sends(&mut campaign, until, crate::scanned([held(5)]));
    assert!(matches!(step, CampaignStep::Read(0, _)), "{step:?}");
}

#[test]
fn a_storage_that_has_lost_an_epoch_ends_the_campaign() {
    let (mut campaign, now) = second_look();
    sends(&mut campaign, now, crate::scanned([older()]));
    let step = campaign.on(now, CampaignEvent::Read(Ok(older())));
    let CampaignStep::Failed(AcquireError::EpochWentBack { seen, found }) = step else {
        panic!("{step:?}");
    };
    assert_eq!((seen, found), (Some(epoch(5)), Some(epoch(4))));
}

/// Each refusal shows something new, or so a candidate believes, for a while.
#[test]
fn a_storage_that_refuses_what_it_offers_is_left_in_peace() {
    let mut campaign = campaign(AcquireTimeout::Forever, Terms::POLL);
    sends(&mut campaign, BEGAN, CampaignEvent::Woken);
    let mut event = crate::scanned([vacant()]);
    for _ in 0..20 {
        match campaign.on(BEGAN, event) {
            CampaignStep::Send => {}
            CampaignStep::Sleep(until) => {
                assert!(until > BEGAN);
                return;
            }
            other => panic!("{other:?}"),
        }
        let step = campaign.on(BEGAN, CampaignEvent::MaySend);
        assert!(matches!(step, CampaignStep::Insert(0, ..)), "{step:?}");
        event = CampaignEvent::Claimed(Ok(Claim::Refused(vacant())));
    }
    panic!("spins (I10)");
}
