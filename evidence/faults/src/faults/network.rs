//! The network between each contender and each server: connections that are cut, slow or silent, and answers
//! that are forged, as the weather has it.
//!
//! What lives here: connections. What doesn't: what goes over them ([`cql`], [`http`]).

mod cql;
mod http;
mod weather;

pub(super) use weather::{Path, Weather};

use super::happened::{Counts, Happened};
use std::{io, net::SocketAddr, sync::Arc};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Handle,
    sync::watch,
    task::JoinSet,
};
use vvm_clock::{Clock, SystemClock};

/// What is spoken.
#[derive(Clone)]
pub(super) enum Protocol {
    /// By Cassandra. What is known of its statements is known to every connection.
    Cql(Arc<cql::Statements>),
    /// By DynamoDB.
    Http,
}

impl Protocol {
    pub(super) fn cql() -> Self {
        Self::Cql(Arc::default())
    }
}

/// What every connection needs.
#[derive(Clone)]
struct Surroundings {
    weather: watch::Receiver<Weather>,
    counts: Arc<Counts>,
    clock: SystemClock,
    protocol: Protocol,
}

impl Surroundings {
    fn now(&self) -> Weather {
        *self.weather.borrow()
    }

    /// Whether the outcome of a write that begins now is forged.
    fn forges(&self) -> bool {
        fastrand::f64() < self.now().forged
    }

    /// Returns when what is under way may arrive: at once in clear weather, after a silence or a delay
    /// otherwise.
    async fn arrival(&mut self) {
        if let Path::Slow(most) = self.now().path {
            self.clock.sleep(most.mul_f64(fastrand::f64())).await;
        }
        // The sender may have been dropped.
        let _gone = self.weather.wait_for(|weather| weather.path != Path::Silent).await;
    }

    async fn cut(&mut self) {
        let _gone = self.weather.wait_for(|weather| weather.path == Path::Cut).await;
    }
}

/// All of it. Dropping it ends every connection.
pub(super) struct Network {
    weather: Vec<watch::Sender<Weather>>,
    proxies: JoinSet<()>,
    counts: Arc<Counts>,
    clock: SystemClock,
    protocol: Protocol,
}

impl Network {
    /// Clear weather for so many contenders, and no way to anywhere.
    pub(super) fn new(
        contenders: usize,
        protocol: Protocol,
        counts: Arc<Counts>,
        clock: SystemClock,
    ) -> Self {
        let weather = (0..contenders).map(|_| watch::Sender::new(Weather::CLEAR)).collect();
        Self { weather, proxies: JoinSet::new(), counts, clock, protocol }
    }

    /// Opens a way for a contender: from `listen` to `server`.
    ///
    /// # Errors
    /// When `listen` is not to be had.
    pub(super) fn open(
        &mut self,
        runtime: &Handle,
        contender: usize,
        listen: SocketAddr,
        server: SocketAddr,
    ) -> io::Result<()> {
        let listener = runtime.block_on(TcpListener::bind(listen))?;
        let surroundings = Surroundings {
            weather: self.weather[contender].subscribe(),
            counts: Arc::clone(&self.counts),
            clock: self.clock.clone(),
            protocol: self.protocol.clone(),
        };
        self.proxies.spawn_on(serve(listener, server, surroundings), runtime);
        Ok(())
    }

    /// Changes the weather of one contender.
    pub(super) fn set(&self, contender: usize, weather: Weather) {
        self.weather[contender].send_replace(weather);
    }

    /// Changes it for all contenders.
    pub(super) fn set_all(&self, weather: Weather) {
        (0..self.weather.len()).for_each(|contender| self.set(contender, weather));
    }
}

async fn serve(listener: TcpListener, server: SocketAddr, surroundings: Surroundings) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(_ended) = connections.join_next() => {}
            accepted = listener.accept() => {
                // A client that has gone already is none.
                let Ok((client, _)) = accepted else { continue };
                if surroundings.now().path == Path::Cut {
                    surroundings.counts.add(Happened::ConnectionRefused);
                    reset(&client);
                } else {
                    connections.spawn(connection(client, server, surroundings.clone()));
                }
            }
        }
    }
}

/// From its beginning to its end, which may be a cut.
async fn connection(client: TcpStream, server: SocketAddr, surroundings: Surroundings) {
    // A server that is down refuses, and so do we.
    let Ok(server) = TcpStream::connect(server).await else { return reset(&client) };
    // As client libraries do.
    let _best_effort = client.set_nodelay(true).and(server.set_nodelay(true));
    let mut weather = surroundings.clone();
    let counts = Arc::clone(&surroundings.counts);
    let relay = async {
        match surroundings.protocol.clone() {
            Protocol::Cql(statements) => cql::relay(client, server, surroundings, statements).await,
            Protocol::Http => http::relay(client, server, surroundings).await,
        }
    };
    tokio::select! {
        biased;
        () = weather.cut() => counts.add(Happened::ConnectionCut),
        () = relay => {}
    }
}

/// Ends it as a firewall would: without a farewell.
fn reset(client: &TcpStream) {
    let _best_effort = client.set_zero_linger();
}
