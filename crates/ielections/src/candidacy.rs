use crate::{Epoch, Holder, Incarnation, Ttl, storage::Cause, timing::SupportPeriodOutOfRange};
use std::{fmt::Display, time::Duration};
use vvm_clock::DisplayDuration;
use vvm_deadman::ArmError;

/// The slots that a candidate campaigns for, and its terms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidacy<K> {
    /// Any one of these.
    pub slots: Vec<K>,
    /// Holder, TTL and time limit.
    pub terms: Terms,
}

/// The terms of one campaign.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Terms {
    /// The name of the candidate, for people.
    pub holder: Holder,
    /// The leadership duration, fixed for the life of the leadership.
    pub ttl: Ttl,
    /// When to give up.
    pub timeout: AcquireTimeout,
    /// The longest time between two reads of the slots, unless hints follow releases. Each pause is up to a quarter
    /// shorter, at random. A release is seen within it.
    pub poll: Duration,
    /// Records of earlier leaderships of this process whose release failed ([`ReleaseOutcome::LeftToExpire`]). The
    /// work under each has stopped (I6). The campaign deletes one that still stands before it claims a slot.
    ///
    /// [`ReleaseOutcome::LeftToExpire`]: crate::ReleaseOutcome::LeftToExpire
    pub left_behind: Vec<(Incarnation, Epoch)>,
}

impl Terms {
    /// The longest default time between two reads.
    pub const POLL: Duration = Duration::from_secs(1);

    /// The shortest poll. A shorter one would keep a standby busy with reads (I10).
    pub const MIN_POLL: Duration = Duration::from_millis(5);

    /// The shortest time between a read and the next that a hint causes: at most fifty reads a second (I10, I11).
    pub const HINT_GAP: Duration = Duration::from_millis(20);

    /// The longest time between two reads while hints follow releases, and the delay if the hints silently end.
    pub const LONGEST_QUIET: Duration = Duration::from_secs(10);

    /// The usual terms: wait for ever, with the [usual poll](Self::usual_poll).
    pub fn new(holder: Holder, ttl: Ttl) -> Self {
        let (timeout, poll) = (AcquireTimeout::Forever, Self::usual_poll(ttl));
        Self { holder, ttl, timeout, poll, left_behind: Vec::new() }
    }

    /// At least one read a second, and four in each TTL.
    pub fn usual_poll(ttl: Ttl) -> Duration {
        Self::POLL.min(ttl.get() / 4)
    }
}

/// When a campaign gives up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AcquireTimeout {
    /// Never: campaign until a slot is won.
    Forever,
    /// After this time. With [`Duration::ZERO`] the campaign reads once, and claims a slot if one is free.
    Within(Duration),
    /// Once a live leader was seen on every slot, which means a renewal or a take-over. This can take one
    /// TTL. A record alone is no evidence, since its leader may have crashed. If the storage is unreachable
    /// for [`Timing::outage`](crate::Timing::outage) (1.4 TTL), the campaign times out.
    UntilLeaderSeen,
}

/// No leadership was acquired. The campaign left no record in the storage, or one that expires within a TTL.
#[derive(Debug, thiserror::Error)]
pub enum AcquireError {
    /// Until the time limit, every slot was taken or the storage was unreachable.
    #[error("no slot was acquired in time{}", detail(": ", last_failure))]
    TimedOut {
        /// The last failure of a storage call, if one failed.
        last_failure: Option<String>,
    },
    /// Every slot has a live leader ([`AcquireTimeout::UntilLeaderSeen`](crate::AcquireTimeout)).
    #[error("every slot has a live leader{}", detail(", among them ", leader))]
    LeaderSeen {
        /// One of them.
        leader: Option<Holder>,
    },
    /// The elections are closing or closed.
    #[error("the elections are closing")]
    Closing,
    /// The candidacy names no slot.
    #[error("the candidacy names no slot: name at least one")]
    NoSlots,
    /// The TTL is shorter than the storage's round trips allow.
    #[error("a TTL of {} is too short for this storage: at least {}", DisplayDuration(*ttl), DisplayDuration(*least))]
    TtlTooShort {
        /// The TTL of the candidacy.
        ttl: Duration,
        /// The driver's minimum ([`Limits::min_ttl`](crate::Limits)).
        least: Duration,
    },
    /// A candidate with a successor campaigns for one slot.
    #[error("a candidate with a successor campaigns for one slot, and this candidacy names more")]
    SuccessorOfManySlots,
    /// The support period does not fit the TTL.
    #[error(transparent)]
    SupportPeriod(#[from] SupportPeriodOutOfRange),
    /// The support period is shorter than the storage's round trips allow.
    #[error(
        "a support period of {} is too short for this storage: at least {}",
        DisplayDuration(*period),
        DisplayDuration(*least)
    )]
    SupportTooShort {
        /// The support period.
        period: Duration,
        /// The driver's minimum ([`Limits::min_ttl`](crate::Limits)).
        least: Duration,
    },
    /// The storage refuses for good. Retrying is pointless until the operator corrects the cause.
    #[error("the storage refuses for good: {0}")]
    Refused(#[source] Cause),
    /// The storage has forgotten epochs that this candidate has seen, as after a restore from backup. The leader of a
    /// forgotten epoch may still be at work. Acquiring again after the longest TTL in use is safe.
    #[error(
        "the storage went back in time: it showed {} before and {} now; was it restored from a backup?",
        Epoch::or_none(*seen),
        Epoch::or_none(*found)
    )]
    EpochWentBack {
        /// The largest epoch that the candidate has seen.
        seen: Option<Epoch>,
        /// The epoch that a linearizable read found after that.
        found: Option<Epoch>,
    },
    /// The kill deadline could not be armed; the record was released.
    #[error("the kill deadline could not be armed: {0}")]
    Deadman(#[from] ArmError),
}

fn detail(before: &str, detail: &Option<impl Display>) -> String {
    detail.as_ref().map(|detail| format!("{before}{detail}")).unwrap_or_default()
}
