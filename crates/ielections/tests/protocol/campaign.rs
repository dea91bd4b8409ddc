use crate::{BEGAN, Counting, campaign, failed, held, scanned, scanned_with_hints, sends, vacant};
use ielections::{
    AcquireError, AcquireTimeout, Claim, Delete, Entry, Epoch, Holder, ReadError, Slot, Swap, Terms, Timing,
    Ttl, Vacant, Version, WriteError,
    protocol::{Campaign, CampaignEvent, CampaignStep, ScanAnswer},
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use testing_time::MockWallClock;
use vvm_clock::Instant;

fn aged(slot: Slot, age: Duration) -> Slot {
    match slot {
        Slot::Held { entry, .. } => Slot::Held { entry, proven_age: Some(age) },
        vacant => vacant,
    }
}

#[test]
fn proven_age_of_each_record_shortens_the_wait() {
    for renewals in [0, 1] {
        let mut campaign = campaign(AcquireTimeout::Forever, Terms::POLL);
        let mut now = BEGAN;
        for seen in 0..renewals {
            now = next_after(&mut campaign, now, scanned([aged(renewed(seen), Duration::ZERO)]));
        }
        let nearly = aged(renewed(renewals), Ttl::DEFAULT.get() - Duration::from_millis(1));
        let until = next_after(&mut campaign, now, scanned([nearly]));
        assert_eq!(until, now.after(Duration::from_millis(1)), "not at the end of the TTL");
        let step = sends(&mut campaign, until, CampaignEvent::Woken);
        assert!(matches!(step, CampaignStep::TakeOver(0, ..)), "{step:?}");
    }
}

/// A record that is only found may be that of a dead leader.
#[test]
fn leader_is_seen_once_its_record_changes() {
    let mut campaign = campaign(AcquireTimeout::UntilLeaderSeen, Terms::POLL);
    let mut now = BEGAN;
    for renewals in [0, 0] {
        now = next_after(&mut campaign, now, scanned([renewed(renewals)]));
    }
    sends(&mut campaign, now, CampaignEvent::Woken);
    let step = campaign.on(now, scanned([renewed(1)]));
    assert!(matches!(step, CampaignStep::Failed(AcquireError::LeaderSeen { leader: Some(_) })), "{step:?}");
}

/// Candidates that start together must not all try the same slot (I11).
#[test]
fn candidates_try_different_slots_first() {
    let expired = aged(held(), Ttl::DEFAULT.get());
    for (free, other) in [(vacant(), held()), (vacant(), expired.clone()), (expired, held())] {
        let dice = Arc::new(Counting::default());
        let tried: BTreeSet<usize> = (0..8)
            .map(|_| {
                let mut campaign = of_slots(5, AcquireTimeout::Forever, Arc::clone(&dice));
                sends(&mut campaign, BEGAN, CampaignEvent::Woken);
                let mut slots = vec![free.clone(); 5];
                slots[2] = other.clone();
                match sends(&mut campaign, BEGAN, scanned(slots)) {
                    CampaignStep::Insert(slot, ..) | CampaignStep::TakeOver(slot, ..) => slot,
                    step => panic!("{step:?}"),
                }
            })
            .collect();
        assert!(tried.len() > 2, "all of them began with {tried:?}");
        assert!(!tried.contains(&2), "{other:?} before {free:?}");
    }
}

fn of_slots(slots: usize, timeout: AcquireTimeout, dice: Arc<Counting>) -> Campaign {
    let terms = Terms { timeout, ..Terms::new(Holder::new("leader").unwrap(), Ttl::DEFAULT) };
    Campaign::begin(terms, slots, BEGAN, dice, Arc::new(MockWallClock::new()))
}

#[test]
fn vacant_slot_is_claimed_even_if_another_one_could_not_be_read() {
    let mut campaign = of_slots(2, AcquireTimeout::Forever, Arc::default());
    sends(&mut campaign, BEGAN, CampaignEvent::Woken);
    let (seen, outcome) = (vec![None, Some(vacant())], Err(ReadError::Unavailable("down".into())));
    let partial = CampaignEvent::Scanned(ScanAnswer { seen, outcome, hints_follow: false });
    let step = sends(&mut campaign, BEGAN, partial);
    assert!(matches!(step, CampaignStep::Insert(1, ..)), "{step:?}");
}

/// Of two slots, one is never read.
#[test]
fn slot_that_is_never_read_ends_only_a_campaign_that_waits_for_a_leader() {
    let outage = Timing::new(Ttl::DEFAULT).outage();
    for (timeout, ends) in [(AcquireTimeout::UntilLeaderSeen, true), (AcquireTimeout::Forever, false)] {
        let mut campaign = of_slots(2, timeout, Arc::default());
        let (mut now, mut renewals) = (BEGAN, 0);
        loop {
            renewals += 1;
            assert!(matches!(sends(&mut campaign, now, CampaignEvent::Woken), CampaignStep::Scan(_)));
            let down = Err(ReadError::Unavailable("down".into()));
            let (seen, outcome) = (vec![Some(renewed(renewals)), None], down);
            let partial = CampaignEvent::Scanned(ScanAnswer { seen, outcome, hints_follow: false });
            match campaign.on(now, partial) {
                CampaignStep::Sleep(until) if now.since(BEGAN) < outage * 2 => now = until,
                CampaignStep::Sleep(_) => break assert!(!ends, "{timeout:?}"),
                CampaignStep::Failed(AcquireError::TimedOut { last_failure }) => {
                    assert_eq!(last_failure.as_deref(), Some("down"));
                    let after = now.since(BEGAN);
                    break assert!(ends && after >= outage && after <= outage + Terms::POLL, "{after:?}");
                }
                step => panic!("{step:?}"),
            }
        }
    }
}

pub(crate) fn renewed(renewals: u64) -> Slot {
    let Slot::Held { entry, proven_age } = held() else { panic!("vacant") };
    let version = Version { write: entry.version.write + renewals, ..entry.version };
    Slot::Held { entry: Entry { version, ..entry }, proven_age }
}

fn next_after(campaign: &mut Campaign, now: Instant, shown: CampaignEvent) -> Instant {
    assert!(matches!(sends(campaign, now, CampaignEvent::Woken), CampaignStep::Scan(_)));
    match campaign.on(now, shown) {
        CampaignStep::Sleep(until) => until,
        step => panic!("{step:?}"),
    }
}

#[test]
fn longest_poll_leaves_the_instant_at_which_the_record_expires() {
    let mut campaign = campaign(AcquireTimeout::Forever, Duration::MAX);
    let next = next_after(&mut campaign, BEGAN, scanned([held()]));
    assert_eq!(next, BEGAN.after(Ttl::DEFAULT.get()));
}

#[test]
fn held_slot_is_read_when_its_renewal_is_due_and_then_once_a_poll() {
    let soonest = Timing::new(Ttl::DEFAULT).soonest_renewal();
    let mut campaign = campaign(AcquireTimeout::Forever, Terms::POLL);
    let due = next_after(&mut campaign, BEGAN, scanned_with_hints([renewed(0)]));
    assert_eq!(due, BEGAN.after(soonest));
    let again = next_after(&mut campaign, due, scanned_with_hints([renewed(0)]));
    assert!(again <= due.after(Terms::POLL), "{again:?}");
    let due = next_after(&mut campaign, again, scanned_with_hints([renewed(1)]));
    assert_eq!(due, again.after(soonest));
}

/// The last renewal of a leader that dies is seen within a poll (I5). Shows I5.
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

#[test]
fn scan_slower_than_a_poll_still_leads_to_a_claim() {
    let mut campaign = campaign(AcquireTimeout::Forever, Terms::POLL);
    assert!(matches!(sends(&mut campaign, BEGAN, CampaignEvent::Woken), CampaignStep::Scan(_)));
    let answered_at = BEGAN.after(Terms::POLL * 3 / 2);
    let step = sends(&mut campaign, answered_at, scanned([vacant()]));
    assert!(matches!(step, CampaignStep::Insert(0, ..)), "{step:?}");
}

#[test]
fn zero_poll_still_pauses_between_scans() {
    let mut campaign = campaign(AcquireTimeout::Forever, Duration::ZERO);
    assert!(matches!(sends(&mut campaign, BEGAN, CampaignEvent::Woken), CampaignStep::Scan(_)));
    let step = campaign.on(BEGAN, scanned([held()]));
    assert!(matches!(step, CampaignStep::Sleep(until) if until > BEGAN), "{step:?}");
    let mut campaign = crate::campaign(AcquireTimeout::Forever, Duration::ZERO);
    assert!(matches!(sends(&mut campaign, BEGAN, CampaignEvent::Woken), CampaignStep::Scan(_)));
    let failed = failed(ReadError::Unavailable("down".into()));
    let step = campaign.on(BEGAN, failed);
    assert!(matches!(step, CampaignStep::Sleep(until) if until > BEGAN), "{step:?}");
}

fn epoch(number: u64) -> Epoch {
    Epoch::new(number).unwrap()
}

fn held_under(number: u64) -> Slot {
    ielections::testing::held(ielections::testing::entry(number as u8, 0, number))
}

fn second_scan() -> (Campaign, Instant) {
    let mut campaign = campaign(AcquireTimeout::Forever, Terms::POLL);
    sends(&mut campaign, BEGAN, CampaignEvent::Woken);
    let CampaignStep::Sleep(until) = campaign.on(BEGAN, scanned([held_under(5)])) else {
        panic!("nothing to wait for");
    };
    assert!(matches!(sends(&mut campaign, until, CampaignEvent::Woken), CampaignStep::Scan(_)));
    (campaign, until)
}

fn older() -> Slot {
    Slot::Vacant(Vacant { last_epoch: Some(epoch(4)) })
}

#[test]
fn slot_that_seems_to_go_back_is_read_linearizably() {
    let (mut campaign, now) = second_scan();
    let step = sends(&mut campaign, now, scanned([older()]));
    assert!(matches!(step, CampaignStep::Read(0, _)), "{step:?}");
    // The answer was stale: the record stands, and has been observed since the first scan.
    let step = campaign.on(now, CampaignEvent::Read(Ok(held_under(5))));
    assert!(matches!(step, CampaignStep::Sleep(_)), "{step:?}");
    let expired = BEGAN.after(Ttl::DEFAULT.get());
    assert!(matches!(sends(&mut campaign, expired, CampaignEvent::Woken), CampaignStep::Scan(_)));
    let step = sends(&mut campaign, expired, scanned([held_under(5)]));
    assert!(matches!(step, CampaignStep::TakeOver(0, ..)), "{step:?}");
}

#[test]
fn released_slot_is_claimed_without_another_read() {
    let (mut campaign, now) = second_scan();
    let released = Slot::Vacant(Vacant { last_epoch: Some(epoch(5)) });
    let step = sends(&mut campaign, now, scanned([released]));
    assert!(matches!(step, CampaignStep::Insert(0, ..)), "{step:?}");
}

/// A record of the released epoch is from before the release.
#[test]
fn released_slot_that_seems_held_again_is_read_linearizably() {
    let released = |number| Slot::Vacant(Vacant { last_epoch: Some(epoch(number)) });
    let table = [(held_under(5), true), (released(4), true), (released(5), false), (released(6), false)];
    for (seen, is_older) in table {
        let mut campaign = campaign(AcquireTimeout::Forever, Terms::POLL);
        sends(&mut campaign, BEGAN, CampaignEvent::Woken);
        sends(&mut campaign, BEGAN, scanned([released(5)]));
        let busy = WriteError::NotApplied("busy".into());
        let until = woken_at(campaign.on(BEGAN, CampaignEvent::Claimed(Err(busy))));
        sends(&mut campaign, until, CampaignEvent::Woken);
        let step = sends(&mut campaign, until, scanned([seen.clone()]));
        assert_eq!(matches!(step, CampaignStep::Read(0, _)), is_older, "{seen:?}: {step:?}");
    }
}

/// The leader whose renewal was lost may still work. Shows I5.
#[test]
fn record_that_went_back_is_observed_for_a_ttl_whatever_age_is_proven() {
    let restored = || aged(renewed(0), Ttl::DEFAULT.get());
    let mut campaign = campaign(AcquireTimeout::Forever, Terms::POLL);
    let mut now = next_after(&mut campaign, BEGAN, scanned([renewed(1)]));
    sends(&mut campaign, now, CampaignEvent::Woken);
    assert!(matches!(sends(&mut campaign, now, scanned([restored()])), CampaignStep::Read(0, _)));
    let expires = now.after(Ttl::DEFAULT.get());
    let mut step = campaign.on(now, CampaignEvent::Read(Ok(restored())));
    while let CampaignStep::Sleep(until) = step {
        now = until;
        step = match sends(&mut campaign, now, CampaignEvent::Woken) {
            CampaignStep::Scan(_) => campaign.on(now, scanned([restored()])),
            step => step,
        };
    }
    assert!(matches!(step, CampaignStep::TakeOver(0, ..)) && now == expires, "{step:?} at {now:?}");
}

#[test]
fn storage_that_lost_an_epoch_ends_the_campaign() {
    let (mut campaign, now) = second_scan();
    sends(&mut campaign, now, scanned([older()]));
    let step = campaign.on(now, CampaignEvent::Read(Ok(older())));
    let CampaignStep::Failed(AcquireError::EpochWentBack { seen, found }) = step else {
        panic!("{step:?}");
    };
    assert_eq!((seen, found), (Some(epoch(5)), Some(epoch(4))));
}

#[test]
fn campaign_pauses_after_many_refusals() {
    let mut campaign = campaign(AcquireTimeout::Forever, Terms::POLL);
    sends(&mut campaign, BEGAN, CampaignEvent::Woken);
    let mut step = campaign.on(BEGAN, scanned([vacant()]));
    let mut refusals = 0;
    while let CampaignStep::Send = step {
        let step_of_claim = campaign.on(BEGAN, CampaignEvent::MaySend);
        assert!(matches!(step_of_claim, CampaignStep::Insert(0, ..)), "{step_of_claim:?}");
        step = campaign.on(BEGAN, CampaignEvent::Claimed(Ok(Claim::Refused(vacant()))));
        refusals += 1;
        assert!(refusals < 20);
    }
    // One for the slot, and eight more, are allowed.
    assert_eq!(refusals, 10);
    let until = woken_at(step);
    assert!(until > BEGAN);
    // A timer that comes too early changes nothing.
    assert_eq!(woken_at(campaign.on(BEGAN, CampaignEvent::Woken)), until);
}

#[test]
fn early_timer_does_not_shorten_a_pause() {
    let mut campaign = campaign(AcquireTimeout::Forever, Terms::POLL);
    sends(&mut campaign, BEGAN, CampaignEvent::Woken);
    sends(&mut campaign, BEGAN, scanned([vacant()]));
    sends(&mut campaign, BEGAN, CampaignEvent::Claimed(Err(unknown())));
    let until = woken_at(campaign.on(BEGAN, CampaignEvent::Read(Ok(vacant()))));
    assert!(until > BEGAN);
    assert_eq!(woken_at(campaign.on(BEGAN, CampaignEvent::Woken)), until);
}

const LATE: Duration = Duration::from_secs(6);

fn unknown() -> WriteError {
    WriteError::Unknown("no answer".into())
}

fn stands(entry: &Entry) -> Slot {
    Slot::Held { entry: entry.clone(), proven_age: None }
}

/// Confirmed by a read-back after a quarter of its TTL. Returns the record, its renewal, and when that is sent.
fn confirmed_late(timeout: AcquireTimeout) -> (Campaign, Entry, Entry, Instant) {
    let mut campaign = campaign(timeout, Terms::POLL);
    sends(&mut campaign, BEGAN, CampaignEvent::Woken);
    let CampaignStep::Insert(0, _, claimed, _) = sends(&mut campaign, BEGAN, scanned([vacant()])) else {
        panic!("no claim of a vacant slot");
    };
    let now = BEGAN.after(LATE);
    sends(&mut campaign, BEGAN, CampaignEvent::Claimed(Err(unknown())));
    let CampaignStep::Renew(0, own, renewed, _) =
        sends(&mut campaign, now, CampaignEvent::Read(Ok(stands(&claimed))))
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

/// The lease numbers its writes from the one that it begins with.
#[test]
fn renewal_confirmed_after_a_later_attempt_is_renewed_again() {
    let (mut campaign, own, first, now) = confirmed_late(AcquireTimeout::Forever);
    sends(&mut campaign, now, CampaignEvent::TakenOver(Err(unknown())));
    let later = woken_at(campaign.on(now, CampaignEvent::Read(Ok(stands(&own)))));
    let CampaignStep::Renew(0, _, second, _) = sends(&mut campaign, later, CampaignEvent::Woken) else {
        panic!("an undecided attempt was not repeated");
    };
    let refused = CampaignEvent::TakenOver(Ok(Swap::Mismatch(stands(&first))));
    let step = sends(&mut campaign, later, refused);
    let CampaignStep::Renew(0, basis, third, _) = step else { panic!("{step:?}") };
    assert_eq!(basis, first);
    assert!(third.version.write > second.version.write, "a version twice");
    let step = campaign.on(later, CampaignEvent::TakenOver(Ok(Swap::Swapped)));
    assert!(matches!(&step, CampaignStep::Won(won) if won.entry == third), "{step:?}");
}

#[test]
fn candidate_out_of_time_still_renews_its_own_record() {
    let (mut campaign, _, _, now) = confirmed_late(AcquireTimeout::Within(LATE + Duration::from_nanos(1)));
    let busy = WriteError::NotApplied("busy".into());
    let later = woken_at(campaign.on(now, CampaignEvent::TakenOver(Err(busy))));
    assert_eq!(later, now.after(Duration::from_nanos(1)));
    let step = sends(&mut campaign, later, CampaignEvent::Woken);
    assert!(matches!(step, CampaignStep::Renew(0, ..)), "{step:?}");
    let step = campaign.on(later, CampaignEvent::TakenOver(Ok(Swap::Swapped)));
    assert!(matches!(step, CampaignStep::Won(_)), "{step:?}");
}

/// Only while the state that it replaces stands, it may still be applied. Shows I7.
#[test]
fn attempt_without_an_answer_is_repeated_while_its_condition_stands() {
    let expired = || aged(held(), Ttl::DEFAULT.get());
    let table = [
        (vacant(), vacant(), true),
        (vacant(), held_under(5), false),
        (expired(), expired(), true),
        (expired(), renewed(1), false),
        (expired(), held_under(5), false),
    ];
    for (before, shown, stands) in table {
        let case = format!("{before:?}, then {shown:?}");
        let mut campaign = campaign(AcquireTimeout::Forever, Terms::POLL);
        sends(&mut campaign, BEGAN, CampaignEvent::Woken);
        sends(&mut campaign, BEGAN, scanned([before]));
        sends(&mut campaign, BEGAN, CampaignEvent::Claimed(Err(unknown())));
        let until = woken_at(campaign.on(BEGAN, CampaignEvent::Read(Ok(shown))));
        let step = sends(&mut campaign, until, CampaignEvent::Woken);
        let is_repeated = matches!(step, CampaignStep::Insert(..) | CampaignStep::TakeOver(..));
        assert_eq!(is_repeated, stands, "{case}: {step:?}");
    }
}

/// Two copies of one process draw the same incarnation, and the epochs of their claims differ.
#[test]
fn claim_of_a_copy_is_not_taken_for_the_own_one() {
    let mut campaign = campaign(AcquireTimeout::Forever, Terms::POLL);
    sends(&mut campaign, BEGAN, CampaignEvent::Woken);
    let CampaignStep::Insert(0, _, own, _) = sends(&mut campaign, BEGAN, scanned([vacant()])) else {
        panic!("no claim of a vacant slot");
    };
    let of_copy = Entry { epoch: epoch(own.epoch.get() + 1), ..own };
    let step = campaign.on(BEGAN, CampaignEvent::Claimed(Ok(Claim::Refused(stands(&of_copy)))));
    assert!(matches!(step, CampaignStep::Sleep(_)), "{step:?}");
}

/// Shows I7.
#[test]
fn attempt_that_is_not_applied_does_not_settle_an_earlier_one() {
    let mut campaign = campaign(AcquireTimeout::Forever, Terms::POLL);
    sends(&mut campaign, BEGAN, CampaignEvent::Woken);
    let CampaignStep::Insert(0, _, first, _) = sends(&mut campaign, BEGAN, scanned([vacant()])) else {
        panic!("no claim of a vacant slot");
    };
    sends(&mut campaign, BEGAN, CampaignEvent::Claimed(Err(unknown())));
    let later = woken_at(campaign.on(BEGAN, CampaignEvent::Read(Ok(vacant()))));
    let again = sends(&mut campaign, later, CampaignEvent::Woken);
    assert!(matches!(again, CampaignStep::Insert(0, ..)), "{again:?}");
    campaign.on(later, CampaignEvent::Claimed(Err(WriteError::NotApplied("busy".into()))));
    assert_eq!(campaign.abandon(), Some((0, vec![first])));
}

/// Shows I7.
#[test]
fn deletion_of_a_record_left_behind_is_repeated_until_a_read_or_an_answer_shows_its_end() {
    let Slot::Held { entry: left, .. } = held() else { unreachable!("it is held") };
    let mut terms = Terms::new(Holder::new("leader").unwrap(), Ttl::DEFAULT);
    terms.left_behind.push((left.incarnation(), left.epoch));
    let begin = || {
        let wall = Arc::new(MockWallClock::new());
        let mut campaign = Campaign::begin(terms.clone(), 1, BEGAN, Arc::new(Counting::default()), wall);
        sends(&mut campaign, BEGAN, CampaignEvent::Woken);
        let step = sends(&mut campaign, BEGAN, scanned([held()]));
        assert!(matches!(step, CampaignStep::Delete(0, of, epoch, _) if left.is_of(of, epoch)), "{step:?}");
        campaign
    };
    let gone = || Slot::Vacant(Vacant { last_epoch: Some(left.epoch) });
    let mut campaign = begin();
    for outcome in [WriteError::NotApplied("full".into()), WriteError::Unknown("silent".into())] {
        let CampaignStep::Sleep(until) = campaign.on(BEGAN, CampaignEvent::Deleted(Err(outcome))) else {
            panic!("no pause");
        };
        assert!(matches!(sends(&mut campaign, until, CampaignEvent::Woken), CampaignStep::Scan(_)));
        let step = sends(&mut campaign, until, scanned([held()]));
        assert!(matches!(step, CampaignStep::Delete(..)), "{step:?}");
    }
    let step = sends(&mut campaign, BEGAN, CampaignEvent::Deleted(Ok(Delete::Mismatch(gone()))));
    assert!(matches!(step, CampaignStep::Insert(..)), "{step:?}");
    let step = sends(&mut begin(), BEGAN, CampaignEvent::Deleted(Ok(Delete::Deleted)));
    assert!(matches!(step, CampaignStep::Insert(..)), "{step:?}");
    // A storage that contradicts itself does not keep the candidate busy (I10).
    let step = begin().on(BEGAN, CampaignEvent::Deleted(Ok(Delete::Mismatch(held()))));
    assert!(matches!(step, CampaignStep::Sleep(_)), "{step:?}");
}
