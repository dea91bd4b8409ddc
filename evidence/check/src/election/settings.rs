//! What stays the same during a search, and what it notes.

use crate::{Assumption, search::Notes};
use ielections::{Entropy, Timing, Ttl, timing::Jitter};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use vvm_clock::Instant;

#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// Kill deadlines in thousandths of a TTL, instead of the shipped ones.
    pub(crate) kill_share: Option<u64>,
    pub(crate) dropped: Option<Assumption>,
    pub(crate) only: Option<String>,
}

/// The settings, and where the values draw from: every draw is the same, and incarnations are counted.
#[derive(Debug)]
pub(crate) struct Surroundings {
    pub(crate) settings: Settings,
    /// The longest pause between two looks, in parts of 25 of a TTL.
    pub(crate) poll: u32,
    pub(crate) wall: Duration,
    /// Whether candidates succeed each other, and whether no fault of such a story delays a leader or its storage.
    pub(crate) succeeds: bool,
    pub(crate) is_undisturbed: bool,
    draw: u64,
    incarnations: AtomicU64,
}

impl Surroundings {
    pub(crate) fn new(settings: &Settings, draw: u64, poll: u32, wall: Duration) -> Self {
        let (settings, incarnations) = (settings.clone(), AtomicU64::new(0));
        Self { settings, poll, wall, succeeds: false, is_undisturbed: false, draw, incarnations }
    }

    pub(crate) fn drops(&self, assumption: Assumption) -> bool {
        self.settings.dropped == Some(assumption)
    }

    pub(crate) fn kill_at(&self, ttl: Ttl, sent_at: Instant) -> Instant {
        match self.settings.kill_share.filter(|_| !self.succeeds) {
            Some(share) => sent_at.after(share_of(ttl, share)),
            None => Timing::new(ttl).kill_at(sent_at),
        }
    }

    pub(crate) fn jitter(&self) -> Jitter {
        Jitter::from_random(self.draw)
    }

    pub(crate) fn set_incarnations(&self, number: u64) {
        self.incarnations.store(number, Ordering::Relaxed);
    }

    pub(crate) fn incarnations(&self) -> u64 {
        self.incarnations.load(Ordering::Relaxed)
    }
}

impl Entropy for Surroundings {
    fn fill(&self, bytes: &mut [u8]) {
        let number = self.incarnations.fetch_add(1, Ordering::Relaxed) + 1;
        bytes.fill(0);
        bytes[0] = if self.drops(Assumption::Incarnations) { 1 } else { number as u8 };
    }

    fn next_u64(&self) -> u64 {
        self.draw
    }
}

pub(crate) struct Context<'a> {
    pub(crate) around: &'a Arc<Surroundings>,
    pub(crate) notes: &'a mut Notes,
}

impl Context<'_> {
    pub(crate) fn violated(&mut self, invariant: &str, how: impl FnOnce() -> String) {
        let is_observed = self.around.settings.only.as_ref().is_none_or(|only| only == invariant);
        if is_observed {
            self.notes.violated(invariant, how);
        }
    }
}

pub(super) fn share_of(ttl: Ttl, thousandths: u64) -> Duration {
    Duration::from_nanos(ttl.get().as_nanos() as u64 * thousandths / 1000)
}
