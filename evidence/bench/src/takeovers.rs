//! Fail-over and hand-over between real processes: the time until the next command works.

use crate::{
    process::{self, init_storage, strike_host, take_overs},
    report::{Failure, Figure, Unit},
    setup::{Server, Started},
};
use harness::{Level, MemoryGroup, Program, Running, Trial, eventually, forward, has_ended, is_permitted};
use rustix::process::{Signal, kill_process};
use servers::{
    kubernetes::Kubernetes,
    owned::{self, StartError},
    postgres::{Pooler, Postgres},
};
use std::{fs, io, net::SocketAddrV4, path::PathBuf, process::Command, time::Duration};
use vvm_clock::{Instant, SystemClock};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Death {
    Of(Signal),
    /// The kernel ends it in a control group without memory. Counted from its end.
    OutOfMemory,
    /// Stopped, it is killed at its deadline. Counted from its end.
    Deadline,
    /// All processes of the leader die at once, with their PID namespace. Counted from the last renewal.
    OfMachine,
}

struct Row {
    name: &'static str,
    death: Death,
    level: Level,
    /// Whether the guardian is process 1 of a PID namespace.
    is_first: bool,
    rounds: usize,
}

const KILLED: Row = Row {
    name: "kill -9",
    death: Death::Of(Signal::KILL),
    level: Level::Guardian,
    is_first: false,
    rounds: 50,
};

/// A panic is not among them: nothing outside a released program makes it panic.
const ROWS: [Row; 8] = [
    KILLED,
    Row { name: "kill -9, level cgroup", level: Level::ControlGroup, ..KILLED },
    Row { name: "kill -9, level pidns", level: Level::PidNamespace, ..KILLED },
    Row { name: "kill -9, guardian is process 1", is_first: true, ..KILLED },
    Row { name: "abort", death: Death::Of(Signal::ABORT), ..KILLED },
    Row { name: "out of memory", death: Death::OutOfMemory, ..KILLED },
    Row { name: "stopped until its deadline", death: Death::Deadline, rounds: 10, ..KILLED },
    Row {
        name: "machine, from its last renewal",
        death: Death::OfMachine,
        is_first: true,
        rounds: 10,
        ..KILLED
    },
];

/// Starts what follows as process 1 of a PID namespace, which ends with `unshare`.
pub(crate) const NAMESPACE: [&str; 5] = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];

/// Fail-over after the death of the leader's host, with a standby on the machine: the guardian releases the record, so
/// the TTL does not matter, unless all processes die at once. With `quick` few rounds, and none of most of a TTL.
pub(crate) fn of_dead_hosts(quick: bool) -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    for row in ROWS {
        let rounds = if quick { row.rounds / 25 } else { row.rounds };
        match row.measure(process::program(row.level)?, rounds) {
            Ok(samples) if samples.is_empty() => {}
            Ok(samples) => {
                let name = format!("next command, TTL 20 s: {}", row.name);
                figures.push(Figure::new(name, Unit::Seconds, samples));
            }
            Err(cause) => eprintln!("left out: {}: {cause}", row.name),
        }
    }
    Ok(figures)
}

impl Row {
    /// Returns the seconds from each death until the next command works. Fails if the machine allows no such death.
    fn measure(&self, program: Program, rounds: usize) -> Result<Vec<f64>, Failure> {
        let before = if self.is_first { &NAMESPACE[..] } else { &[] };
        if program.level() != self.level || !is_permitted(&[before, &["true"]].concat()) {
            return Err("this machine does not allow it".into());
        }
        let trial = program.trial();
        let start = |_| process::start(&trial, before, &[]);
        take_overs(rounds, start, |leader| self.death.strike(&trial, leader))
    }
}

impl Death {
    /// Has the host of `leader` die. Returns the instant to count from.
    fn strike(self, trial: &Trial, leader: &Running) -> Result<Instant, Failure> {
        let host = leader.host();
        match self {
            Self::Of(signal) => strike_host(leader, signal),
            Self::OutOfMemory => Ok(MemoryGroup::of(&format!("{}-{host}", trial.mark()))?.exhaust(host)),
            Self::Deadline => {
                kill_process(host, Signal::STOP)?;
                eventually("the host is killed at its deadline", || has_ended(host));
                Ok(SystemClock::read())
            }
            Self::OfMachine => {
                leader.signal(Signal::KILL);
                eventually("the host dies with its namespace", || has_ended(host));
                renewed_at(trial)
            }
        }
    }
}

