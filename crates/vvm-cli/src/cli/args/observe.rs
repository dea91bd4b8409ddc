//! How others can see how a host stands.

use super::values::parse_address;
use crate::announce::Readers;
use clap::Args;
use std::net::SocketAddr;

#[derive(Clone, Debug, Args)]
pub(crate) struct ObserveArgs {
    /// Answer over HTTP at this address, e.g. 127.0.0.1:8080; port 0 for any that is free
    ///
    /// /healthz: this process lives. /readyz: it leads, or could: a standby is ready. /leader: 200 only while
    /// it leads, with time left. /metrics: OpenMetrics. /status: JSON. /: a page for a browser. Nothing can
    /// be changed there, but names and errors can be read, by whoever reaches the address.
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_address)]
    pub(crate) http: Option<SocketAddr>,
    /// What lines on standard error are: text for people, or one JSON object each for programs
    ///
    /// With json, each change of state is an object with event, name, holder, slot, epoch and what else
    /// belongs to it, and everything else is an event "message". VVM_LOG=debug adds what the libraries say;
    /// renewals are debug, too.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) log_format: Readers,
}
