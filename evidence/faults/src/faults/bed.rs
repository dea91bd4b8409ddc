//! What a fault run needs of a kind of server: where contenders connect, and what can be done to it.

use super::{fault::Fault, happened::Happened, network::Protocol};
use std::net::SocketAddr;

/// Servers that receive the faults. [`mend`](Self::mend) ends a fault; dropping the bed ends the servers.
pub(super) trait Bed {
    /// For people.
    fn name(&self) -> &str;

    /// What they speak.
    fn protocol(&self) -> Protocol;

    /// The servers, as a contender's proxies reach them.
    fn servers(&self) -> Vec<SocketAddr>;

    /// Where the proxy of `contender` before `server` listens.
    fn front(&self, contender: usize, server: SocketAddr) -> SocketAddr;

    /// The storage by way of proxies, or directly.
    fn url(&self, contender: Option<usize>) -> String;

    /// What a run must have met beyond what can be done to connections.
    fn must_happen(&self) -> &'static [Happened];

    /// What can be done to these servers.
    fn faults(&self) -> &'static [Fault];

    /// Does it, to whichever server chance chooses; what was done.
    ///
    /// # Errors
    /// When the system refuses.
    fn inject(&mut self, fault: Fault, dice: &mut fastrand::Rng) -> Result<Vec<Happened>, String>;

    /// Undoes it, and waits until every server answers.
    ///
    /// # Errors
    /// When one does not.
    fn mend(&mut self) -> Result<(), String>;
}
