//! [`Elections`]: campaigning for leaderships, and closing down with all of them handed back.

pub use crate::protocol::{AcquireTimeout, RenewalAttempts, Terms};

use crate::{
    Env, Epoch, Holder, Key, Leadership, TtlStorage,
    engine::{self, EngineHandle},
    storage::Cause,
};
use std::{num::NonZeroUsize, sync::Arc, time::Duration};
use vvm_clock::Span;
use vvm_deadman::ArmError;

/// A candidate: which slots it would take, and on which terms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidacy<K> {
    /// Any one of these.
    pub slots: Vec<K>,
    /// Who, for how long, how patiently.
    pub terms: Terms,
}

/// No leadership was acquired. Nothing of the campaign stands in the storage, or will for longer than one
/// TTL.
#[derive(Debug, thiserror::Error)]
pub enum AcquireError {
    /// Every slot stayed taken, or the storage unreachable, for as long as the campaign was to go on.
    #[error("no slot was acquired in time{}", last_failure.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default())]
    TimedOut {
        /// What the last failed call said, if one failed.
        last_failure: Option<String>,
    },
    /// Every slot has a live leader ([`AcquireTimeout::UntilLeaderSeen`]).
    #[error("every slot has a live leader{}", leader.as_ref().map(|leader| format!(", among them {leader}")).unwrap_or_default())]
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
    /// The TTL is shorter than the storage's round trips leave room for.
    #[error("a TTL of {} is too short for this storage: at least {}", Span(*ttl), Span(*least))]
    TtlTooShort {
        /// What was asked for.
        ttl: Duration,
        /// What the driver states ([`Limits::min_ttl`](crate::Limits)).
        least: Duration,
    },
    /// The storage refuses for good. Trying again is pointless until somebody mends the cause.
    #[error("the storage refuses for good: {0}")]
    Refused(#[source] Cause),
    /// The storage has forgotten epochs that this candidate has seen, as after a restore from backup. Whoever
    /// led by them may still be at work; acquiring again after the longest TTL in use is safe.
    #[error(
        "the storage went back in time: it showed {} before and {} now; was it restored from a backup?",
        Epoch::or_none(*seen),
        Epoch::or_none(*found)
    )]
    EpochWentBack {
        /// The largest epoch seen.
        seen: Option<Epoch>,
        /// What a linearizable read found then.
        found: Option<Epoch>,
    },
    /// The kill deadline could not be armed; the record was released.
    #[error("the kill deadline could not be armed: {0}")]
    Deadman(#[from] ArmError),
}

/// What an engine may be told, beyond its environment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EngineSettings {
    /// How many storage calls may be in flight at once (I11). Renewals go first.
    pub max_in_flight: NonZeroUsize,
    /// How often one renewal is tried.
    pub renewal_attempts: RenewalAttempts,
}

impl Default for EngineSettings {
    fn default() -> Self {
        // Enough for 20,000 renewals a second at round trips of 10 ms; few enough not to drown a database.
        const MAX_IN_FLIGHT: NonZeroUsize = NonZeroUsize::MIN.saturating_add(255);
        Self { max_in_flight: MAX_IN_FLIGHT, renewal_attempts: RenewalAttempts::default() }
    }
}

/// Campaigns for leaderships on one storage.
///
/// One task drives all campaigns and leaderships. It ends when the value and its last leadership are gone.
#[derive(Debug)]
pub struct Elections<K: Key> {
    engine: EngineHandle<K>,
    min_ttl: Duration,
}

impl<K: Key> Elections<K> {
    /// Elections on `storage`.
    pub fn new(storage: Arc<dyn TtlStorage<K>>, env: Env) -> Self {
        Self::with_settings(storage, env, EngineSettings::default())
    }

    /// [`Elections::new`], with settings.
    pub fn with_settings(storage: Arc<dyn TtlStorage<K>>, env: Env, settings: EngineSettings) -> Self {
        let min_ttl = storage.limits().min_ttl;
        Self { engine: engine::start(storage, env, settings), min_ttl }
    }

    /// Campaigns until one of the candidacy's slots is led, and returns with the deadman armed (I4).
    ///
    /// # Errors
    /// [`AcquireError`].
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the candidacy: what an unanswered attempt may have written is deleted,
    /// and a leadership that was won at that moment is released.
    pub async fn acquire(&self, candidacy: Candidacy<K>) -> Result<(K, Leadership), AcquireError> {
        if candidacy.slots.is_empty() {
            return Err(AcquireError::NoSlots);
        }
        let ttl = candidacy.terms.ttl.get();
        if ttl < self.min_ttl {
            return Err(AcquireError::TtlTooShort { ttl, least: self.min_ttl });
        }
        self.engine.campaign(candidacy).await
    }

    /// Tells every campaign that something may have changed in the storage. It looks at its slots again as
    /// soon as it may, at least [`Terms::HINT_GAP`] after its last look, so that a candidate that hears of a
    /// release claims at once. A hint is never needed. A false one costs a look, and opens no slot earlier
    /// (I5). Never blocks.
    pub fn look_now(&self) {
        self.engine.look_now();
    }

    /// Refuses and ends campaigns, tells every holder [`Loss::Closing`](crate::Loss), and returns once each
    /// has handed back. What was dropped instead of handed back is neither deleted nor disarmed (I4, I6). May
    /// be called more than once.
    ///
    /// # Cancel safety
    /// Dropping the future stops the waiting, not the closing.
    pub async fn cleanup(&self) {
        self.engine.cleanup().await;
    }
}
