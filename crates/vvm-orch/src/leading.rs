//! [`Leading`]: the leadership of a VVM.

use ielections::Standing;

/// The leadership of a VVM whose services are ready.
#[derive(Clone, Debug)]
pub struct Leading<K> {
    /// The slot.
    pub slot: K,
    /// The epoch, the time left and the loss.
    pub standing: Standing,
}
