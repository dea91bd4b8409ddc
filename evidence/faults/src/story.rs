//! `--story`: two processes take turns, and one of them crashes. Each step is checked. `Candidate` has one
//! process, `TestStorage` the storages.

use crate::{Server, interruption::Interruption, place};
use rustix::process::{Pid, Signal, kill_process};
use servers::{
    cassandra::Cassandra,
    dynamodb::DynamoDbLocal,
    etcd::{Cluster, Program},
    kubernetes::Kubernetes,
    objects::{ObjectServer, Product},
    owned::{self, Owned},
    postgres::Postgres,
};
use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    process::Stdio,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};
use tempfile::TempDir;
use vvm_clock::{Instant, SystemClock};

/// Long enough to distinguish a crash from a halt of this machine.
const TTL: Duration = Duration::from_secs(5);

/// How long a standby must wait beside a leader. A leader that did not renew would be lost by then.
const WAIT_BESIDE_LEADER: Duration = TTL.saturating_add(Duration::from_secs(1));

/// The bound of a fail-over after a crash: the observation of one TTL, and the time that the storage adds.
const FAIL_OVER: Duration = Duration::from_millis(TTL.as_millis() as u64 * 105 / 100 + 1000);

/// The shortest fail-over after a crash. A leader is lost 0.65 TTL after its last renewal, so at least the
/// rest of the TTL remains. A standby that leads sooner did not wait, or the record was released.
const AT_LEAST: Duration = Duration::from_millis(TTL.as_millis() as u64 * 35 / 100);

/// The bound of a hand-over or a first leadership. A process must start, open its storage and read it, beside
/// a server on the same machine.
const HAND_OVER: Duration = Duration::from_secs(20);

/// Runs the steps on SQLite and on each of `servers`.
///
/// # Errors
/// The first step that failed.
pub(crate) fn run(vvm: Option<PathBuf>, servers: &[Server]) -> Result<(), String> {
    let interruption = Interruption::listen().map_err(|error| error.to_string())?;
    let vvm = place::vvm(vvm).map_err(|error| error.to_string())?;
    for server in [None].into_iter().chain(servers.iter().copied().map(Some)) {
        let storage = TestStorage::start(server, &vvm)?;
        let story = Story { interruption: &interruption, storage, began: SystemClock::read(), last_epoch: 0 };
        story.run()?;
    }
    Ok(())
}

struct Story<'a> {
    interruption: &'a Interruption,
    storage: TestStorage,
    began: Instant,
    last_epoch: u64,
}

impl Story<'_> {
    fn run(mut self) -> Result<(), String> {
        println!("\nTwo processes on {}, TTL {} s", self.storage, TTL.as_secs());
        let mut first = self.start("first")?;
        let worker = self.wait_until_leads(&first, HAND_OVER)?;
        let mut second = self.start("second")?;
        self.check_waits(&second, worker)?;

        self.log("first gets TERM");
        first.stop()?;
        let worker = self.wait_until_succeeds(&second, worker, HAND_OVER)?;
        first = self.start("first")?;
        self.check_waits(&first, worker)?;

        self.log("second gets TERM");
        second.stop()?;
        let worker = self.wait_until_succeeds(&first, worker, HAND_OVER)?;
        second = self.start("second")?;
        self.check_waits(&second, worker)?;

        self.log("first is killed (SIGKILL), with all that it runs");
        let crashed = SystemClock::read();
        first.crash()?;
        self.wait_until_succeeds(&second, worker, FAIL_OVER)?;
        let gap = crashed.until(SystemClock::read());
        let seconds = |span: Duration| format!("{:.2} s", span.as_secs_f64());
        self.log(&format!("no leader for {}; {} are allowed", seconds(gap), seconds(FAIL_OVER)));
        if gap < AT_LEAST {
            return Err(format!("a crashed leader was replaced after only {}", seconds(gap)));
        }
        second.stop()?;
        self.log("second has stopped");
        Ok(())
    }

    fn start(&self, name: &'static str) -> Result<Candidate, String> {
        self.log(&format!("{name} is started"));
        Candidate::start(name, &self.storage, TTL)
    }

    /// Waits until a candidate leads a vacant slot.
    fn wait_until_leads(&mut self, candidate: &Candidate, within: Duration) -> Result<Worker, String> {
        let mut worker = None;
        self.interruption.wait_until(within, || {
            worker = candidate.worker()?;
            Ok(worker.is_some())
        })?;
        let worker = worker
            .ok_or_else(|| format!("{} does not lead after {within:?}. {candidate}", candidate.name))?;
        self.log(&format!("{} leads, epoch {}", candidate.name, worker.epoch));
        if worker.epoch <= self.last_epoch {
            return Err(format!("epoch {} follows epoch {}", worker.epoch, self.last_epoch));
        }
        self.last_epoch = worker.epoch;
        Ok(worker)
    }

    /// Waits until a candidate leads after another one, whose worker must have ended by then.
    fn wait_until_succeeds(
        &mut self,
        candidate: &Candidate,
        before: Worker,
        within: Duration,
    ) -> Result<Worker, String> {
        let worker = self.wait_until_leads(candidate, within)?;
        if before.is_alive() {
            return Err(format!(
                "the worker of epoch {} is alive while {} leads",
                before.epoch, candidate.name
            ));
        }
        Ok(worker)
    }

    /// Checks that a candidate waits for longer than a TTL while the other one leads.
    fn check_waits(&self, candidate: &Candidate, leader: Worker) -> Result<(), String> {
        if !self.interruption.wait_until(HAND_OVER, || candidate.waits())? {
            return Err(format!("{} does not wait after {HAND_OVER:?}. {candidate}", candidate.name));
        }
        self.interruption.pass(WAIT_BESIDE_LEADER, || {
            if candidate.worker()?.is_some() {
                return Err(format!("{} leads beside epoch {}", candidate.name, leader.epoch));
            }
            if !leader.is_alive() {
                return Err(format!("the worker of epoch {} has ended. {candidate}", leader.epoch));
            }
            Ok(())
        })?;
        self.log(&format!(
            "{} has waited for {WAIT_BESIDE_LEADER:?}: epoch {} still leads",
            candidate.name, leader.epoch
        ));
        Ok(())
    }

    fn log(&self, what: &str) {
        println!("{:6.2} s  {what}", self.began.until(SystemClock::read()).as_secs_f64());
    }
}

