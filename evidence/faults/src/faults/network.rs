//! [`Network`]: proxies between each candidate and each server. They cut, delay or hold back connections, and
//! forge answers. [`cql`], [`http`] and [`postgres`] know the protocols.

mod cql;
mod http;
mod postgres;

use super::fault::{Counts, Event};
pub(super) use http::{Dialect, Tls};
use std::{io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Handle,
    sync::watch,
    task::JoinSet,
};
use vvm_clock::{Clock, SystemClock};

/// The protocol of a server.
#[derive(Clone)]
pub(super) enum Protocol {
    /// That of Cassandra. All connections share the prepared statements.
    Cql(Arc<cql::Statements>),
    /// HTTP as a server uses it, and TLS if the server requires it.
    Http(Dialect, Option<Tls>),
    /// That of PostgreSQL.
    Postgres,
}

impl Protocol {
    pub(super) fn cql() -> Self {
        Self::Cql(Arc::default())
    }
}

/// What each connection uses.
#[derive(Clone)]
struct ConnectionContext {
    conditions: watch::Receiver<Conditions>,
    counts: Arc<Counts>,
    clock: SystemClock,
    protocol: Protocol,
}

impl ConnectionContext {
    fn now(&self) -> Conditions {
        *self.conditions.borrow()
    }

    /// Whether to forge the answer to a write that begins now.
    fn forges(&self) -> bool {
        fastrand::f64() < self.now().forged
    }

    /// Returns when a message may arrive: after a delay of a slow link, or when a silent link is open again.
    async fn arrival(&mut self) {
        if let Link::Slow(most) = self.now().link {
            self.clock.sleep(most.mul_f64(fastrand::f64())).await;
        }
        // The sender may have been dropped.
        let _gone = self.conditions.wait_for(|conditions| conditions.link != Link::Silent).await;
    }

    async fn cut(&mut self) {
        let _gone = self.conditions.wait_for(|conditions| conditions.link == Link::Cut).await;
    }
}

/// All proxies. Dropping the value ends every connection.
pub(super) struct Network {
    conditions: Vec<watch::Sender<Conditions>>,
    proxies: JoinSet<()>,
    counts: Arc<Counts>,
    clock: SystemClock,
    protocol: Protocol,
}

impl Network {
    /// A network for this many candidates, without proxies so far.
    pub(super) fn new(
        candidates: usize,
        protocol: Protocol,
        counts: Arc<Counts>,
        clock: SystemClock,
    ) -> Self {
        let conditions = (0..candidates).map(|_| watch::Sender::new(Conditions::NORMAL)).collect();
        Self { conditions, proxies: JoinSet::new(), counts, clock, protocol }
    }

    /// Starts a proxy for a candidate, from `listen` to `server`.
    ///
    /// # Errors
    /// If `listen` is not available.
    pub(super) fn open(
        &mut self,
        runtime: &Handle,
        candidate: usize,
        listen: SocketAddr,
        server: SocketAddr,
    ) -> io::Result<()> {
        let listener = runtime.block_on(TcpListener::bind(listen))?;
        let context = ConnectionContext {
            conditions: self.conditions[candidate].subscribe(),
            counts: Arc::clone(&self.counts),
            clock: self.clock.clone(),
            protocol: self.protocol.clone(),
        };
        self.proxies.spawn_on(serve(listener, server, context), runtime);
        Ok(())
    }

    /// Sets the conditions of one candidate.
    pub(super) fn set(&self, candidate: usize, conditions: Conditions) {
        self.conditions[candidate].send_replace(conditions);
    }

    /// Sets the conditions of all candidates.
    pub(super) fn set_all(&self, conditions: Conditions) {
        (0..self.conditions.len()).for_each(|candidate| self.set(candidate, conditions));
    }
}

async fn serve(listener: TcpListener, server: SocketAddr, context: ConnectionContext) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(_ended) = connections.join_next() => {}
            accepted = listener.accept() => {
                // The client may have closed the connection already.
                let Ok((client, _)) = accepted else { continue };
                if context.now().link == Link::Cut {
                    context.counts.add(Event::ConnectionRefused);
                    reset(&client);
                } else {
                    connections.spawn(connection(client, server, context.clone()));
                }
            }
        }
    }
}

/// Relays one connection until it ends or is cut.
async fn connection(client: TcpStream, server: SocketAddr, context: ConnectionContext) {
    // If the server is down, the proxy refuses, too.
    let Ok(server) = TcpStream::connect(server).await else { return reset(&client) };
    // Client libraries set it, too.
    let _best_effort = client.set_nodelay(true).and(server.set_nodelay(true));
    let mut conditions = context.clone();
    let counts = Arc::clone(&context.counts);
    let relay = async {
        match context.protocol.clone() {
            Protocol::Cql(statements) => cql::relay(client, server, context, statements).await,
            Protocol::Http(dialect, tls) => http::relay(client, server, context, dialect, tls).await,
            Protocol::Postgres => postgres::relay(client, server, context).await,
        }
    };
    tokio::select! {
        biased;
        () = conditions.cut() => counts.add(Event::ConnectionCut),
        () = relay => {}
    }
}

/// Ends the connection by a reset, as a firewall does.
fn reset(client: &TcpStream) {
    let _best_effort = client.set_zero_linger();
}

/// The conditions for one candidate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Conditions {
    pub(crate) link: Link,
    /// The probability that the answer to a write is forged.
    pub(crate) forged: f64,
}

/// The state of the connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    /// Open.
    Open,
    /// Connections are cut, and new ones refused.
    Cut,
    /// Answers are delayed, up to this long.
    Slow(Duration),
    /// Nothing arrives in either direction until the link is open again. Then all of it arrives.
    Silent,
}

impl Conditions {
    pub(crate) const NORMAL: Self = Self { link: Link::Open, forged: 0.0 };

    pub(crate) const fn link(link: Link) -> Self {
        Self { link, ..Self::NORMAL }
    }

    pub(crate) const fn forging(forged: f64) -> Self {
        Self { forged, ..Self::NORMAL }
    }
}
