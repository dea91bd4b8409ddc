//! `--between-machines`: the next command after a clean stop, and after `kill -9` of the leader's host, with
//! each candidate in a network namespace of its own, with a TTL of 20 s. Notifications wake the standby.

use crate::{
    process::{Candidate, CandidateError},
    report::{Figure, Side, Statistic, Unit},
};
use rustix::process::Signal;
use servers::{
    built::BuildError,
    etcd::{self, Cluster, Program},
    kubernetes::{self, Kubernetes},
    owned,
    postgres::{self, Pooler, Postgres},
};
use std::{
    env, fs, io,
    net::SocketAddr,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    runtime::{Builder, Runtime},
    task::JoinSet,
};

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BetweenMachinesError {
    #[error(transparent)]
    Machine(#[from] MachineError),
    #[error(transparent)]
    Candidate(#[from] CandidateError),
    #[error(transparent)]
    Postgres(#[from] postgres::StartError),
    #[error(transparent)]
    Etcd(#[from] etcd::StartError),
    #[error(transparent)]
    Kubernetes(#[from] kubernetes::StartError),
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error("{0}")]
    System(#[from] io::Error),
    #[error("`vvm init-storage` failed; build vvm with the features `postgres`, `etcd` and `kubernetes`")]
    Init,
    #[error("the role of a candidate that may not watch was not created, or is not in force")]
    Role,
}

pub(crate) fn measure(quick: bool) -> Result<Vec<Figure>, BetweenMachinesError> {
    let rounds = if quick { 2 } else { 10 };
    let machines = [Machine::make(0)?, Machine::make(1)?];
    let forwarder = Forwarder::new()?;
    let mut figures = Vec::new();
    for start in Place::STARTS {
        let Some(mut place) = start()? else { continue };
        place.init()?;
        for (machine, server) in machines.iter().flat_map(|machine| {
            let servers = place.addresses();
            servers.into_iter().map(move |server| (machine, server))
        }) {
            forwarder.forward(machine.gateway(), server)?;
        }
        figures.extend(of_place(&mut place, &machines, rounds)?);
    }
    Ok(figures)
}

fn of_place(
    place: &mut Place,
    machines: &[Machine; 2],
    rounds: u32,
) -> Result<[Figure; 2], BetweenMachinesError> {
    let folder = tempfile::tempdir()?;
    let mut start = |at: usize| {
        let before = ["ip", "netns", "exec", machines[at].namespace()];
        let url = place.url(machines[at].gateway());
        Candidate::start(&before, &url, &folder.path().join(format!("local{at}")))
    };
    let mut leader = start(0)?;
    leader.leads()?;
    let mut leads_at = 0;
    let mut samples_of = |signal: Signal| -> Result<Vec<f64>, BetweenMachinesError> {
        let mut samples = Vec::new();
        for _ in 0..rounds {
            leads_at = 1 - leads_at;
            let mut standby = start(leads_at)?;
            standby.waits()?;
            let ended_at = leader.end(signal)?;
            samples.push(standby.leads()?.since(ended_at).as_secs_f64());
            leader.wait()?;
            leader = standby;
        }
        Ok(samples)
    };
    let (stopped, killed) = (samples_of(Signal::TERM)?, samples_of(Signal::KILL)?);
    // Without a notification, the standby's next look finds it: within a second.
    let goals = if place.has_notifications() { [0.2, 0.3] } else { [1.0, 1.1] };
    let figure = |what: &str, samples, goal| {
        let name = format!("next command on another machine after {what}, {}", place.name());
        Figure::new(name, Unit::Seconds, samples).with_goal(Statistic::Median, Side::AtMost, goal)
    };
    Ok([figure("a clean stop", stopped, goals[0]), figure("kill -9 of the host", killed, goals[1])])
}

/// Dropping it ends all connections.
struct Forwarder {
    tasks: Runtime,
}

impl Forwarder {
    fn new() -> io::Result<Self> {
        Ok(Self { tasks: Builder::new_multi_thread().worker_threads(1).enable_all().build()? })
    }

    /// Forwards connections from the port of `server` at `gateway` to `server`.
    fn forward(&self, gateway: &str, server: SocketAddr) -> io::Result<()> {
        let listener = self.tasks.block_on(TcpListener::bind((gateway, server.port())))?;
        self.tasks.spawn(async move {
            let mut connections = JoinSet::new();
            // An error ends the measurement, since no candidate connects any more.
            while let Ok((mut client, _)) = listener.accept().await {
                connections.spawn(async move {
                    if let Ok(mut server) = TcpStream::connect(server).await {
                        let _ended = client.set_nodelay(true).and(server.set_nodelay(true));
                        let _ended = copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        Ok(())
    }
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MachineError {
    #[error("`ip` could not be started: {0}; install Debian's package iproute2")]
    NoProgram(#[from] io::Error),
    #[error("no network namespace: `ip {0}` said: {1} (needs root, or CAP_SYS_ADMIN and CAP_NET_ADMIN)")]
    Refused(String, String),
}

/// Dropping it removes the namespace, and with it the interfaces.
pub(crate) struct Machine {
    namespace: String,
    gateway: String,
}

impl Machine {
    /// Makes the one with this number, below 64.
    ///
    /// # Errors
    /// Without privileges, the error names the cause. Nothing is left.
    pub(crate) fn make(number: u8) -> Result<Self, MachineError> {
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

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The address at which it reaches servers of the root namespace.
    pub(crate) fn gateway(&self) -> &str {
        &self.gateway
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The pair is removed at once, while processes may still keep the namespace.
        let _gone = ip(&format!("link del {}", self.namespace));
        let _best_effort = ip(&format!("netns del {}", self.namespace));
    }
}

fn ip(arguments: &str) -> Result<(), MachineError> {
    let output = Command::new("ip").args(arguments.split(' ')).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(MachineError::Refused(arguments.into(), said))
}

/// A storage. Dropping it ends its servers.
enum Place {
    Postgres(Postgres),
    /// Transactions may change the connection, so there are no notifications.
    Pooled {
        pooler: Pooler,
        _server: Postgres,
    },
    Etcd(Cluster),
    /// Its candidates log in by this context.
    Kubernetes(Kubernetes, &'static str),
}

/// Starts a storage. `None`: this machine lacks it.
type Start = fn() -> Result<Option<Place>, BetweenMachinesError>;

/// May do everything.
const ADMIN: &str = "admin";

/// When a role must be in force.
const IN_FORCE: Duration = Duration::from_secs(30);

/// May not watch, so there are no notifications.
const WORKER: &str = "worker";

impl Place {
    const STARTS: [Start; 5] =
        [Self::postgres, Self::pooled, Self::etcd, || Self::kubernetes(ADMIN), || Self::kubernetes(WORKER)];

    fn postgres() -> Result<Option<Self>, BetweenMachinesError> {
        Ok(Some(Self::Postgres(Postgres::start(&servers::target(), &[], &[])?)))
    }

    fn pooled() -> Result<Option<Self>, BetweenMachinesError> {
        let server = Postgres::start(&servers::target(), &[], &[])?;
        let pooler = Pooler::start(&server)?;
        if pooler.is_none() {
            eprintln!("not measured: PostgreSQL without notifications (install Debian's package pgbouncer)");
        }
        Ok(pooler.map(|pooler| Self::Pooled { pooler, _server: server }))
    }

    fn etcd() -> Result<Option<Self>, BetweenMachinesError> {
        Ok(Some(Self::Etcd(Cluster::start(&Program::built()?, 3)?)))
    }

    fn kubernetes(context: &'static str) -> Result<Option<Self>, BetweenMachinesError> {
        let server = match Kubernetes::start() {
            Err(why @ kubernetes::StartError::NotBuilt) => {
                eprintln!("not measured: Kubernetes ({why})");
                return Ok(None);
            }
            started => started?,
        };
        // Its certificate names loopback alone.
        let config = fs::read_to_string(server.kubeconfig())?;
        const AUTHORITY: &str = "certificate-authority:";
        let named = config.replace(AUTHORITY, &format!("tls-server-name: localhost, {AUTHORITY}"));
        fs::write(elsewhere(&server), named)?;
        let role =
            ["create", "role", WORKER, "--verb=get,create,update", "--resource=leases.coordination.k8s.io"];
        let binding = ["create", "rolebinding", WORKER, "--role=worker", "--user=worker"];
        let created = server.kubectl(&role) && server.kubectl(&binding);
        // The server learns of a role a moment after it was created.
        let may = ["auth", "can-i", "update", "leases.coordination.k8s.io", "--as=worker"];
        if !created || !owned::wait_until(IN_FORCE, || Ok::<_, io::Error>(server.kubectl(&may)))? {
            return Err(BetweenMachinesError::Role);
        }
        Ok(Some(Self::Kubernetes(server, context)))
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Postgres(_) => "PostgreSQL",
            Self::Pooled { .. } => "PostgreSQL behind PgBouncer, so without notifications",
            Self::Etcd(_) => "three members of etcd",
            Self::Kubernetes(_, WORKER) => "Kubernetes, without the right to watch",
            Self::Kubernetes(..) => "Kubernetes",
        }
    }

    fn has_notifications(&self) -> bool {
        !matches!(self, Self::Pooled { .. } | Self::Kubernetes(_, WORKER))
    }

    /// Creates what candidates need. On Kubernetes that is nothing.
    fn init(&mut self) -> Result<(), BetweenMachinesError> {
        if matches!(self, Self::Kubernetes(..)) {
            return Ok(());
        }
        let init = Command::new(env::current_exe()?.with_file_name("vvm"))
            .args(["init-storage", "--storage", &self.url("127.0.0.1")])
            .stdout(Stdio::null())
            .status()?;
        if init.success() { Ok(()) } else { Err(BetweenMachinesError::Init) }
    }

    /// Where its servers listen.
    fn addresses(&mut self) -> Vec<SocketAddr> {
        match self {
            Self::Postgres(server) => vec![server.address()],
            Self::Pooled { pooler, .. } => vec![pooler.address()],
            Self::Etcd(cluster) => cluster.members().iter().map(|member| member.address()).collect(),
            Self::Kubernetes(server, _) => vec![server.address()],
        }
    }

    /// The URL, with the servers' ports at `host`.
    fn url(&mut self, host: &str) -> String {
        let ports = self.addresses();
        let hosts: Vec<String> = ports.iter().map(|address| format!("{host}:{}", address.port())).collect();
        let hosts = hosts.join(",");
        match self {
            Self::Postgres(_) | Self::Pooled { .. } => {
                format!("postgres://postgres@{hosts}/postgres?sslmode=disable")
            }
            Self::Etcd(_) => format!("etcd://{hosts}/bench"),
            Self::Kubernetes(server, context) => {
                let config = elsewhere(server).display().to_string();
                format!("k8s://default?kubeconfig={config}&context={context}&server=https://{hosts}")
            }
        }
    }
}

/// The kubeconfig for clients that reach the server at another address. Beside its own, whose paths are
/// relative.
fn elsewhere(server: &Kubernetes) -> PathBuf {
    server.kubeconfig().with_file_name("elsewhere")
}
