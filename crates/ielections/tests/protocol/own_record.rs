//! A record of the candidate itself, confirmed too late to start work: it is renewed until it is fresh.

use crate::outage::{BEGAN, campaign, sends, vacant};
use ielections::{
    AcquireTimeout, Entry, Slot, Swap, Terms, WriteError,
    protocol::{Campaign, CampaignEvent, CampaignStep},
};
use std::time::Duration;
use vvm_clock::Instant;

const LATE: Duration = Duration::from_secs(6);

fn unknown() -> WriteError {
    WriteError::Unknown("no answer".into())
}

fn held(entry: &Entry) -> Slot {
    Slot::Held { entry: entry.clone(), proven_age: None }
}

/// A claim that was applied, and confirmed by a read-back after a quarter of its TTL. Returns the record, the
/// renewal that is sent for it, and when.
fn confirmed_late(timeout: AcquireTimeout) -> (Campaign, Entry, Entry, Instant) {
    let mut campaign = campaign(timeout, Terms::POLL);
    sends(&mut campaign, BEGAN, CampaignEvent::Woken);
    let CampaignStep::Insert(0, _, claimed, _) = sends(&mut campaign, BEGAN, crate::scanned([vacant()]))
    else {
        panic!("no claim of a vacant slot");
    };
    let now = BEGAN.after(LATE);
    sends(&mut campaign, BEGAN, CampaignEvent::Claimed(Err(unknown())));
    let CampaignStep::Renew(0, own, renewed, _) =
        sends(&mut campaign, now, CampaignEvent::Read(Ok(held(&claimed))))
    else {
        panic!("late, and not renewed");
    };
    assert_eq!(own, claimed);
    (campaign, own, renewed, now)
}

fn woken_at(step: CampaignStep) -> Instant {
    let CampaignStep::Sleep(until) = step else { panic!("{step:?}") };
    until
}

#[test]
fn claim_confirmed_late_counts_from_its_renewal() {
    let (mut campaign, _, renewed, now) = confirmed_late(AcquireTimeout::Forever);
    let step = campaign.on(now, CampaignEvent::Swapped(Ok(Swap::Swapped)));
    let CampaignStep::Won(won) = step else { panic!("{step:?}") };
    assert_eq!((won.entry, won.sent_at), (renewed, now));
}

/// The lease numbers its writes from the one that it begins with.
#[test]
fn renewal_confirmed_after_a_later_attempt_is_renewed_again() {
    let (mut campaign, own, first, now) = confirmed_late(AcquireTimeout::Forever);
    sends(&mut campaign, now, CampaignEvent::Swapped(Err(unknown())));
    let later = woken_at(campaign.on(now, CampaignEvent::Read(Ok(held(&own)))));
    let CampaignStep::Renew(0, _, second, _) = sends(&mut campaign, later, CampaignEvent::Woken) else {
        panic!("an undecided attempt was not repeated");
    };
    let refused = CampaignEvent::Swapped(Ok(Swap::Mismatch(held(&first))));
    let step = sends(&mut campaign, later, refused);
    let CampaignStep::Renew(0, basis, third, _) = step else { panic!("{step:?}") };
    assert_eq!(basis, first);
    assert!(third.version.write > second.version.write, "a version twice");
    let step = campaign.on(later, CampaignEvent::Swapped(Ok(Swap::Swapped)));
    assert!(matches!(&step, CampaignStep::Won(won) if won.entry == third), "{step:?}");
}

/// A campaign out of time still renews its own record.
#[test]
fn candidate_out_of_time_still_renews_its_own_record() {
    let (mut campaign, _, _, now) = confirmed_late(AcquireTimeout::Within(LATE + Duration::from_nanos(1)));
    let busy = WriteError::NotApplied("busy".into());
    let later = woken_at(campaign.on(now, CampaignEvent::Swapped(Err(busy))));
    assert_eq!(later, now.after(Duration::from_nanos(1)));
    let step = sends(&mut campaign, later, CampaignEvent::Woken);
    assert!(matches!(step, CampaignStep::Renew(0, ..)), "{step:?}");
    let step = campaign.on(later, CampaignEvent::Swapped(Ok(Swap::Swapped)));
    assert!(matches!(step, CampaignStep::Won(_)), "{step:?}");
}
