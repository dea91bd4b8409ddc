//! Fail-over and hand-over of apps: one that needs five seconds to start, as a warm standby and as a command that is
//! started by the leader; and a warm one with much memory and forked workers.

use crate::{
    process::{self, TTL, start_command, take_overs},
    report::{Failure, Figure, Unit},
};
use harness::{Level, Running, Trial};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use std::{
    env,
    fs::File,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

/// The command line of an app: its program, and what follows the path of the lock.
type AppLine = (Vec<String>, Vec<String>);

/// Seconds from `kill -9` of the leader's host until the next app works, and, at a step-down, from the end of the work
/// of one app to the beginning of that of the next.
pub(crate) fn measure(quick: bool) -> Result<Vec<Figure>, Failure> {
    let (rounds, seconds) = if quick { (1, 1) } else { (50, 5) };
    let app = (vec![env::current_exe()?.display().to_string(), "warm-app".into()], vec![seconds.to_string()]);
    let named = |what: &str, samples| {
        Figure::new(format!("app that needs {seconds} s: {what}"), Unit::Seconds, samples)
    };
    let mut figures = vec![
        named("kill -9 of the host, warm", killed(rounds, &app, &["--warm"])?).median_at_most(0.1),
        named("kill -9 of the host, cold", killed(rounds, &app, &[])?),
        named("step-down, restart", step_downs(rounds, &app, "restart")?).median_at_most(0.05),
        named("step-down, keep", step_downs(rounds, &app, "keep")?).median_at_most(0.05),
    ];
    let Some(large) = large(quick) else {
        eprintln!("left out: an app with much memory and forked workers: there is no python3");
        return Ok(figures);
    };
    let rounds = rounds.min(10);
    let megabytes = megabytes(quick);
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

fn killed(rounds: usize, app: &AppLine, options: &[&str]) -> Result<Vec<f64>, Failure> {
    let trial = process::program(Level::Guardian)?.trial();
    take_overs(
        rounds,
        |_| start(&trial, options, app),
        |leader| {
            let host = leader.host();
            let began_at = SystemClock::read();
            kill_process(host, Signal::KILL)?;
            Ok(began_at)
        },
    )
}

/// Has two warm apps lead in turn. Returns the seconds in which neither works, for each step-down.
fn step_downs(rounds: usize, app: &AppLine, after_stop: &str) -> Result<Vec<f64>, Failure> {
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

fn start(trial: &Trial, options: &[&str], (program, more): &AppLine) -> Result<Running, Failure> {
    let lock = trial.folder().join("lock").display().to_string();
    let line: Vec<&str> = program.iter().chain([&lock]).chain(more).map(String::as_str).collect();
    start_command(trial, &[], &[&TTL[..], options].concat(), &line)
}

/// The time at the end of a line of the app.
fn time_in(line: &str) -> Result<Instant, Failure> {
    let nanos = line.rsplit(' ').next().and_then(|nanos| nanos.parse().ok());
    nanos.map(Instant::from_nanos).ok_or_else(|| format!("no time in {line:?}").into())
}

/// With the client for Python, since only a language with a bare `fork` has workers that share memory.
const LARGE: &str = r#"
import fcntl, os, sys, time
lock_path, client, megabytes = sys.argv[1:]
sys.path.insert(0, client)
import vvm

memory = bytearray(int(megabytes) << 20)
for at in range(0, len(memory), 4096):
    memory[at] = 1                      # resident
for _ in range(4):
    if os.fork() == 0:
        break
else:
    os.wait()
    sys.exit("a worker has ended")

def say(what):
    print(what, time.clock_gettime_ns(time.CLOCK_BOOTTIME), flush=True)

with vvm.connect() as host:
    host.ready()
    while term := host.next_term():
        with term, open(lock_path, "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                say("alone")
            except OSError:
                say("beside another")
            while not term.wait(60):
                pass
            fcntl.flock(lock, fcntl.LOCK_UN)
            say("stopped")
"#;

fn megabytes(quick: bool) -> u32 {
    if quick { 16 } else { 1024 }
}

/// The app with much memory; none without Python.
fn large(quick: bool) -> Option<AppLine> {
    let asked = Command::new("python3").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.ok().filter(|status| status.success())?;
    let client = concat!(env!("CARGO_MANIFEST_DIR"), "/../../clients/python");
    let program = ["python3", "-c", LARGE].map(String::from).to_vec();
    Some((program, vec![client.into(), megabytes(quick).to_string()]))
}

/// The app that needs long to start. Started without a socket, it works at once when it has started.
#[derive(Debug, clap::Args)]
pub(crate) struct App {
    /// Locked while it works.
    lock: PathBuf,
    /// How long it takes to start.
    seconds: u64,
}
impl App {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        SystemClock::block_for(Duration::from_secs(self.seconds));
        let mut working = None;
        if let Some(path) = env::var_os("VVM_SOCKET") {
            let mut socket = UnixStream::connect(path)?;
            let lines = BufReader::new(socket.try_clone()?).lines();
            let mut say = |message: Value| writeln!(socket, "{message}");
            say(json!({ "type": "hello", "version": 1 }))?;
            say(json!({ "type": "ready", "ready": true }))?;
            for line in lines {
                let message: Value = serde_json::from_str(&line?)?;
                let epoch = &message["epoch"];
                match message["type"].as_str() {
                    Some("lead") => {
                        working = Some(work(&self.lock)?);
                        say(json!({ "type": "leading", "epoch": epoch }))?;
                    }
                    Some("stop") => {
                        drop(working.take());
                        println!("stopped {}", SystemClock::read().as_nanos());
                        say(json!({ "type": "stopped", "epoch": epoch }))?;
                    }
                    _ => {}
                }
            }
        } else {
            working = Some(work(&self.lock)?);
        }
        let _working = working;
        loop {
            std::thread::park();
        }
    }
}

fn work(lock: &Path) -> Result<File, Failure> {
    let lock = File::create(lock)?;
    let how = if lock.try_lock().is_ok() { "alone" } else { "beside another" };
    println!("{how} {}", SystemClock::read().as_nanos());
    Ok(lock)
}
