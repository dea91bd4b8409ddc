//! What the drivers of SQL servers share. What is different is a trait at each of these files.

#![allow(
    private_bounds,
    private_interfaces,
    reason = "no other crate needs the traits by which drivers differ"
)]
#![allow(dead_code, reason = "each driver needs some of it")]

pub(super) mod config;
pub(super) mod connection;
pub(super) mod driver;
pub(super) mod errors;
pub(super) mod history;
pub(super) mod opening;
pub(super) mod rows;
pub(super) mod statements;
