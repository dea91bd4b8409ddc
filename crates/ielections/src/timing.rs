//! Every interval of the protocol, derived from the TTL in one place. In brackets: the values for a TTL of 20 s.

use crate::Ttl;
use std::time::Duration;
use vvm_clock::Instant;

/// The protocol's intervals for one TTL.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Timing {
    ttl: Ttl,
}

// Thousandths of a TTL. The methods of `Timing` say what each is.
const RENEWAL: u32 = 250;
const RETRY: u32 = 50;
const ATTEMPT: u32 = 100;
const AT_RISK: u32 = 500;
const LOSS: u32 = 650;
const KILL: u32 = 800;
const STOPPING: u32 = 150;
const FRESH: u32 = 250;
const OUTAGE: u32 = 1000 + 3 * ATTEMPT + 2 * RETRY;
/// The shortest time between two renewals as an observer measures it, in thousandths of `RENEWAL`.
const SOONEST: u32 = 940;
/// Renewals are due at multiples of this, so that many share one wake-up (I11).
const GRAIN: u32 = 1;
/// The most by which jitter brings a renewal forward, in thousandths of `RENEWAL`.
const JITTER: u32 = 46;
/// Pings of a leader to its successor in one support period.
const PINGS: u32 = 16;
/// Milliseconds by which a kill may come late: a kernel timer, and the guardian's way to its children.
const KILL_DELAY_MS: u32 = 15;

// Three attempts, time-outs and pauses included, fit between a renewal's start and the loss timer.
const _: () = assert!(RENEWAL + 3 * ATTEMPT + 2 * RETRY <= LOSS);
// Jitter and grain together bring a renewal forward by at most 5 % of the interval.
const _: () = assert!(RENEWAL * JITTER + GRAIN * 1000 <= RENEWAL * 50);
// The shortest interval is 95 % on the leader's clock, and 1 % less on an observer's if that is slower.
const _: () = assert!(SOONEST * 1000 <= 950 * 990);
// Services are warned before the leadership is lost, and have the promised time to stop before the kill.
const _: () = assert!(RENEWAL < AT_RISK && AT_RISK < LOSS && LOSS + STOPPING <= KILL);
// A renewal in flight at the loss ends before the kill, so that a late hand-back can still disarm.
const _: () = assert!(LOSS + ATTEMPT <= KILL);
// I1: with clocks off by 10 % in opposite directions (1.1 / 0.9), the slow one kills before the fast one takes over.
const _: () = assert!(KILL * 110 < 1000 * 90);
// I1, with the shortest support period: 0.8 P / 0.9 + 15 ms < P / 1.1, as above, and multiplied by 9900.
const _: () = assert!(
    SupportPeriod::LEAST.as_millis() as u32 * KILL * 11 + KILL_DELAY_MS * 9900
        < SupportPeriod::LEAST.as_millis() as u32 * 9000
);

impl Timing {
    /// The intervals of `ttl`.
    pub const fn new(ttl: Ttl) -> Self {
        Self { ttl }
    }

    /// The intervals of a support period, by the same shares: P stands for the TTL. While a successor is named, every call
    /// of the lease is limited by them, so that a withdrawal and its retries fit before the loss.
    pub const fn support(period: SupportPeriod) -> Self {
        Self { ttl: period.0 }
    }

    /// The TTL that these intervals derive from.
    pub const fn ttl(self) -> Ttl {
        self.ttl
    }

    /// When to renew a lease that was last confirmed by a call sent at `sent_at` (5 s later). Up to 5 %
    /// earlier: `jitter` spreads leases, and a multiple of 20 ms lets many share a wake-up.
    pub fn renew_at(self, sent_at: Instant, jitter: Jitter) -> Instant {
        let forward = jitter.scale(self.share(RENEWAL) * JITTER / 1000);
        sent_at.after(self.share(RENEWAL)).before(forward).floor(self.share(GRAIN))
    }