/// The worker: writes its process id and its epoch, and then sleeps.
const SCRIPT: &str = r#"echo $$ $VVM_LEADER_EPOCH > "$1"; exec sleep 1000"#;

/// How long a process may take to end. Its worker ends on the first signal.
const END: Duration = Duration::from_secs(20);

/// One process. Dropping the value ends it.
pub(crate) struct Candidate {
    pub(crate) name: &'static str,
    process: Owned,
    /// The file that the worker writes.
    worker_file: PathBuf,
}

/// The command that runs while a candidate leads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Worker {
    process: u32,
    pub(crate) epoch: u64,
}

impl Candidate {
    pub(crate) fn start(name: &'static str, storage: &TestStorage, ttl: Duration) -> Result<Self, String> {
        /// A name can be started more than once, so each start has a number.
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let file = |what| storage.folder().join(format!("{number}-{name}.{what}"));
        let worker_file = file("worker");
        let system = |error: io::Error| format!("{name} can't be started: {error}");
        let mut command = owned::command(storage.vvm()).map_err(system)?;
        command
            .args(["run", "--storage", storage.url(), "--name", "story", "--holder", name])
            .args(["--ttl", &format!("{}ms", ttl.as_millis())])
            .args(["--", "sh", "-c", SCRIPT, "worker"])
            .arg(&worker_file);
        let process = Owned::start(command, &file("log")).map_err(system)?;
        Ok(Self { name, process, worker_file })
    }

    /// Returns its worker, if it has one.
    pub(crate) fn worker(&self) -> Result<Option<Worker>, String> {
        let said = match fs::read_to_string(&self.worker_file) {
            Ok(said) => said,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("the worker file of {} can't be read: {error}", self.name)),
        };
        // Without a line end, the line is still being written.
        let Some((process, epoch)) = said.strip_suffix('\n').and_then(|line| line.split_once(' ')) else {
            return Ok(None);
        };
        let worker = process.parse().ok().zip(epoch.parse().ok());
        let (process, epoch) = worker.ok_or_else(|| format!("the worker of {} wrote `{said}`", self.name))?;
        Ok(Some(Worker { process, epoch }))
    }

    /// Whether it has opened its storage and waits for leadership.
    pub(crate) fn waits(&self) -> Result<bool, String> {
        Ok(self.process.log_end().contains("waiting for leadership"))
    }

    /// Stops it, and waits until it has released its record and ended.
    pub(crate) fn stop(mut self) -> Result<(), String> {
        self.signal(Signal::TERM)?;
        self.wait()?;
        if self.process.log_end().contains("stopped") {
            return Ok(());
        }
        Err(format!("{} has not stopped in order. {self}", self.name))
    }

    /// Kills all its processes, and waits until they have ended.
    ///
    /// The host is killed first, because it would release the record after the death of the guardian.
    pub(crate) fn crash(mut self) -> Result<(), String> {
        let guardian = self.process.id();
        let children = fs::read_to_string(format!("/proc/{guardian}/task/{guardian}/children"));
        let children =
            children.map_err(|error| format!("the children of {} can't be listed: {error}", self.name))?;
        for child in children.split_whitespace().filter_map(|child| Pid::from_raw(child.parse().ok()?)) {
            // It may have ended already.
            let _gone = kill_process(child, Signal::KILL);
        }
        self.signal(Signal::KILL)?;
        self.wait()
    }

    fn signal(&mut self, signal: Signal) -> Result<(), String> {
        self.process.signal(signal).map_err(|error| format!("{} can't be signalled: {error}", self.name))
    }

    fn wait(&mut self) -> Result<(), String> {
        let ended = owned::wait_until(END, || self.process.ended().map(|ended| ended.is_some()));
        match ended {
            Ok(true) => Ok(()),
            Ok(false) => Err(format!("{} has not ended after {END:?}. {self}", self.name)),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// The end of its log.
impl fmt::Display for Candidate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "The end of its log:\n{}", self.process.log_end())
    }
}

