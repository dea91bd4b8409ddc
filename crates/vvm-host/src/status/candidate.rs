use ielections::{Holder, Ttl};
use std::num::NonZeroU32;

/// The candidate that a host is; fixed for the life of the process.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// What is led.
    pub name: String,
    /// The name of this process for people.
    pub holder: Holder,
    /// How many processes may lead at once.
    pub slots: NonZeroU32,
    /// The leadership duration.
    pub ttl: Ttl,
}
