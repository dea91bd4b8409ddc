//! A candidate and a storage that contradicts itself: stale answers are harmless, lost writes end the
//! campaign, and endless refusals do not keep it busy.

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
        holder: Holder::new("leader else").unwrap(),
        version: Version { incarnation: Incarnation::from_bytes([number as u8; 16]), write: 0 },
        ttl: Ttl::DEFAULT,
        epoch: epoch(number),
    };
    Slot::Held { entry, proven_age: None }
}

/// Has seen one slot held under epoch 5, and scans again.
fn second_scan() -> (Campaign, Instant) {
    let mut campaign = campaign(AcquireTimeout::Forever, Terms::POLL);
    sends(&mut campaign, BEGAN, CampaignEvent::Woken);
    let CampaignStep::Sleep(until) = campaign.on(BEGAN, crate::scanned([held(5)])) else {
        panic!("nothing to wait for");
    };
    assert!(matches!(sends(&mut campaign, until, CampaignEvent::Woken), CampaignStep::Scan(_)));
    (campaign, until)
}

/// An earlier state of the slot, as a stale scan may show it.
fn older() -> Slot {
    Slot::Vacant(Vacant { last_epoch: Some(epoch(4)) })
}

#[test]
fn slot_that_seems_to_go_back_is_read_linearizably() {
    let (mut campaign, now) = second_scan();
    let step = sends(&mut campaign, now, crate::scanned([older()]));
    assert!(matches!(step, CampaignStep::Read(0, _)), "{step:?}");
    // The answer was stale: the record stands, and has been observed since the first scan.
    let step = campaign.on(now, CampaignEvent::Read(Ok(held(5))));
    assert!(matches!(step, CampaignStep::Sleep(_)), "{step:?}");
    let expired = BEGAN.after(Ttl::DEFAULT.get());
    assert!(matches!(sends(&mut campaign, expired, CampaignEvent::Woken), CampaignStep::Scan(_)));
    let step = sends(&mut campaign, expired, crate::scanned([held(5)]));
    assert!(matches!(step, CampaignStep::TakeOver(0, ..)), "{step:?}");
}

/// A record of the released epoch is from before the release.
#[test]
fn released_slot_that_seems_held_again_is_read_linearizably() {
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
fn storage_that_lost_an_epoch_ends_the_campaign() {
    let (mut campaign, now) = second_scan();
    sends(&mut campaign, now, crate::scanned([older()]));
    let step = campaign.on(now, CampaignEvent::Read(Ok(older())));
    let CampaignStep::Failed(AcquireError::EpochWentBack { seen, found }) = step else {
        panic!("{step:?}");
    };
    assert_eq!((seen, found), (Some(epoch(5)), Some(epoch(4))));
}

/// Each refusal shows another state of the slot.
#[test]
fn campaign_pauses_after_many_refusals() {
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