    /// The shortest time between two renewals on the clock of an observer (4.7 s): jitter brings a renewal
    /// forward, and the clocks may be 1 % apart. Only promptness depends on it, never safety.
    pub fn soonest_renewal(self) -> Duration {
        self.share(RENEWAL * SOONEST / 1000)
    }

    /// The pause between two attempts of one renewal (1 s).
    pub fn retry_pause(self) -> Duration {
        self.share(RETRY)
    }

    /// How long one attempt may take, including its read-back (2 s).
    pub fn attempt_timeout(self) -> Duration {
        self.share(ATTEMPT)
    }

    /// How long a renewal waits for a batch of documents in flight (1 s).
    pub fn renewal_wait(self) -> Duration {
        self.share(RETRY)
    }

    /// How long attempts to write documents may fail before callers get an error (8 s): three attempts and pauses.
    pub fn document_timeout(self) -> Duration {
        self.share(3 * ATTEMPT + 2 * RETRY)
    }

    /// When services are warned that leadership is at risk (10 s after the last confirmed send).
    pub fn at_risk_at(self, sent_at: Instant) -> Instant {
        sent_at.after(self.share(AT_RISK))
    }

    /// When the leadership is lost, even while a renewal is in flight (13 s after the last confirmed send).
    pub fn loss_at(self, sent_at: Instant) -> Instant {
        sent_at.after(self.share(LOSS))
    }

    /// When the process is killed (16 s after the last confirmed send): I3.
    pub fn kill_at(self, sent_at: Instant) -> Instant {
        sent_at.after(self.share(KILL))
    }

    /// How long services have to stop once the storage has shown that the leadership is lost (3 s).
    pub fn stopping(self) -> Duration {
        self.share(STOPPING)
    }

    /// Whether a call sent at `sent_at` is recent enough to start work (5 s).
    pub fn is_fresh(self, sent_at: Instant, now: Instant) -> bool {
        now.since(sent_at) <= self.share(FRESH)
    }

    pub(crate) fn ping_interval(self) -> Duration {
        self.ttl.get() / PINGS
    }

    /// When a leader withdraws its successor, whose newest acknowledged ping was sent at `sent_at`: P/4 later, so that
    /// three attempts fit before the loss.
    pub(crate) fn withdraw_at(self, sent_at: Instant) -> Instant {
        sent_at.after(self.share(RENEWAL))
    }

    /// How long the storage may be unreachable for a candidate that waits until it sees a leader (28 s): a
    /// TTL and the attempts of one renewal. By then every leader has lost its leadership, too.
    pub fn outage(self) -> Duration {
        self.share(OUTAGE)
    }

    fn share(self, thousandths: u32) -> Duration {
        self.ttl.get() * thousandths / 1000
    }
}

/// How long a successor waits after its last acknowledgement before it may claim: P of
#[cfg_attr(feature = "testing", doc = "[`protocol::successor`](crate::protocol::successor).")]
#[cfg_attr(not(feature = "testing"), doc = "`protocol::successor`.")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SupportPeriod(Ttl);

/// The duration is no support period for this TTL.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a support period of {period:?} does not fit a TTL of {ttl}: it must be between 2 s and 30 s, and at most a quarter of the TTL"
)]
pub struct SupportPeriodOutOfRange {
    /// The duration.
    pub period: Duration,
    /// The TTL of the leader.
    pub ttl: Ttl,
}

impl SupportPeriod {
    /// The margin between the kill and the claim is 2 % of the period. Here that is 40 ms, which a busy machine needs.
    pub const LEAST: Duration = Duration::from_secs(2);

    /// A longer one has no advantage over a shorter TTL.
    pub const MOST: Duration = Duration::from_secs(30);

