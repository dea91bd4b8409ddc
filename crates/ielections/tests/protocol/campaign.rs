//! Campaigns, leases and releases of several candidates in a simulated [world](crate::world).

use crate::{
    failed,
    outage::{BEGAN, Counting, campaign, held, sends, vacant},
    scanned, scanned_with_hints,
    tape::Tape,
    world::{Counts, World},
};
use ielections::{
    AcquireTimeout, Entry, Holder, ReadError, Slot, Terms, Timing, Ttl, Version,
    protocol::{Campaign, CampaignEvent, CampaignStep},
};
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::{cell::Cell, collections::BTreeSet, sync::Arc, time::Duration};
use testing_time::MockWallClock;
use vvm_clock::Instant;

/// I1, I3, I5, I6, I7 and I10, with clocks that run up to 10 % fast or slow, late and lost calls, stalls,
/// crashes and kills, and guardians that release after a death, also late and twice. Then, without faults, as
/// many candidates as possible must lead.
#[test]
fn candidates_under_faults_never_lead_at_once_and_lead_again_afterwards() {
    let met = Cell::new(Counts::default());
    let mut runner = TestRunner::new(Config {
        cases: 500,
        max_shrink_iters: 300,
        failure_persistence: None,
        ..Config::default()
    });
    let outcome = runner.run(&Tape::up_to(12_000), |tape| {
        let counts = World::begin(tape).run().map_err(TestCaseError::fail)?;
        let mut sum = met.get();
        sum += counts;
        met.set(sum);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    // Without faults the test would show nothing.
    let met = met.get();
    let each = [
        met.won,
        met.taken_over,
        met.renewed,
        met.lost,
        met.killed,
        met.landed_late,
        met.own_renewed,
        met.abandoned,
        met.hinted,
        met.released_by_guardian,
        met.refused_to_guardian,
    ];
    assert!(each.iter().all(|count| *count >= 30), "{met:?}");
}

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

/// The record after so many renewals.
fn renewed(renewals: u64) -> Slot {
    let Slot::Held { entry, proven_age } = held() else { panic!("vacant") };
    let version = Version { write: entry.version.write + renewals, ..entry.version };
    Slot::Held { entry: Entry { version, ..entry }, proven_age }
}

/// Scans at `now`, shows `slots`, and returns when the next scan is.
fn next_after(campaign: &mut Campaign, now: Instant, shown: CampaignEvent) -> Instant {
    assert!(matches!(sends(campaign, now, CampaignEvent::Woken), CampaignStep::Scan(_)));
    match campaign.on(now, shown) {
        CampaignStep::Sleep(until) => until,
        step => panic!("{step:?}"),
    }
}

#[test]
fn held_slot_is_read_when_its_renewal_is_due_and_then_once_a_poll() {
    let soonest = Timing::of(Ttl::DEFAULT).soonest_renewal();
    let mut campaign = campaign(AcquireTimeout::Forever, Terms::POLL);
    let due = next_after(&mut campaign, BEGAN, scanned_with_hints([renewed(0)]));
    assert_eq!(due, BEGAN.after(soonest));
    // It is late: polls follow.
    let again = next_after(&mut campaign, due, scanned_with_hints([renewed(0)]));
    assert!(again <= due.after(Terms::POLL), "{again:?}");
    let due = next_after(&mut campaign, again, scanned_with_hints([renewed(1)]));
    assert_eq!(due, again.after(soonest));
}

/// A leader renews punctually, then dies. Its last renewal is seen within a poll, so the record is taken over
/// as early as without hints; and no earlier (I5). Shows I5.
#[test]
fn record_is_taken_over_as_early_as_without_hints_and_with_a_quarter_of_the_reads() {
    let interval = Ttl::DEFAULT.get() / 4 * 19 / 20;
    let renewals = 40;
    let end = |shown: fn([Slot; 1]) -> CampaignEvent| {
        let mut campaign = campaign(AcquireTimeout::Forever, Terms::POLL);
        let (mut now, mut reads) = (BEGAN, 0);
        loop {
            match sends(&mut campaign, now, CampaignEvent::Woken) {
                CampaignStep::Scan(_) => reads += 1,
                CampaignStep::TakeOver(..) => return (now, reads),
                step => panic!("{step:?}"),
            }
            let written = now.since(BEGAN).div_duration_f64(interval) as u64;
            match campaign.on(now, shown([renewed(written.min(renewals))])) {
                CampaignStep::Sleep(until) => now = until,
                CampaignStep::Send => return (now, reads),
                step => panic!("{step:?}"),
            }
        }
    };
    let last = BEGAN.after(interval * renewals as u32);
    let (polled_at, polls) = end(scanned);
    let (hinted_at, reads) = end(scanned_with_hints);
    for taken_over_at in [polled_at, hinted_at] {
        let after = taken_over_at.since(last);
        assert!(after >= Ttl::DEFAULT.get(), "early: {after:?}");
        assert!(after <= Ttl::DEFAULT.get() + Terms::POLL, "late: {after:?}");
    }
    // The reads of the last TTL, in which no renewal shows, are polls in both.
    assert!(reads * 3 < polls, "{reads} reads, and {polls} without hints");
}

#[test]
fn slot_that_may_open_is_polled_in_spite_of_hints() {
    let polled = |until: Instant| until <= BEGAN.after(Terms::POLL);
    let mut of_a_vacant_slot = campaign(AcquireTimeout::Forever, Terms::POLL);
    sends(&mut of_a_vacant_slot, BEGAN, CampaignEvent::Woken);
    // It tries the vacant slot, and is refused.
    sends(&mut of_a_vacant_slot, BEGAN, scanned_with_hints([vacant()]));
    let refused = CampaignEvent::Claimed(Err(ielections::WriteError::NotApplied("paused".into())));
    let CampaignStep::Sleep(until) = of_a_vacant_slot.on(BEGAN, refused) else { panic!("no pause") };
    assert!(polled(until), "{until:?}");

    let mut of_a_failed_scan = campaign(AcquireTimeout::Forever, Terms::POLL);
    let down = failed(ReadError::Unavailable("down".into()));
    assert!(polled(next_after(&mut of_a_failed_scan, BEGAN, down)));

    let mut without_hints = campaign(AcquireTimeout::Forever, Terms::POLL);
    assert!(polled(next_after(&mut without_hints, BEGAN, scanned([held()]))));
}

#[test]
fn long_ttl_does_not_keep_a_campaign_from_reading() {
    let Slot::Held { entry, proven_age } = held() else { panic!("vacant") };
    let ttl = Ttl::new(Duration::from_secs(600)).unwrap();
    let slow = Slot::Held { entry: Entry { ttl, ..entry }, proven_age };
    let mut campaign = campaign(AcquireTimeout::Forever, Terms::POLL);
    let next = next_after(&mut campaign, BEGAN, scanned_with_hints([slow]));
    assert_eq!(next, BEGAN.after(Terms::LONGEST_QUIET));
}
