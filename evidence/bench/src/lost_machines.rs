//! The loss of a machine whose leader has named a successor: all its processes at once, or its links. Each candidate is in
//! a PID namespace of its own in a network namespace of its own.

use crate::{
    process::{self, init_storage},
    report::{Failure, Figure, Unit},
    takeovers::{Machine, NAMESPACE, Place, ip},
};
use harness::{Level, eventually, forward};
use rustix::process::Signal;
use servers::objects::CREDENTIALS;
use std::{
    io::{Read as _, Write as _},
    net::{SocketAddrV4, TcpStream},
};
use vvm_clock::SystemClock;

/// The longest TTL of a trial, which a schema has to allow.
const LONGEST_TTL: &str = "300s";

/// TTL and support period of a trial. The last one is beside [`dead_host`](crate::takeovers) without a successor.
const TRIALS: [(&str, &str); 3] = [(LONGEST_TTL, "2s"), (LONGEST_TTL, "5s"), ("20s", "2s")];

/// The time until the next command works, by storage, TTL and support period. Every second round cuts the links.
pub(crate) fn measure(quick: bool) -> Result<Vec<Figure>, Failure> {
    // A quick run shows that it works, on one storage.
    let (rounds, trials) = if quick { (2, &TRIALS[..1]) } else { (50, &TRIALS[..]) };
    let machines = [Machine::make(0)?, Machine::make(1)?];
    let lan = Lan::between(machines.each_ref())?;
    let mut figures = Vec::new();
    let places = [Place::postgres, Place::etcd, Place::objects];
    for start in if quick { &places[..1] } else { &places } {
        let Some(place) = start()? else { continue };
        // Its schema limits the TTL, and its URL has options already.
        let is_postgres = place.started.url.starts_with("postgres");
        let longest = if is_postgres { format!("&max_ttl={LONGEST_TTL}") } else { String::new() };
        init_storage(&format!("{}{longest}", place.started.url))?;
        for machine in &machines {
            for server in &place.started.addresses {
                forward(SocketAddrV4::new(machine.gateway.parse()?, server.port()), *server);
            }
        }
        // A write of an object store takes longer: its least support period is that of its TTL, 5 s.
        let is_slow = place.started.url.starts_with("s3:");
        for (ttl, period) in trials.iter().filter(|(_, period)| !is_slow || *period == "5s") {
            let samples = lan.lose_machines(&place, ttl, period, rounds)?;
            let name = format!(
                "next command after the loss of a machine, TTL {ttl}, support period {period}, {}",
                place.name
            );
            figures.push(Figure::new(name, Unit::Seconds, samples));
        }
    }
    Ok(figures)
}

/// Two machines with a network between them, over which no storage is reached.
pub(crate) struct Lan<'machines> {
    machines: [&'machines Machine; 2],
    pub(crate) addresses: [String; 2],
}

impl<'machines> Lan<'machines> {
    pub(crate) fn between(machines: [&'machines Machine; 2]) -> Result<Self, Failure> {
        let [one, two] = machines;
        let id = std::process::id() % 256;
        let addresses = [1, 2].map(|host| format!("198.19.{id}.{host}"));
        let (first, second) = (&one.namespace, &two.namespace);
        ip(&format!("-n {first} link add lan type veth peer name lan netns {second}"))?;
        for (machine, address) in machines.into_iter().zip(&addresses) {
            ip(&format!("-n {} addr add {address}/30 dev lan", machine.namespace))?;
            ip(&format!("-n {} link set lan up", machine.namespace))?;
        }
        Ok(Self { machines, addresses })
    }

    fn lose_machines(
        &self,
        place: &Place,
        ttl: &str,
        period: &str,
        rounds: usize,
    ) -> Result<Vec<f64>, Failure> {
        let trial = process::program(Level::Guardian)?.trial();
        let name = format!("bench-lost-{ttl}-{period}");
        let credentials = CREDENTIALS.map(|(name, value)| format!("{name}={value}"));
        let credentials = credentials.each_ref().map(String::as_str);
        let start = |round: usize| {
            let Machine { namespace, gateway } = &self.machines[round % 2];
            let local = trial.folder().join(namespace).display().to_string();
            let peer = format!("{}:7400", self.addresses[round % 2]);
            let http = self.machines[round % 2].http();
            let url = place.url(gateway);
            let before = [&["ip", "netns", "exec", namespace, "env"], &credentials[..], &NAMESPACE];
            let options = [
                ["--storage", &url],
                ["--name", &name],
                ["--local-dir", &local],
                ["--ttl", ttl],
                ["--successor", &peer],
                ["--support", period],
                ["--http", &http],
            ];
            process::start(&trial, &before.concat(), options.as_flattened())
        };
        let mut leader = start(0)?;
        leader.stdout.wait_for("alone");
        let mut samples = Vec::new();
        for round in 1..=rounds {
            let mut standby = start(round)?;
            let leads = self.machines[(round - 1) % 2];
            eventually("a successor is named", || leads.has_named().unwrap_or(false));
            let lost_at = SystemClock::read();
            let is_cut = round % 2 == 0;
            if is_cut {
                leads.set_links("down")?;
            } else {
                // Not the guardian first: its host would see that, and take its word back.
                leader.crash();
            }
            // It prints something else beside another that still works.
            standby.stdout.wait_for("alone");
            samples.push(SystemClock::read().since(lost_at).as_secs_f64());
            if is_cut {
                leads.set_links("up")?;
            }
            leader.finish();
            leader = standby;
        }
        leader.signal(Signal::KILL);
        leader.finish();
        // The kernel ends the processes of its namespace after that.
        let last = self.machines[rounds % 2];
        eventually("the last machine is gone", || TcpStream::connect(last.http()).is_err());
        Ok(samples)
    }
}

impl Machine {
    pub(crate) fn http(&self) -> String {
        // The other end of the link from its gateway.
        let (network, host) = self.gateway.rsplit_once('.').unwrap_or_default();
        format!("{network}.{}:7480", host.parse::<u8>().unwrap_or_default() + 1)
    }

    pub(crate) fn has_named(&self) -> Result<bool, Failure> {
        Ok(self.metric("vvm_successor_named{")? == 1)
    }

    pub(crate) fn metric(&self, named: &str) -> Result<u64, Failure> {
        let address = self.http();
        let mut stream = TcpStream::connect(&address)?;
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let samples = text.lines().filter(|line| line.starts_with(named));
        Ok(samples.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum())
    }

    fn set_links(&self, state: &str) -> Result<(), Failure> {
        ["veth", "lan"]
            .iter()
            .try_for_each(|link| ip(&format!("-n {} link set {link} {state}", self.namespace)))
    }
}