    /// Fails if `period` is below [`LEAST`](Self::LEAST), above [`MOST`](Self::MOST), or above a quarter of `ttl`.
    pub fn new(period: Duration, ttl: Ttl) -> Result<Self, SupportPeriodOutOfRange> {
        let refused = SupportPeriodOutOfRange { period, ttl };
        if period < Self::LEAST || period > Self::MOST || period > ttl.get() / 4 {
            return Err(refused);
        }
        Ttl::new(period).map(Self).map_err(|_| refused)
    }

    /// The duration.
    pub const fn get(self) -> Duration {
        self.0.get()
    }
}

/// A random share in [0, 1), in units of 2⁻⁶⁴.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Jitter(u64);

impl Jitter {
    /// No jitter: the latest instant.
    pub const NONE: Self = Self(0);

    /// From random bits.
    pub const fn from_random(bits: u64) -> Self {
        Self(bits)
    }

    /// A duration between `least` and `most`.
    pub fn between(self, least: Duration, most: Duration) -> Duration {
        least + self.scale(most.saturating_sub(least))
    }

    /// Returns this share of `span`. A longer span counts as 584 years.
    fn scale(self, span: Duration) -> Duration {
        let nanos = span.as_nanos().min(u64::MAX.into());
        // Of two factors below 2⁶⁴ the upper half of the product is below both.
        Duration::from_nanos(((nanos * u128::from(self.0)) >> 64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows I3.
    #[test]
    fn ttl_of_twenty_seconds_gives_the_intervals_of_the_design() {
        let timing = Timing::new(Ttl::DEFAULT);
        let sent_at = Instant::from_nanos(1_000_000_000_000);
        let seconds = |at: Instant| at.since(sent_at).as_secs_f64();
        assert_eq!(seconds(timing.renew_at(sent_at, Jitter::NONE)), 5.0);
        assert_eq!(timing.soonest_renewal(), Duration::from_millis(4700));
        assert_eq!(timing.retry_pause(), Duration::from_secs(1));
        assert_eq!(timing.attempt_timeout(), Duration::from_secs(2));
        assert_eq!(seconds(timing.at_risk_at(sent_at)), 10.0);
        assert_eq!(seconds(timing.loss_at(sent_at)), 13.0);
        assert_eq!(seconds(timing.kill_at(sent_at)), 16.0);
        assert_eq!(timing.stopping(), Duration::from_secs(3));
        assert_eq!(timing.outage(), Duration::from_secs(28));
        assert_eq!(timing.renewal_wait(), Duration::from_secs(1));
        assert_eq!(timing.document_timeout(), Duration::from_secs(8));
        let fresh_until = sent_at.after(Duration::from_secs(5));
        assert!(timing.is_fresh(sent_at, fresh_until));
        assert!(!timing.is_fresh(sent_at, fresh_until.after(Duration::from_nanos(1))));
    }

    #[test]
    fn jitter_only_brings_a_renewal_forward_and_by_five_percent_at_most() {
        let timing = Timing::new(Ttl::DEFAULT);
        let latest = timing.renew_at(Instant::ORIGIN, Jitter::NONE);
        let earliest = timing.renew_at(Instant::ORIGIN, Jitter::from_random(u64::MAX));
        let forward = earliest.until(latest);
        assert!(forward > Duration::from_millis(200) && forward <= Duration::from_millis(250), "{forward:?}");
    }

    #[test]
    fn jitter_chooses_a_duration_from_a_range() {
        let [least, most] = [3, 5].map(Duration::from_secs);
        assert_eq!(Jitter::NONE.between(least, most), least);
        assert_eq!(Jitter::from_random(1 << 63).between(least, most), Duration::from_secs(4));
    }

    /// Shows I11.
    #[test]
    fn renewals_due_about_the_same_time_share_one_wake_up() {
        let timing = Timing::new(Ttl::DEFAULT);
        let wake = |sent_at| timing.renew_at(Instant::from_nanos(sent_at), Jitter::NONE);
        assert_eq!(wake(0), wake(19_999_999));
        assert_ne!(wake(0), wake(20_000_000));
    }
}
