//! The protocol as values without I/O: `on(now, event) -> step`.
//!
//! The engine, the simulation and the property tests drive the same three values: a [`Campaign`] until a slot
//! is won, a [`Lease`] while it is held, a [`Release`] when it is given back. Nothing here reads a clock,
//! calls a storage or spawns; randomness comes in as a trait. Time passes only through `now`.
//!
//! A value that wants to call the storage says `Send`; it is asked for the call (`MaySend`) only when a
//! request may really go out, so that "sent at" is the moment just before the call (I3) however long it had
//! to queue.

mod attempts;
mod campaign;
mod lease;
mod release;

pub use campaign::{AcquireTimeout, Campaign, CampaignEvent, CampaignStep, Terms, Won};
pub use lease::{Lease, LeaseEvent, LeaseStep, RenewalAttempts};
pub use release::{Release, ReleaseEvent, ReleaseOutcome, ReleaseStep};
