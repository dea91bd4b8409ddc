//! What a caller chooses: slots and terms of a candidacy, settings of the engine.

use crate::protocol::{RenewalAttempts, Terms};
use std::num::NonZeroUsize;

/// The slots that a candidate campaigns for, and its terms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidacy<K> {
    /// Any one of these.
    pub slots: Vec<K>,
    /// Holder, TTL and time limit.
    pub terms: Terms,
}

/// Settings of an engine, beyond its environment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EngineSettings {
    /// How many storage calls may be in flight at once (I11). Renewals go first.
    pub max_in_flight: NonZeroUsize,
    /// How often one renewal is tried.
    pub renewal_attempts: RenewalAttempts,
}

impl Default for EngineSettings {
    fn default() -> Self {
        // Enough for 20,000 renewals a second at round trips of 10 ms; few enough not to overload a database.
        const MAX_IN_FLIGHT: NonZeroUsize = NonZeroUsize::MIN.saturating_add(255);
        Self { max_in_flight: MAX_IN_FLIGHT, renewal_attempts: RenewalAttempts::default() }
    }
}
