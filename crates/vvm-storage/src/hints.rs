//! [`SysVvmHints`]: the trait of a storage that can tell processes of each other's changes.

use crate::Partition;
use async_trait::async_trait;

/// Hints that there may be something to look at: a release, or an operator's request.
///
/// **Nothing depends on a hint, and nothing in one is trusted.** It causes a look, which alone counts. A hint
/// may be lost, late, repeated or false; candidates read all the same, if less often. So a hint can't open a
/// slot (I5), and can't stop or prolong work (I1).
#[async_trait]
pub trait SysVvmHints: Send + Sync {
    /// Hints to all processes that wait for hints about `topic`, after a change. Waits for no answer (I10),
    /// and does not tell whether the hint was sent.
    async fn announce(&self, topic: &Partition);

    /// Waits for a hint about `topic`. Hints that arrive between two calls are kept as one. The end of a
    /// connection by which hints come is a hint as well. Never returns if hints can't come.
    ///
    /// One call at a time waits; of several, all but one may wait for longer.
    ///
    /// # Cancel safety
    /// May be dropped and called again at will.
    async fn hinted(&self, topic: &Partition);

    /// Whether hints about `topic` arrive, as far as this side knows: [`hinted`](Self::hinted) has begun to
    /// listen, and its connection has not ended. Candidates read less often meanwhile.
    fn listens(&self, topic: &Partition) -> bool;
}
