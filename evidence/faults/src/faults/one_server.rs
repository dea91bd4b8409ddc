//! [`OneServer`]: a storage of one server that speaks HTTP. It hardly ever throttles or fails by itself, so
//! the proxy forges such answers.

use super::{
    fault::Event,
    fault::Fault,
    faulty_servers::{FaultyServers, Front},
    network::{Dialect, Protocol, Tls},
};
use rustix::process::Signal;
use servers::{
    dynamodb::DynamoDbLocal,
    kubernetes::Kubernetes,
    objects::{ObjectServer, Product},
    owned::Server,
};
use std::{net::SocketAddr, ops::DerefMut};

/// A server that starts again with its data.
pub(super) trait Restartable: DerefMut<Target = Server> {
    /// The URL of a storage on it, through `address`.
    fn url(&self, address: SocketAddr) -> String;
}

pub(super) struct OneServer {
    name: String,
    server: Box<dyn Restartable>,
    protocol: Protocol,
    front: Front,
    killed: bool,
}

impl OneServer {
    pub(super) fn dynamodb() -> Result<Self, String> {
        let server = DynamoDbLocal::start(&servers::target()).map_err(text)?;
        Self::new("DynamoDB Local 2.6.1".into(), Box::new(server), Dialect::DynamoDb, None)
    }

    pub(super) fn s3() -> Result<Self, String> {
        let server = ObjectServer::start(Product::Versitygw).map_err(text)?;
        Self::new(Product::Versitygw.to_string(), Box::new(server), Dialect::S3, None)
    }

    pub(super) fn kubernetes() -> Result<Self, String> {
        let server = Kubernetes::start().map_err(text)?;
        let tls = Tls::of(&server.authority(), "127.0.0.1").map_err(text)?;
        Self::new(server.version(), Box::new(server), Dialect::Kubernetes, Some(tls))
    }

    fn new(
        name: String,
        server: Box<dyn Restartable>,
        dialect: Dialect,
        tls: Option<Tls>,
    ) -> Result<Self, String> {
        let protocol = Protocol::Http(dialect, tls);
        Ok(Self { name, server, protocol, front: Front::find()?, killed: false })
    }
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

impl Restartable for DynamoDbLocal {
    fn url(&self, address: SocketAddr) -> String {
        format!("dynamodb://eu-west-1/faults?endpoint=http://{address}")
    }
}

impl Restartable for ObjectServer {
    fn url(&self, address: SocketAddr) -> String {
        let own = self.url("faults").replace(&self.address().to_string(), &address.to_string());
        format!("{own}&min_ttl=2s&request_timeout=1s")
    }
}

impl Restartable for Kubernetes {
    fn url(&self, address: SocketAddr) -> String {
        let scheme = if address == self.address() { "https" } else { "http" };
        format!("{}&server={scheme}://{address}&request_timeout=1s", self.url("default"))
    }
}

impl FaultyServers for OneServer {
    fn name(&self) -> &str {
        &self.name
    }

    fn protocol(&self) -> Protocol {
        self.protocol.clone()
    }

    fn servers(&self) -> Vec<SocketAddr> {
        vec![self.server.address()]
    }

    fn proxy_address(&self, candidate: usize, _: SocketAddr) -> SocketAddr {
        self.front.proxy(candidate, 0)
    }

    fn url(&self, candidate: Option<usize>) -> String {
        let address = self.server.address();
        self.server.url(candidate.map_or(address, |candidate| self.proxy_address(candidate, address)))
    }

    fn required_events(&self) -> &'static [Event] {
        // Few writes are refused where candidates ask for the slot at different times.
        &[Event::Throttled, Event::ServerStopped, Event::ServerRestarted]
    }

    fn faults(&self) -> &'static [Fault] {
        &[Fault::StopOne, Fault::KillOne]
    }

    fn inject(&mut self, fault: Fault, _: &mut fastrand::Rng) -> Result<Vec<Event>, String> {
        match fault {
            Fault::StopOne => {
                self.server.signal(Signal::STOP).map_err(text)?;
                Ok(vec![Event::ServerStopped])
            }
            Fault::KillOne => {
                self.server.signal(Signal::KILL).map_err(text)?;
                self.killed = true;
                Ok(vec![Event::ServerRestarted])
            }
            _ => Ok(Vec::new()),
        }
    }

    fn repair(&mut self) -> Result<(), String> {
        if std::mem::take(&mut self.killed) {
            return self.server.restart().map_err(text);
        }
        self.server.signal(Signal::CONT).map_err(text)
    }
}
