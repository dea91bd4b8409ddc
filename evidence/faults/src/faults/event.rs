//! [`Event`]: what happened in a run, and how often ([`Counts`]).

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

macro_rules! reported {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $kind:ident = $words:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub(crate) enum $name {
            $($(#[$doc])* $kind,)*
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.pad(match self {
                    $(Self::$kind => $words,)*
                })
            }
        }
    };
}
pub(super) use reported;

reported! {
    Event {
        ConnectionCut = "connections cut",
        ConnectionRefused = "connections refused",
        AnswerDelayed = "answers delayed",
        DeliveredLate = "messages delivered late",
        Repeated = "connections whose messages were repeated after their end",
        Deleted = "deletions by hand",
        LostByDeletion = "leaders lost because their record was deleted",
        LeaderCrashed = "leaders crashed",
        DeposedRefused = "late writes of deposed leaders, all refused",
    }
}

#[derive(Default, Debug)]
pub(crate) struct Counts(Mutex<BTreeMap<Event, u64>>);

impl Counts {
    pub(crate) fn add(&self, what: Event) {
        *self.counts().entry(what).or_default() += 1;
    }

    pub(crate) fn of(&self, what: Event) -> u64 {
        self.counts().get(&what).copied().unwrap_or_default()
    }

    pub(crate) fn all(&self) -> BTreeMap<Event, u64> {
        self.counts().clone()
    }

    /// Every change is one step, so poison carries no information here.
    fn counts(&self) -> std::sync::MutexGuard<'_, BTreeMap<Event, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
