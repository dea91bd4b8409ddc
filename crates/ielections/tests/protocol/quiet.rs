//! A storage whose hints follow releases is read when a renewal is due.

use crate::{
    failed,
    outage::{BEGAN, campaign, held, sends, vacant},
    scanned, scanned_with_hints,
};
use ielections::{
    AcquireTimeout, Entry, ReadError, Slot, Terms, Timing, Ttl, Version,
    protocol::{Campaign, CampaignEvent, CampaignStep},
};
use std::time::Duration;
use vvm_clock::Instant;

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
