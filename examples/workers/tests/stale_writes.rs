//! Real workers on PostgreSQL: once a later leader has written, a write with an earlier epoch is refused. `cargo xtask
//! test-drivers --only postgres` runs it: it starts the server and makes the workers.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "clippy exempts tests, but not their helpers"
)]

use harness::{HANG_LIMIT, Level, Lines, Program, Trial, eventually};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    env,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::LazyLock,
    thread,
};
use tokio_postgres::{Client, Config, NoTls};
use workers::{PayError, SCHEMA, fence, pay};

/// The variable with the URL of a database for the workers, and those with the workers.
const DATABASE: &str = "VVM_TEST_WORKERS_DATABASE";
const PYTHON: &str = "VVM_TEST_WORKERS_PYTHON";
const GO: &str = "VVM_TEST_WORKERS_GO";

/// What each worker prints after a payment, before its epoch.
const PAID: &str = "paid under epoch ";

/// `vvm`, which the same cargo has built into the same folder.
static VVM: LazyLock<String> = LazyLock::new(|| {
    let path = Path::new(env!("CARGO_BIN_EXE_payroll")).with_file_name("vvm");
    assert!(path.exists(), "{} is not built: run `cargo xtask test-drivers`", path.display());
    path.display().to_string()
});

fn trial() -> Trial {
    Program::new(&VVM, Level::Guardian).trial()
}

fn database() -> String {
    env::var(DATABASE).unwrap()
}

fn at_database<T>(name: &str, ask: impl AsyncFnOnce(Client) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = database().parse::<Config>().unwrap();
    runtime.block_on(async {
        let (client, connection) = config.clone().application_name(name).connect(NoTls).await.unwrap();
        let asked = async {
            // Concurrent `CREATE TABLE IF NOT EXISTS` may fail.
            client.batch_execute("SELECT pg_advisory_lock(1)").await.unwrap();
            client.batch_execute(SCHEMA).await.unwrap();
            client.batch_execute("SELECT pg_advisory_unlock(1)").await.unwrap();
            ask(client).await
        };
        tokio::join!(asked, connection).0
    })
}

/// The epoch in the fence of a resource, and those of all payments in their order.
fn written(resource: &str) -> (i64, Vec<i64>) {
    at_database("test", async |client| {
        let fence = "SELECT epoch FROM fence WHERE resource = $1";
        let fence = client.query_one(fence, &[&resource]).await.unwrap();
        let payments = "SELECT epoch FROM payment WHERE resource = $1 ORDER BY id";
        let payments = client.query(payments, &[&resource]).await.unwrap();
        (fence.get(0), payments.iter().map(|row| row.get(0)).collect())
    })
}

fn paid(output: &mut Lines) -> i64 {
    output.wait_for(PAID).rsplit_once(' ').unwrap().1.parse().unwrap()
}

struct Process {
    child: Child,
    stdout: Lines,
    stderr: Lines,
}

