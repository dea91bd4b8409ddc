//! DynamoDB Local. It never throttles or fails by itself, so the proxy forges such answers.

use super::{event::Event, fault::Fault, faulty_servers::FaultyServers, network::Protocol};
use servers::dynamodb::DynamoDbLocal;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// The port of the proxy of the first candidate.
const FIRST_PORT: u16 = 9100;

pub(super) struct DynamoDbServers {
    server: DynamoDbLocal,
    /// A loopback address that only the proxies of this run use.
    proxy_address: Ipv4Addr,
    killed: bool,
}

impl DynamoDbServers {
    pub(super) fn start() -> Result<Self, String> {
        let server = DynamoDbLocal::start(&servers::target()).map_err(|error| error.to_string())?;
        let mut proxy_address =
            (0..20).map(|_| Ipv4Addr::new(127, fastrand::u8(1..255), fastrand::u8(1..255), 1));
        let is_free = |address: &Ipv4Addr| TcpListener::bind((*address, FIRST_PORT)).is_ok();
        let proxy_address = proxy_address.find(is_free).ok_or("no free loopback address")?;
        Ok(Self { server, proxy_address, killed: false })
    }
}

impl FaultyServers for DynamoDbServers {
    fn name(&self) -> &str {
        "DynamoDB Local 2.6.1"
    }

    fn protocol(&self) -> Protocol {
        Protocol::Http
    }

    fn servers(&self) -> Vec<SocketAddr> {
        vec![self.server.address()]
    }

    fn proxy_address(&self, candidate: usize, _: SocketAddr) -> SocketAddr {
        SocketAddr::from((self.proxy_address, FIRST_PORT + candidate as u16))
    }

    fn url(&self, candidate: Option<usize>) -> String {
        let endpoint = match candidate {
            Some(candidate) => format!("http://{}", self.proxy_address(candidate, self.server.address())),
            None => self.server.endpoint(),
        };
        format!("dynamodb://eu-west-1/faults?endpoint={endpoint}")
    }

    fn required_events(&self) -> &'static [Event] {
        &[Event::Throttled, Event::ServerStopped, Event::ServerRestarted]
    }

    fn faults(&self) -> &'static [Fault] {
        &[Fault::StopOne, Fault::KillOne]
    }

    fn inject(&mut self, fault: Fault, _: &mut fastrand::Rng) -> Result<Vec<Event>, String> {
        match fault {
            Fault::StopOne => {
                self.server.stop().map_err(|error| error.to_string())?;
                Ok(vec![Event::ServerStopped])
            }
            Fault::KillOne => {
                self.server.kill().map_err(|error| error.to_string())?;
                self.killed = true;
                Ok(vec![Event::ServerRestarted])
            }
            _ => Ok(Vec::new()),
        }
    }

    fn repair(&mut self) -> Result<(), String> {
        self.server.go_on().map_err(|error| error.to_string())?;
        if self.killed {
            self.killed = false;
            self.server.restart().map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}
