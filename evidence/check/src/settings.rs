//! What stays the same during a search, and what it notes.

use crate::observer::share_of;
use ielections::{Entropy, Timing, Ttl, timing::Jitter};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use vvm_clock::Instant;

/// An assumption of `docs/contributing/architecture.md`, to be dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Assumption {
    /// Clocks advance within 10 % of true time.
    Clocks,
    /// Clocks count while the process is suspended.
    Suspend,
    /// The deadman ends the process at its deadline.
    Deadman,
    /// Each attempt has an incarnation of its own.
    Incarnations,
    /// The storage applies a write only if its condition holds.
    Conditions,
    /// No other program changes the record.
    Record,
    /// Work has stopped before it is handed back.
    HandedBack,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// Kill deadlines in thousandths of a TTL, instead of the shipped ones.
    pub(crate) kill_share: Option<u64>,
    pub(crate) dropped: Option<Assumption>,
    /// The only invariant that is observed.
    pub(crate) only: Option<String>,
}

/// The settings, and where the values draw from: every draw is the same, and incarnations are counted.
#[derive(Debug)]
pub(crate) struct Surroundings {
    pub(crate) settings: Settings,
    draw: u64,
    incarnations: AtomicU64,
}

impl Surroundings {
    pub(crate) fn new(settings: &Settings, draw: u64) -> Arc<Self> {
        Arc::new(Self { settings: settings.clone(), draw, incarnations: AtomicU64::new(0) })
    }

    pub(crate) fn drops(&self, assumption: Assumption) -> bool {
        self.settings.dropped == Some(assumption)
    }

    pub(crate) fn kill_at(&self, ttl: Ttl, sent_at: Instant) -> Instant {
        match self.settings.kill_share {
            Some(share) => sent_at.after(share_of(ttl, share)),
            None => Timing::of(ttl).kill_at(sent_at),
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

/// What was reached on the way, and its story if one is told.
#[derive(Default, Debug)]
pub(crate) struct Notes {
    pub(crate) reached: BTreeSet<&'static str>,
    pub(crate) story: Option<Vec<String>>,
    /// The first invariant that was broken, and how.
    pub(crate) violation: Option<String>,
}

/// What an event needs from outside.
pub(crate) struct Context<'a> {
    pub(crate) around: &'a Arc<Surroundings>,
    pub(crate) notes: &'a mut Notes,
}

impl Context<'_> {
    pub(crate) fn violated(&mut self, invariant: &str, how: impl FnOnce() -> String) {
        let is_observed = self.around.settings.only.as_ref().is_none_or(|only| only == invariant);
        if is_observed && self.notes.violation.is_none() {
            self.notes.violation = Some(format!("{invariant}: {}", how()));
        }
    }
}

impl Notes {
    pub(crate) fn reach(&mut self, what: &'static str) {
        self.reached.insert(what);
    }

    pub(crate) fn tell(&mut self, what: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(what());
        }
    }
}
