//! Fail-over and hand-over of an app that needs five seconds to start: as a warm standby, and as a command that is
//! started by the leader.

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
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

/// How long the app takes to start.
const START: Duration = Duration::from_secs(5);

/// Seconds from `kill -9` of the leader's host until the next app works, and, at a step-down, from the end of the work
/// of one app to the beginning of that of the next.
pub(crate) fn measure(quick: bool) -> Result<Vec<Figure>, Failure> {
    let rounds = if quick { 1 } else { 20 };
    let killed = |options: &[&str]| {
        let trial = process::program(Level::Guardian)?.trial();
        take_overs(
            rounds,
            |_| start(&trial, options),
            |leader| {
                let host = leader.host();
                let began_at = SystemClock::read();
                kill_process(host, Signal::KILL)?;
                Ok(began_at)
            },
        )
    };
    let figure =
        |what: &str, samples| Figure::new(format!("app that needs 5 s: {what}"), Unit::Seconds, samples);
    Ok(vec![
        figure("kill -9 of the host, warm", killed(&["--warm"])?).median_at_most(0.1),
        figure("kill -9 of the host, cold", killed(&[])?),
        figure("step-down, restart", step_downs(rounds, "restart")?).median_at_most(0.05),
        figure("step-down, keep", step_downs(rounds, "keep")?).median_at_most(0.05),
    ])
}

/// Has two warm apps lead in turn. Returns the seconds in which neither works, for each step-down.
fn step_downs(rounds: usize, after_stop: &str) -> Result<Vec<f64>, Failure> {
    let trial = process::program(Level::Guardian)?.trial();
    let options = ["--warm", "--after-stop", after_stop];
    let mut leader = start(&trial, &options)?;
    leader.stdout.wait_for("alone");
    let mut standby = start(&trial, &options)?;
    let mut samples = Vec::new();
    for _ in 0..rounds {
        standby.stderr.wait_for("waiting for leadership");
        let (status, _, said) = trial.ask("step-down", &["--name", &trial.name()]);
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

fn start(trial: &Trial, options: &[&str]) -> Result<Running, Failure> {
    let (own, lock) =
        (env::current_exe()?.display().to_string(), trial.folder().join("lock").display().to_string());
    start_command(trial, &[], &[&TTL[..], options].concat(), &[&own, "warm-app", &lock])
}

/// The time at the end of a line of the app.
fn time_in(line: &str) -> Result<Instant, Failure> {
    let nanos = line.rsplit(' ').next().and_then(|nanos| nanos.parse().ok());
    nanos.map(Instant::from_nanos).ok_or_else(|| format!("no time in {line:?}").into())
}

/// The app. Started without a socket, it works at once when it has started.
#[derive(Debug, clap::Args)]
pub(crate) struct App {
    /// Locked while it works.
    lock: PathBuf,
}

impl App {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        SystemClock::block_for(START);
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
