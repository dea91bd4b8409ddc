//! [`Leading`]: a leadership as the host of a VVM sees it.

use ielections::Standing;

/// What is led, and how it stands.
#[derive(Clone, Debug)]
pub struct Leading<K> {
    /// The slot.
    pub slot: K,
    /// Epoch, time left, loss.
    pub standing: Standing,
}
