//! What the drivers of SQL servers share. What is different is a trait at each of these files.
#![allow(
    private_bounds,
    private_interfaces,
    reason = "no other crate needs the traits by which drivers differ"
)]
#![allow(dead_code, reason = "each driver needs some of it")]

pub(super) mod address;
pub(super) mod answer;
pub(super) mod connections;
pub(super) mod driver;
pub(super) mod errors;
pub(super) mod history;
pub(super) mod open;
pub(super) mod rows;