fn renewed_at(trial: &Trial) -> Result<Instant, Failure> {
    let asked_at = SystemClock::read();
    let (_, shown, said) = trial.status(&["--json"]);
    let slots: serde_json::Value = serde_json::from_str(&shown)?;
    let age = slots.pointer("/0/age_ms").and_then(serde_json::Value::as_u64);
    let age = age.ok_or_else(|| format!("vvm status shows no age: {said}"))?;
    Ok(asked_at.before(Duration::from_millis(age)))
}

/// Hand-over after a clean stop and fail-over after `kill -9` of the leader's host, with each candidate in a network
/// namespace of its own, with a TTL of 20 s. Notifications wake the standby.
pub(crate) fn between_machines(quick: bool) -> Result<Vec<Figure>, Failure> {
    let rounds = if quick { 2 } else { 10 };
    let machines = [Machine::make(0)?, Machine::make(1)?];
    let mut figures = Vec::new();
    for start in PLACES {
        let Some(place) = start()? else { continue };
        // Candidates of Kubernetes need nothing.
        if !place.name.starts_with("Kubernetes") {
            init_storage(&place.started.url)?;
        }
        for machine in &machines {
            for server in &place.started.addresses {
                forward(SocketAddrV4::new(machine.gateway.parse()?, server.port()), *server);
            }
        }
        figures.extend(place.measure(&machines, rounds)?);
    }
    Ok(figures)
}

/// Dropping it removes the namespace, and with it the interfaces.
pub(crate) struct Machine {
    pub(crate) namespace: String,
    /// The address at which it reaches servers of the root namespace.
    pub(crate) gateway: String,
}

impl Machine {
    /// Makes the one with this number, below 64. Without privileges the error names the cause, and nothing is left.
    pub(crate) fn make(number: u8) -> Result<Self, Failure> {
        let id = std::process::id();
        // Addresses for measurements (RFC 2544).
        let address = |host: u8| format!("198.18.{}.{}", id % 256, 4 * number + host);
        let namespace = format!("vvm{id}-{number}");
        ip(&format!("netns add {namespace}"))?;
        let machine = Self { namespace, gateway: address(1) };
        let (name, here) = (&machine.namespace, &machine.gateway);
        ip(&format!("link add {name} type veth peer name veth netns {name}"))?;
        ip(&format!("addr add {here}/30 dev {name}"))?;
        ip(&format!("link set {name} up"))?;
        ip(&format!("-n {name} addr add {}/30 dev veth", address(2)))?;
        ip(&format!("-n {name} link set veth up"))?;
        ip(&format!("-n {name} link set lo up"))?;
        Ok(machine)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The pair is removed at once, while processes may still keep the namespace.
        let _gone = ip(&format!("link del {}", self.namespace));
        let _best_effort = ip(&format!("netns del {}", self.namespace));
    }
}

pub(crate) fn ip(arguments: &str) -> Result<(), Failure> {
    let ran = owned::run(Command::new("ip").args(arguments.split(' ')), "Debian's package iproute2");
    ran.map(drop).map_err(|why| {
        format!("no network namespace (needs root, or CAP_SYS_ADMIN and CAP_NET_ADMIN): {why}").into()
    })
}

pub(crate) struct Place {
    pub(crate) name: &'static str,
    pub(crate) started: Started,
}

/// Starts a storage. `None`: this machine lacks it.
type Start = fn() -> Result<Option<Place>, Failure>;

const PLACES: [Start; 5] =
    [Place::postgres, Place::pooled, Place::etcd, || Place::kubernetes(ADMIN), || Place::kubernetes(WORKER)];

const ADMIN: &str = "admin";

/// May not watch, so there are no notifications.
const WORKER: &str = "worker";

const IN_FORCE: Duration = Duration::from_secs(30);

impl Place {
    pub(crate) fn postgres() -> Result<Option<Self>, Failure> {
        Ok(Some(Self { name: "PostgreSQL", started: Server::Postgres.start(false)? }))
    }

