//! The protocol as three values without I/O, `on(now, event) -> step`: a [`Campaign`] until a slot is won, a
//! [`Lease`] while it is held, and a [`Release`] when it is handed back.
//!
//! A value returns `Send` if it needs the storage, and the call itself on `MaySend`, when a request can go
//! out. So "sent at" is the instant just before the call (I3), however long it was queued.

mod campaign;
mod lease;
mod release;

pub use campaign::{Campaign, CampaignEvent, CampaignStep, Scanned, Won};
pub use lease::{Lease, LeaseEvent, LeaseStep};
pub use release::{Release, ReleaseEvent, ReleaseOutcome, ReleaseStep};
