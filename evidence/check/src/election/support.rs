//! [`Supported`]: the support of a leader, and what enforces it.

use super::{names::Names, settings::Surroundings};
use ielections::{
    Ttl,
    protocol::{Lease, Rebase as _, successor::Support},
    timing::SupportPeriod,
};
use vvm_clock::Instant;

#[derive(Clone, Hash)]
pub(crate) struct Supported {
    pub(crate) support: Support,
    pub(crate) wake_at: Instant,
    /// The deadline that guardian and keeper have not confirmed yet. Until then nothing enforces it.
    pub(crate) asked: Option<Instant>,
    /// They take any time.
    pub(crate) is_slow: bool,
    /// In force beside that of the TTL.
    pub(crate) kill_at: Option<Instant>,
}

pub(super) fn period(ttl: Ttl) -> Option<SupportPeriod> {
    SupportPeriod::new(ttl.get() / 4, ttl).ok()
}

impl Supported {
    pub(super) fn begin(lease: &Lease, now: Instant, around: &Surroundings) -> Option<Box<Self>> {
        let period = period(lease.held().ttl).filter(|_| around.succeeds)?;
        let support = Support::begin(lease, period, now).with_ping_interval(period.get() / 5);
        Some(Box::new(Self { support, wake_at: Instant::NEVER, asked: None, is_slow: false, kill_at: None }))
    }

    pub(super) fn rebase(&mut self, names: &mut Names) {
        self.support.rebase(names);
        names.until(&mut self.wake_at);
        self.asked.iter_mut().chain(&mut self.kill_at).for_each(|at| names.until(at));
    }
}
