//! The protocol as values without I/O: `on(now, event) -> step`.
//!
//! Three values: a [`Campaign`] until a slot is won, a [`Lease`] while it is held, and a [`Release`] when it is
//! handed back. The engine, the simulation and the property tests drive the same code. Time is an argument,
//! and randomness a trait.
//!
//! A value that needs the storage returns `Send`, and returns the call itself on `MaySend`, when the request
//! can go out. So "sent at" is the instant just before the call (I3), however long it was queued.

mod attempts;
mod campaign;
mod lease;
mod release;

pub use campaign::{AcquireTimeout, Campaign, CampaignEvent, CampaignStep, Terms, Won};
pub use lease::{Lease, LeaseEvent, LeaseStep, RenewalAttempts};
pub use release::{Release, ReleaseEvent, ReleaseOutcome, ReleaseStep};