impl Process {
    fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = Lines::of("stdout", child.stdout.take().unwrap());
        let stderr = Lines::of("stderr", child.stderr.take().unwrap());
        Self { child, stdout, stderr }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("the process ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Stops a process between two transactions: inside of one it would hold the lock of the next leader.
fn stop_between_transactions(process: &Process, application: &str) {
    // Unchanged for a while, so that nothing is on the way to the server.
    let settled = "SELECT state FROM pg_stat_activity WHERE application_name = $1 \
                   AND state <> 'active' AND clock_timestamp() - state_change > interval '200 ms'";
    at_database("test", async |client| {
        let give_up_at = vvm_clock::SystemClock::read().after(HANG_LIMIT);
        loop {
            process.signal(Signal::STOP);
            let state = loop {
                if let Some(row) = client.query_opt(settled, &[&application]).await.unwrap() {
                    break row.get::<_, String>(0);
                }
                assert!(vvm_clock::SystemClock::read() < give_up_at, "it is never between two transactions");
            };
            if state == "idle" {
                return;
            }
            process.signal(Signal::CONT);
        }
    });
}

/// A leader has started a copy of its worker elsewhere, as `ssh` does: `vvm` can't end that one. The copy is
/// stopped, another machine leads and pays, and the copy continues.
fn copy_of_an_earlier_leader_is_refused(worker: &[&str]) {
    let trial = trial();
    let (database, resource, application) = (database(), format!("{}/1", trial.name()), trial.mark());
    // The tables, before the first worker.
    at_database("test", async |_| {});
    let lead = || trial.run(worker.iter().copied()).environment("DATABASE_URL", &database).start();
    let mut first = lead();
    let earlier = paid(&mut first.stdout);
    let mut second = lead();

    let mut command = Command::new(worker[0]);
    command.args(&worker[1..]).env("DATABASE_URL", &database).env("PGAPPNAME", application);
    command.env("VVM_LEADER_NAME", trial.name()).env("VVM_LEADER_SLOT", "1");
    let mut copy = Process::start(command.env("VVM_LEADER_EPOCH", earlier.to_string()));
    assert_eq!(paid(&mut copy.stdout), earlier, "the leader's own epoch is accepted");
    stop_between_transactions(&copy, application);

    first.signal(Signal::TERM);
    first.finish();
    let later = paid(&mut second.stdout);
    assert!(later > earlier, "{later} after {earlier}");
    second.signal(Signal::TERM);
    second.finish();
    let before = written(&resource);
    assert_eq!((before.0, before.1.last()), (later, Some(&later)));
    assert!(before.1.is_sorted(), "{before:?}");

    copy.signal(Signal::CONT);
    assert_eq!(copy.ended().code(), Some(1));
    let why = format!("worker: epoch {earlier} of {resource} has ended: a later leader has written");
    assert_eq!(copy.stderr.rest(), [why]);
    assert_eq!(written(&resource), before, "nothing was written");
}

mod in_python {
    use super::*;

    #[test]
    fn copy_of_an_earlier_leader_is_refused() {
        let worker = concat!(env!("CARGO_MANIFEST_DIR"), "/python/worker.py");
        super::copy_of_an_earlier_leader_is_refused(&[&env::var(PYTHON).unwrap(), worker]);
    }
}

mod in_go {
    use super::*;

    #[test]
    fn copy_of_an_earlier_leader_is_refused() {
        super::copy_of_an_earlier_leader_is_refused(&[&env::var(GO).unwrap()]);
    }
}

mod in_rust {
    use super::*;

    fn service(name: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_payroll"));
        command.env("DATABASE_URL", database()).args(["--name", name, "--ttl-ms", "4000"]);
        command
    }

    #[test]
    fn stopped_leader_is_dead_before_the_next_one_pays_and_its_epoch_is_refused() {
        let trial = trial();
        let (name, resource) = (trial.name(), format!("{}/1", trial.name()));
        let mut init = Process::start(service(&name).arg("--init"));
        assert_eq!(init.ended().code(), Some(0), "{:#?}", init.stderr.rest());
        let mut first = Process::start(&mut service(&name));
        let earlier = paid(&mut first.stdout);
        let mut second = Process::start(&mut service(&name));
        first.signal(Signal::STOP);
        let later = paid(&mut second.stdout);
        assert!(later > earlier, "{later} after {earlier}");
        let killed = first.child.try_wait().unwrap();
        assert!(killed.is_some_and(|status| !status.success()), "its kill deadline has passed: {killed:?}");
        second.signal(Signal::TERM);
        assert_eq!(second.ended().code(), Some(0));

        let before = written(&resource);
        assert_eq!((before.0, before.1.last()), (later, Some(&later)));
        let refused = at_database("test", async |mut client| pay(&mut client, &resource, earlier).await);
        assert!(matches!(refused, Err(PayError::Stale { epoch, .. }) if epoch == earlier), "{refused:?}");
        assert_eq!(written(&resource), before, "nothing was written");
    }

    /// The earlier leader's statement begins before the later one's commit, and is decided after it.
    #[test]
    fn write_that_waits_for_a_later_leader_is_refused() {
        let trial = trial();
        let (resource, waiting) = (format!("{}/1", trial.name()), trial.mark());
        // At first no row stands there.
        for (earlier, later) in [(1, 2), (2, 3)] {
            let stale = at_database("test", async |mut client| {
                let transaction = client.transaction().await.unwrap();
                fence(&transaction, &resource, later).await.unwrap();
                let (resource, name) = (resource.clone(), waiting.to_owned());
                let stale = thread::spawn(move || {
                    at_database(&name, async |mut client| pay(&mut client, &resource, earlier).await)
                });
                let waits = "SELECT FROM pg_stat_activity \
                             WHERE application_name = $1 AND wait_event_type = 'Lock'";
                while transaction.query_opt(waits, &[&waiting]).await.unwrap().is_none() {
                    assert!(!stale.is_finished(), "it did not wait");
                    // Otherwise a transaction always sees the same activity.
                    transaction.batch_execute("SELECT pg_stat_clear_snapshot()").await.unwrap();
                }
                transaction.commit().await.unwrap();
                stale
            });
            let refused = stale.join().unwrap();
            assert!(matches!(refused, Err(PayError::Stale { epoch, .. }) if epoch == earlier), "{refused:?}");
            assert_eq!(written(&resource), (later, Vec::new()));
        }
    }
}
