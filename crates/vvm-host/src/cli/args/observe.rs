//! How others can see how a host stands.

use super::values::parse_address;
use clap::Args;
use std::net::SocketAddr;

#[derive(Clone, Debug, Args)]
pub(crate) struct ObserveArgs {
    /// Answer over HTTP at this address, e.g. 127.0.0.1:8080; port 0 for any that is free
    ///
    /// /healthz: this process lives. /readyz: it leads, or could: a standby is ready. /leader: 200 only while it leads, with
    /// time left. /metrics: OpenMetrics. /status: JSON. /: a page for a browser. Nothing can be changed there, but names
    /// and errors can be read, by whoever reaches the address.
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_address)]
    pub(crate) http: Option<SocketAddr>,
}