    /// Transactions may change the connection, so there are no notifications, and the standby's next look finds the end
    /// of the leader: within a second.
    fn pooled() -> Result<Option<Self>, Failure> {
        let server = Postgres::start(&servers::target(), &[], &[])?;
        let Some(pooler) = Pooler::start(&server)? else {
            eprintln!("left out: PostgreSQL without notifications (install Debian's package pgbouncer)");
            return Ok(None);
        };
        let (addresses, url) =
            (vec![pooler.address()], format!("{}?sslmode=disable", pooler.url("postgres")));
        // The pooler ends first.
        let started = Started { server: Box::new((pooler, server)), addresses, url };
        Ok(Some(Self { name: "PostgreSQL behind PgBouncer, so without notifications", started }))
    }

    pub(crate) fn etcd() -> Result<Option<Self>, Failure> {
        Ok(Some(Self { name: "three members of etcd", started: Server::Etcd.start(false)? }))
    }

    pub(crate) fn objects() -> Result<Option<Self>, Failure> {
        let started = Server::S3.start(false)?;
        // From a machine, it is not on loopback.
        let url = format!("{}&allow=http", started.url);
        Ok(Some(Self { name: "S3 (versitygw)", started: Started { url, ..started } }))
    }

    fn kubernetes(context: &'static str) -> Result<Option<Self>, Failure> {
        let server = match Kubernetes::start() {
            Err(why @ StartError::NotBuilt(_)) => {
                eprintln!("left out: Kubernetes: {why}");
                return Ok(None);
            }
            started => started?,
        };
        // Its certificate names loopback alone. Beside its own file, whose paths are relative.
        let config = fs::read_to_string(server.kubeconfig())?;
        const AUTHORITY: &str = "certificate-authority:";
        let named = config.replace(AUTHORITY, &format!("tls-server-name: localhost, {AUTHORITY}"));
        let elsewhere: PathBuf = server.kubeconfig().with_file_name("elsewhere");
        fs::write(&elsewhere, named)?;
        let role =
            ["create", "role", WORKER, "--verb=get,create,update", "--resource=leases.coordination.k8s.io"];
        let binding = ["create", "rolebinding", WORKER, "--role=worker", "--user=worker"];
        let created = server.kubectl(&role) && server.kubectl(&binding);
        // The server learns of a role a moment after it was created.
        let may = ["auth", "can-i", "update", "leases.coordination.k8s.io", "--as=worker"];
        if !created || !owned::wait_until(IN_FORCE, || Ok::<_, io::Error>(server.kubectl(&may)))? {
            return Err(
                "the role of a candidate that may not watch was not created, or is not in force".into()
            );
        }
        let (config, address) = (elsewhere.display(), server.address());
        let url = format!("k8s://default?kubeconfig={config}&context={context}&server=https://{address}");
        let name = if context == ADMIN { "Kubernetes" } else { "Kubernetes, without the right to watch" };
        let started = Started { server: Box::new(server), addresses: vec![address], url };
        Ok(Some(Self { name, started }))
    }

    /// The URL, with the servers' ports at `host`.
    pub(crate) fn url(&self, host: &str) -> String {
        let Started { addresses, url, .. } = &self.started;
        addresses.iter().fold(url.clone(), |url, address| {
            url.replace(&address.to_string(), &format!("{host}:{}", address.port()))
        })
    }

    fn measure(&self, machines: &[Machine; 2], rounds: usize) -> Result<[Figure; 2], Failure> {
        let program = process::program(Level::Guardian)?;
        let seconds_after = |signal| {
            let trial = program.trial();
            // The last leader of the first trial does not release.
            let name = if signal == Signal::KILL { "bench-killed" } else { "bench-stopped" };
            let start = |round: usize| {
                let Machine { namespace, gateway } = &machines[round % 2];
                let local = trial.folder().join(namespace).display().to_string();
                let options = ["--storage", &self.url(gateway), "--name", name, "--local-dir", &local];
                process::start(&trial, &["ip", "netns", "exec", namespace], &options)
            };
            let strike = |leader: &Running| {
                if signal == Signal::KILL {
                    return strike_host(leader, signal);
                }
                let struck_at = SystemClock::read();
                leader.signal(signal);
                Ok(struck_at)
            };
            take_overs(rounds, start, strike)
        };
        let figure = |what: &str, samples| {
            let name = format!("next command on another machine after {what}, {}", self.name);
            Figure::new(name, Unit::Seconds, samples)
        };
        Ok([
            figure("a clean stop", seconds_after(Signal::TERM)?),
            figure("kill -9 of the host", seconds_after(Signal::KILL)?),
        ])
    }
}
