//! Fail-over and hand-over of apps: one that needs five seconds to start, as a warm standby and as a command that is
//! started by the leader; and a warm one with much memory and forked workers.

use crate::{
    process::{self, TTL, start_command, strike_host, take_overs},
    report::{Failure, Figure, Unit},
};
use harness::{Level, Running, Trial};
use rustix::process::Signal;
use servers::owned::run;
use std::process::Command;
use vvm_clock::Instant;

/// An app, in Python: only a language with a bare `fork` has workers that share memory.
struct App {
    seconds: u32,
    megabytes: u32,
    workers: u32,
}

/// Seconds from `kill -9` of the leader's host until the next app works, and, at a step-down, from the end of the work
/// of one app to the beginning of that of the next.
pub(crate) fn measure(quick: bool) -> Result<Vec<Figure>, Failure> {
    if let Err(why) = run(Command::new("python3").arg("--version"), "python3") {
        eprintln!("left out: apps that fail over: {why}");
        return Ok(Vec::new());
    }
    let (rounds, seconds, megabytes) = if quick { (1, 1, 16) } else { (50, 5, 1024) };
    let slow = App { seconds, megabytes: 0, workers: 0 };
    let named = |what: &str, samples| {
        Figure::new(format!("app that needs {seconds} s: {what}"), Unit::Seconds, samples)
    };
    let mut figures = vec![
        named("kill -9 of the host, warm", killed(rounds, &slow, &["--warm"])?),
        named("kill -9 of the host, cold", killed(rounds, &slow, &[])?),
        named("step-down, restart", step_downs(rounds, &slow, "restart")?),
        named("step-down, keep", step_downs(rounds, &slow, "keep")?),
    ];
    let (rounds, large) = (rounds.min(10), App { seconds: 0, megabytes, workers: 4 });
    let named = |what: &str, samples| {
        let name = format!("app of {megabytes} MB and four forked workers: {what}");
        Figure::new(name, Unit::Seconds, samples)
    };
    figures.extend([
        named("kill -9 of the host, warm", killed(rounds, &large, &["--warm"])?),
        named("step-down, restart", step_downs(rounds, &large, "restart")?),
        named("step-down, keep", step_downs(rounds, &large, "keep")?),
    ]);
    Ok(figures)
}

fn killed(rounds: usize, app: &App, options: &[&str]) -> Result<Vec<f64>, Failure> {
    let trial = process::program(Level::Guardian)?.trial();
    take_overs(rounds, |_| start(&trial, options, app), |leader| strike_host(leader, Signal::KILL))
}

/// Has two warm apps lead in turn. Returns the seconds in which neither works, for each step-down.
fn step_downs(rounds: usize, app: &App, after_stop: &str) -> Result<Vec<f64>, Failure> {
    let trial = process::program(Level::Guardian)?.trial();
    let options = ["--warm", "--after-stop", after_stop];
    let mut leader = start(&trial, &options, app)?;
    leader.stdout.wait_for("alone");
    let mut standby = start(&trial, &options, app)?;
    let mut samples = Vec::new();
    for _ in 0..rounds {
        standby.stderr.wait_for("waiting for leadership");
        let (status, _, said) = trial.about("step-down", &[]);
        if status != 0 {
            return Err(said.into());
        }
        let (stopped, began) = (leader.stdout.wait_for("stopped"), standby.stdout.wait_for("alone"));
        samples.push(time_in(&stopped)?.until(time_in(&began)?).as_secs_f64());
        std::mem::swap(&mut leader, &mut standby);
    }
    for running in [standby, leader] {
        running.signal(Signal::TERM);
        running.finish();
    }
    Ok(samples)
}

fn start(trial: &Trial, options: &[&str], app: &App) -> Result<Running, Failure> {
    let lock = trial.folder().join("lock").display().to_string();
    let client = concat!(env!("CARGO_MANIFEST_DIR"), "/../../clients/python");
    let [seconds, megabytes, workers] = [app.seconds, app.megabytes, app.workers].map(|of| of.to_string());
    let line = ["python3", "-c", APP, &lock, client, &seconds, &megabytes, &workers];
    start_command(trial, &[], &[&TTL[..], options].concat(), &line)
}

fn time_in(line: &str) -> Result<Instant, Failure> {
    let nanos = line.rsplit(' ').next().and_then(|nanos| nanos.parse().ok());
    nanos.map(Instant::from_nanos).ok_or_else(|| format!("no time in {line:?}").into())
}

/// Started without a socket, it works at once when it has started.
const APP: &str = r#"
import fcntl, os, sys, time
lock_path, client = sys.argv[1:3]
seconds, megabytes, workers = map(int, sys.argv[3:])
sys.path.insert(0, client)
import vvm_warm

time.sleep(seconds)
memory = bytearray(megabytes << 20)
for at in range(0, len(memory), 4096):
    memory[at] = 1                      # resident
if workers and all(os.fork() for _ in range(workers)):
    os.wait()
    sys.exit("a worker has ended")

def say(what):
    print(what, time.clock_gettime_ns(time.CLOCK_BOOTTIME), flush=True)

def work():
    lock = open(lock_path, "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        say("alone")
    except OSError:
        say("beside another")
    return lock

if "VVM_SOCKET" not in os.environ:
    lock = work()
    while True:
        time.sleep(60)

with vvm_warm.connect() as host:
    host.ready()
    while term := host.next_term():
        with term:
            with work():
                while not term.wait(60):
                    pass
            say("stopped")
"#;
