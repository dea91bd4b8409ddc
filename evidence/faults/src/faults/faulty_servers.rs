//! [`FaultyServers`]: what a fault run needs of a kind of server.

use super::{event::Event, fault::Fault, network::Protocol};
use std::net::SocketAddr;

/// Servers with faults. [`repair`](Self::repair) ends a fault. Dropping the value ends the servers.
pub(super) trait FaultyServers {
    /// Returns a name for reports.
    fn name(&self) -> &str;

    /// Returns their protocol.
    fn protocol(&self) -> Protocol;

    /// Returns the addresses of the servers.
    fn servers(&self) -> Vec<SocketAddr>;

    /// Returns where the proxy between `candidate` and `server` listens.
    fn proxy_address(&self, candidate: usize, server: SocketAddr) -> SocketAddr;

    /// Returns the URL of the storage through the proxies of `candidate`, or directly.
    fn url(&self, candidate: Option<usize>) -> String;

    /// Returns the events that a run must have, beyond those of connections.
    fn required_events(&self) -> &'static [Event];

    /// Returns the faults of these servers.
    fn faults(&self) -> &'static [Fault];

    /// Injects the fault into a random server. Returns what was done.
    ///
    /// # Errors
    /// If the system refuses.
    fn inject(&mut self, fault: Fault, rng: &mut fastrand::Rng) -> Result<Vec<Event>, String>;

    /// Ends the fault, and waits until every server answers.
    ///
    /// # Errors
    /// If a server does not answer.
    fn repair(&mut self) -> Result<(), String>;
}
