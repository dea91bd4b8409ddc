//! Whether a refusal makes sense: the server compared conditions that it shows.

use crate::step::{Decision, State, Step, decide};
use ielections::{DocumentId, DocumentVersion, FenceState, Slot};
use std::convert::Infallible;

/// A slot without documents and without a setting.
struct Seen<'slot>(&'slot Slot);

impl State for Seen<'_> {
    type Error = Infallible;

    fn slot(&self) -> Result<Slot, Infallible> {
        Ok(self.0.clone())
    }

    fn fence(&self) -> Result<FenceState, Infallible> {
        Ok(FenceState { slot: self.0.clone(), last: DocumentVersion::NONE })
    }

    fn version(&self, _: &DocumentId) -> Result<Option<DocumentVersion>, Infallible> {
        Ok(None)
    }

    fn setting(&self) -> Result<Option<Vec<u8>>, Infallible> {
        Ok(None)
    }
}

/// Whether a claim, a renewal or a release is applied to this slot. A server that refused it and shows this slot
/// is damaged.
pub(super) fn is_met(step: &Step, stands: &Slot) -> bool {
    let Ok(decision) = decide(&Seen(stands), step);
    !matches!(decision, Decision::Refuse(_))
}
