//! What a candidate stands for and how long it waits.

use crate::{Holder, Ttl};
use std::time::Duration;

/// The terms of one campaign.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Terms {
    /// Who, for people.
    pub holder: Holder,
    /// The leadership duration, fixed for the life of the leadership.
    pub ttl: Ttl,
    /// How long to go on.
    pub timeout: AcquireTimeout,
    /// The longest time between two looks at the slots; each pause is up to a quarter shorter, by chance. A
    /// clean hand-over is seen within it.
    pub poll: Duration,
}

impl Terms {
    /// The longest default time between two looks.
    pub const POLL: Duration = Duration::from_secs(1);

    /// What a shorter poll counts as: below it a standby would do little else than look (I10).
    pub const MIN_POLL: Duration = Duration::from_millis(5);

    /// How long a candidate leaves the storage in peace after it has looked, whatever hints come: a flood of
    /// them makes it look fifty times a second at most, and one that comes at the wrong moment is heeded a
    /// fiftieth of a second later, which nobody notices (I10, I11).
    pub const HINT_GAP: Duration = Duration::from_millis(20);

    /// The usual terms: wait for ever, with the [usual poll](Self::usual_poll).
    pub fn new(holder: Holder, ttl: Ttl) -> Self {
        Self { holder, ttl, timeout: AcquireTimeout::Forever, poll: Self::usual_poll(ttl) }
    }

    /// Look at least once a second and four times a TTL.
    pub fn usual_poll(ttl: Ttl) -> Duration {
        Self::POLL.min(ttl.get() / 4)
    }
}

/// How long a campaign goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AcquireTimeout {
    /// Until a slot is won.
    Forever,
    /// For so long; [`Duration::ZERO`] is one look, and a claim if that finds an opening.
    Within(Duration),
    /// Until a live leader was seen on every slot: somebody was seen to renew or to take over. Can take one
    /// TTL, which a try that gave up at the first sight of a *record* would save, and then never run again
    /// after a crash. While nothing comes of asking the storage, it goes on for
    /// [`Timing::outage`](crate::Timing::outage) (1.4 TTL), and is then out of time.
    UntilLeaderSeen,
}
