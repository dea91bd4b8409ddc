//! [`Elections`]: acquires leaderships, and ends when all of them are handed back.

pub use crate::candidacy::{AcquireError, AcquireTimeout, Candidacy, Terms};

use crate::{
    Env, Key, Leadership, TtlStorage,
    engine::{self, EngineHandle},
};
use std::{sync::Arc, time::Duration};

/// Campaigns for leaderships on one storage.
///
/// One task drives all campaigns and leaderships. It ends when this value and its last leadership are
/// dropped.
#[derive(Debug)]
pub struct Elections<K: Key> {
    engine: EngineHandle<K>,
    min_ttl: Duration,
}

impl<K: Key> Elections<K> {
    /// Elections on `storage`.
    pub fn new(storage: Arc<dyn TtlStorage<K>>, env: Env) -> Self {
        let min_ttl = storage.limits().min_ttl;
        Self { engine: engine::start(storage, env), min_ttl }
    }

    /// Campaigns until one of the candidacy's slots is led, and returns with the deadman armed (I4).
    ///
    /// # Errors
    /// [`AcquireError`].
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the candidacy. The engine deletes a record that an unanswered attempt
    /// may have written, and releases a leadership that was acquired at that moment.
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

    /// Hints to every campaign that the storage may have changed, for example because a leader on the same
    /// machine has released. Each campaign then reads its slots as soon as [`Terms::HINT_GAP`] has passed
    /// since its last read. Hints are optional. A false hint costs a read, and opens no slot earlier (I5).
    /// Never blocks.
    pub fn look_now(&self) {
        self.engine.look_now();
    }

    /// Refuses and ends campaigns, sends every leader [`Loss::Closing`](crate::Loss), and returns once each
    /// has handed back. A leadership that is dropped instead is neither deleted nor disarmed (I4, I6). May be
    /// called more than once.
    ///
    /// # Cancel safety
    /// Dropping the future stops the waiting, not the closing.
    pub async fn cleanup(&self) {
        self.engine.cleanup().await;
    }
}
