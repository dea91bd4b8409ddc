//! The protocol values against models of the world: random courses, judged by the rules that the code promises.
//!
//! Everything here is driven through the public words of [`ielections::protocol`], as the engine does.
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

mod campaign;
mod contradiction;
mod hint;
mod lease;
mod opening;
mod outage;
mod own_record;
mod release;
mod tape;
mod world;
