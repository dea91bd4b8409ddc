//! DynamoDB Local. It never throttles or fails by itself: the proxy forges that.

use super::{bed::Bed, fault::Fault, happened::Happened, network::Protocol};
use servers::dynamodb::DynamoDbLocal;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// The proxies of the first contender.
const FIRST_PORT: u16 = 9100;

pub(super) struct DynamoDbBed {
    server: DynamoDbLocal,
    /// An address of this machine that is this run's alone, for the proxies.
    front: Ipv4Addr,
    killed: bool,
}

impl DynamoDbBed {
    pub(super) fn start() -> Result<Self, String> {
        let server = DynamoDbLocal::start(&servers::target()).map_err(|error| error.to_string())?;
        let mut front = (0..20).map(|_| Ipv4Addr::new(127, fastrand::u8(1..255), fastrand::u8(1..255), 1));
        let is_free = |address: &Ipv4Addr| TcpListener::bind((*address, FIRST_PORT)).is_ok();
        let front = front.find(is_free).ok_or("no free address of this machine alone")?;
        Ok(Self { server, front, killed: false })
    }
}

impl Bed for DynamoDbBed {
    fn name(&self) -> &str {
        "DynamoDB Local 2.6.1"
    }

    fn protocol(&self) -> Protocol {
        Protocol::Http
    }

    fn servers(&self) -> Vec<SocketAddr> {
        vec![self.server.address()]
    }

    fn front(&self, contender: usize, _: SocketAddr) -> SocketAddr {
        SocketAddr::from((self.front, FIRST_PORT + contender as u16))
    }

    fn url(&self, contender: Option<usize>) -> String {
        let endpoint = match contender {
            Some(contender) => format!("http://{}", self.front(contender, self.server.address())),
            None => self.server.endpoint(),
        };
        format!("dynamodb://eu-west-1/faults?endpoint={endpoint}")
    }

    fn must_happen(&self) -> &'static [Happened] {
        &[Happened::Throttled, Happened::ServerStopped, Happened::ServerRestarted]
    }

    fn faults(&self) -> &'static [Fault] {
        &[Fault::StopOne, Fault::KillOne]
    }

    fn inject(&mut self, fault: Fault, _: &mut fastrand::Rng) -> Result<Vec<Happened>, String> {
        match fault {
            Fault::StopOne => {
                self.server.stop().map_err(|error| error.to_string())?;
                Ok(vec![Happened::ServerStopped])
            }
            Fault::KillOne => {
                self.server.kill().map_err(|error| error.to_string())?;
                self.killed = true;
                Ok(vec![Happened::ServerRestarted])
            }
            _ => Ok(Vec::new()),
        }
    }

    fn mend(&mut self) -> Result<(), String> {
        self.server.go_on().map_err(|error| error.to_string())?;
        if self.killed {
            self.killed = false;
            self.server.restart().map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}
