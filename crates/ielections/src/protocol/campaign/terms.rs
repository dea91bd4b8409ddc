//! [`Terms`]: holder, TTL and time limit of a campaign.

use crate::{Holder, Ttl};
use std::time::Duration;

/// The terms of one campaign.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Terms {
    /// The name of the candidate, for people.
    pub holder: Holder,
    /// The leadership duration, fixed for the life of the leadership.
    pub ttl: Ttl,
    /// When to give up.
    pub timeout: AcquireTimeout,
    /// The longest time between two reads of the slots. Each pause is up to a quarter shorter, at random. A
    /// release is seen within it.
    pub poll: Duration,
}

impl Terms {
    /// The longest default time between two reads.
    pub const POLL: Duration = Duration::from_secs(1);

    /// The shortest poll. A shorter one would keep a standby busy with reads (I10).
    pub const MIN_POLL: Duration = Duration::from_millis(5);

    /// The shortest time between a read and the next one that a hint causes. A flood of hints causes at most
    /// fifty reads a second (I10, I11).
    pub const HINT_GAP: Duration = Duration::from_millis(20);

    /// The longest time between two reads while hints follow releases. A stream of hints that is dead without
    /// a sign delays a hand-over by so much.
    pub const LONGEST_QUIET: Duration = Duration::from_secs(10);

    /// The usual terms: wait for ever, with the [usual poll](Self::usual_poll).
    pub fn new(holder: Holder, ttl: Ttl) -> Self {
        Self { holder, ttl, timeout: AcquireTimeout::Forever, poll: Self::usual_poll(ttl) }
    }

    /// At least one read a second, and four in each TTL.
    pub fn usual_poll(ttl: Ttl) -> Duration {
        Self::POLL.min(ttl.get() / 4)
    }
}

/// When a campaign gives up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
