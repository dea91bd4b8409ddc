//! When a slot can be claimed, and which of several is claimed first.

use crate::outage::{BEGAN, Counting, campaign, held, sends, vacant};
use ielections::{
    AcquireTimeout, Holder, Slot, Terms, Ttl,
    protocol::{Campaign, CampaignEvent, CampaignStep},
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use testing_time::MockWallClock;

fn aged(slot: Slot, age: Duration) -> Slot {
    match slot {
        Slot::Held { entry, .. } => Slot::Held { entry, proven_age: Some(age) },
        vacant => vacant,
    }
}

/// A candidate does not wait again for an age that the storage proves.
#[test]
fn proven_age_shortens_the_wait_of_a_new_candidate() {
    let mut campaign = campaign(AcquireTimeout::Forever, Terms::POLL);
    sends(&mut campaign, BEGAN, CampaignEvent::Woken);
    let nearly = aged(held(), Ttl::DEFAULT.get() - Duration::from_millis(1));
    let CampaignStep::Sleep(until) = campaign.on(BEGAN, crate::scanned([nearly])) else {
        panic!("took over before its time");
    };
    assert_eq!(until, BEGAN.after(Duration::from_millis(1)), "not at the end of the TTL");
    let step = sends(&mut campaign, until, CampaignEvent::Woken);
    assert!(matches!(step, CampaignStep::TakeOver(0, ..)), "{step:?}");
}

/// Candidates that start together must not all try the same slot (I11).
#[test]
fn candidates_try_different_slots_first() {
    let dice = Arc::new(Counting::default());
    let tried: BTreeSet<usize> = (0..8)
        .map(|_| {
            let terms = Terms::new(Holder::new("leader").unwrap(), Ttl::DEFAULT);
            let wall = Arc::new(MockWallClock::new());
            let mut campaign = Campaign::begin(terms, 5, BEGAN, Arc::clone(&dice) as _, wall);
            sends(&mut campaign, BEGAN, CampaignEvent::Woken);
            let mut slots = vec![vacant(); 5];
            slots[2] = held();
            let step = sends(&mut campaign, BEGAN, crate::scanned(slots));
            let CampaignStep::Insert(slot, ..) = step else { panic!("{step:?}") };
            slot
        })
        .collect();
    assert!(tried.len() > 2, "all of them began with {tried:?}");
    assert!(!tried.contains(&2), "a held slot before a vacant one");
}
