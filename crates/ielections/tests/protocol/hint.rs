use crate::{BEGAN, campaign, failed, held, scanned, sends, vacant};
use ielections::{
    AcquireTimeout, Claim, ReadError, Terms, Ttl, WriteError,
    protocol::{Campaign, CampaignEvent, CampaignStep},
};
use std::time::Duration;
use vvm_clock::Instant;

const A_MOMENT: Duration = Duration::from_millis(1);

fn asleep(step: &CampaignStep) -> Instant {
    let CampaignStep::Sleep(until) = step else { panic!("{step:?}") };
    *until
}

fn standing_by() -> (Campaign, Instant) {
    let mut campaign = campaign(AcquireTimeout::Forever, Terms::POLL);
    sends(&mut campaign, BEGAN, CampaignEvent::Woken);
    let until = asleep(&campaign.on(BEGAN, scanned([held()])));
    assert!(until >= BEGAN.after(Terms::POLL / 2));
    (campaign, until)
}

/// Each hint causes a scan, and the record is still taken over at its time, no earlier (I5). Shows I5.
#[test]
fn hints_cause_no_early_take_over() {
    let (mut campaign, _) = standing_by();
    let opens_at = BEGAN.after(Ttl::DEFAULT.get());
    let (mut now, mut looks) = (BEGAN, 0);
    loop {
        now = now.after(Terms::HINT_GAP / 3);
        let until = asleep(&campaign.on(now, CampaignEvent::Hinted));
        if until > now {
            continue;
        }
        match sends(&mut campaign, now, CampaignEvent::Woken) {
            CampaignStep::Scan(_) => looks += 1,
            CampaignStep::TakeOver(..) => break,
            step => panic!("{step:?}"),
        }
        match campaign.on(now, scanned([held()])) {
            CampaignStep::Sleep(_) => {}
            CampaignStep::Send => break,
            step => panic!("{step:?}"),
        }
    }
    assert!(opens_at <= now && now < opens_at.after(Terms::HINT_GAP * 2), "taken over at {now:?}");
    assert!(looks > 500, "{looks} looks");
}

/// The answer in flight may be from before the change.
#[test]
fn hint_during_a_scan_causes_another_one() {
    let (mut campaign, until) = standing_by();
    sends(&mut campaign, until, CampaignEvent::Woken);
    campaign.on(until, CampaignEvent::Hinted);
    let next = asleep(&campaign.on(until, scanned([held()])));
    assert_eq!(next, until.after(Terms::HINT_GAP));
    assert!(matches!(sends(&mut campaign, next, CampaignEvent::Woken), CampaignStep::Scan(_)));
    let after = asleep(&campaign.on(next, scanned([held()])));
    assert!(after > next.after(Terms::POLL / 2), "one hint causes one scan");
}

/// For example, the name was paused, and the hint announces that it is resumed.
#[test]
fn hint_shortens_the_pause_after_a_refused_claim() {
    let refused = || CampaignEvent::Claimed(Err(WriteError::NotApplied("paused".into())));
    for during in [false, true] {
        let mut campaign = campaign(AcquireTimeout::Forever, Terms::POLL);
        sends(&mut campaign, BEGAN, CampaignEvent::Woken);
        sends(&mut campaign, BEGAN, scanned([vacant()]));
        let until = if during {
            campaign.on(BEGAN, CampaignEvent::Hinted);
            asleep(&campaign.on(BEGAN, refused()))
        } else {
            assert!(asleep(&campaign.on(BEGAN, refused())) > BEGAN.after(Terms::HINT_GAP));
            asleep(&campaign.on(BEGAN, CampaignEvent::Hinted))
        };
        assert_eq!(until, BEGAN.after(Terms::HINT_GAP), "during: {during}");
        assert!(matches!(sends(&mut campaign, until, CampaignEvent::Woken), CampaignStep::Scan(_)));
    }
}

#[test]
fn hint_does_not_shorten_the_pause_after_a_failure() {
    let (mut campaign, until) = standing_by();
    sends(&mut campaign, until, CampaignEvent::Woken);
    let down = || failed(ReadError::Unavailable("down".into()));
    let pause_ends = asleep(&campaign.on(until, down()));
    assert!(pause_ends > until.after(Terms::HINT_GAP));
    assert_eq!(asleep(&campaign.on(until.after(A_MOMENT), CampaignEvent::Hinted)), pause_ends);
    assert!(matches!(sends(&mut campaign, pause_ends, CampaignEvent::Woken), CampaignStep::Scan(_)));
}

/// Every claim after one scan is refused: a faulty storage. Shows I10.
#[test]
fn hints_do_not_shorten_the_pause_after_many_refusals() {
    let mut campaign = campaign(AcquireTimeout::Forever, Terms::POLL);
    sends(&mut campaign, BEGAN, CampaignEvent::Woken);
    let mut step = campaign.on(BEGAN, scanned([vacant()]));
    let mut claims = 0;
    while matches!(step, CampaignStep::Send) {
        campaign.on(BEGAN, CampaignEvent::MaySend);
        campaign.on(BEGAN, CampaignEvent::Hinted);
        step = campaign.on(BEGAN, CampaignEvent::Claimed(Ok(Claim::Refused(vacant()))));
        claims += 1;
    }
    let until = asleep(&step);
    assert!(claims < 20 && until > BEGAN.after(Terms::HINT_GAP), "{claims} claims, then {until:?}");
    assert_eq!(asleep(&campaign.on(BEGAN, CampaignEvent::Hinted)), until);
}

/// While an attempt is unresolved, only its slot is read (I7).
#[test]
fn hint_does_not_affect_an_unresolved_attempt() {
    let mut campaign = campaign(AcquireTimeout::Forever, Terms::POLL);
    sends(&mut campaign, BEGAN, CampaignEvent::Woken);
    sends(&mut campaign, BEGAN, scanned([vacant()]));
    sends(&mut campaign, BEGAN, CampaignEvent::Claimed(Err(WriteError::Unknown("down".into()))));
    let until = asleep(&campaign.on(BEGAN, CampaignEvent::Read(Ok(vacant()))));
    assert_eq!(asleep(&campaign.on(BEGAN.after(Terms::HINT_GAP), CampaignEvent::Hinted)), until);
    assert!(matches!(sends(&mut campaign, until, CampaignEvent::Woken), CampaignStep::Insert(0, ..)));
}