impl Worker {
    /// Whether it still runs. A zombie does not.
    pub(crate) fn is_alive(self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process));
        // The name may contain blanks and brackets; the last bracket ends it (proc(5)).
        stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X'])))
    }
}

/// A storage, the vvm program, and a folder for logs.
pub(crate) struct TestStorage {
    vvm: PathBuf,
    name: &'static str,
    url: String,
    /// Ends with this value.
    _server: Option<Box<dyn fmt::Debug>>,
    folder: TempDir,
}

impl TestStorage {
    /// Starts one server, or uses a file without one.
    pub(crate) fn start(server: Option<Server>, vvm: &Path) -> Result<Self, String> {
        let folder = TempDir::with_prefix("story-").map_err(|error| error.to_string())?;
        let (name, url, server) = match server {
            None => {
                ("SQLite", format!("sqlite:{}?allow=overlay", folder.path().join("story.db").display()), None)
            }
            Some(Server::Scylla) => {
                let cassandra = Cassandra::start(1, &servers::target()).map_err(|error| error.to_string())?;
                let url = format!("scylla://{}/story", cassandra.contact_points());
                init(vvm, &format!("{url}?replication=1"))?;
                ("Apache Cassandra 5.0.5", url, Some(Box::new(cassandra) as _))
            }
            Some(Server::Dynamodb) => {
                let local = DynamoDbLocal::start(&servers::target()).map_err(|error| error.to_string())?;
                let url = format!("dynamodb://eu-west-1/story?endpoint={}", local.endpoint());
                init(vvm, &url)?;
                ("DynamoDB Local 2.6.1", url, Some(Box::new(local) as _))
            }
            Some(Server::Etcd) => {
                let program = Program::built().map_err(|error| error.to_string())?;
                let cluster = Cluster::start(&program, 3).map_err(|error| error.to_string())?;
                let url = format!("etcd://{}/story", cluster.addresses());
                init(vvm, &url)?;
                ("etcd", url, Some(Box::new(cluster) as _))
            }
            Some(Server::Kubernetes) => {
                let server = Kubernetes::start().map_err(|error| error.to_string())?;
                let url = server.url("default");
                init(vvm, &url)?;
                ("Kubernetes", url, Some(Box::new(server) as _))
            }
            Some(Server::S3) => {
                let server = ObjectServer::start(Product::Versitygw).map_err(|error| error.to_string())?;
                let url = server.url("story");
                init(vvm, &url)?;
                ("versitygw", url, Some(Box::new(server) as _))
            }
            Some(Server::Postgres) => {
                let server = Postgres::start(&servers::target(), &[], &[]);
                let server = server.map_err(|error| error.to_string())?;
                let url = server.url("postgres");
                init(vvm, &url)?;
                ("PostgreSQL", url, Some(Box::new(server) as _))
            }
        };
        Ok(Self { vvm: vvm.to_owned(), name, url, _server: server, folder })
    }

    pub(crate) fn vvm(&self) -> &Path {
        &self.vvm
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl fmt::Display for TestStorage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name)
    }
}

/// Runs `vvm init-storage`, and repeats it if a server that has just started takes too long.
fn init(vvm: &Path, url: &str) -> Result<(), String> {
    let system = |error: io::Error| format!("`vvm init-storage` can't be run: {error}");
    let mut attempts = 1..5;
    loop {
        let mut command = owned::command(vvm).map_err(system)?;
        let command = command.args(["init-storage", "--storage", url]);
        let ended = command.stdin(Stdio::null()).stdout(Stdio::null()).status().map_err(system)?;
        if ended.success() {
            return Ok(());
        }
        if attempts.next().is_none() {
            return Err(format!("`vvm init-storage` has failed: {ended}"));
        }
    }
}
