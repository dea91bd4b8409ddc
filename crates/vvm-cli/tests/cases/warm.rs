//! `vvm run --warm`: apps that are started before they lead. The app is this test program again.

use crate::VVM;
use harness::{Attempt, Late, Level, Run, Running, SHORT_TTL, Trial, ancestors, eventually, state};
use nix::sys::ptrace;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::{
    env, fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::Shutdown,
    os::{
        fd::OwnedFd,
        unix::{fs::PermissionsExt as _, net::UnixStream},
    },
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
    thread,
    time::Duration,
};
use vvm_clock::SystemClock;
use vvm_deadman::SECOND_LAYER_BEHIND;

const MODE: &str = "WARM_MODE";
const FOLDER: &str = "WARM_FOLDER";

/// A test only when `vvm` has started it as its app.
#[test]
fn app() {
    let (Ok(mode), Some(path)) = (env::var(MODE), env::var_os("VVM_SOCKET")) else { return };
    let folder = PathBuf::from(env::var_os(FOLDER).unwrap());
    println!("\nsocket {}", Path::new(&path).display());
    let mut socket = UnixStream::connect(path).unwrap();
    let connection = socket.try_clone().unwrap();
    // A host that refuses it may reset the connection.
    let lines = BufReader::new(socket.try_clone().unwrap()).lines().map_while(Result::ok);
    let mut say = move |message: Value| writeln!(socket, "{message}").is_ok();
    match mode.as_str() {
        "leaves silently" => return,
        "speaks version 2" => drop(say(json!({ "type": "hello", "version": 2 }))),
        "says a long line" => drop(say(json!({ "type": "hello", "version": 1, "more": "x".repeat(4096) }))),
        _ => drop(say(json!({ "type": "hello", "version": 1 }))),
    }
    let ready = mode != "never ready";
    say(json!({ "type": "ready", "ready": ready }));
    println!("\nwarm");
    let mut held = None;
    for line in lines {
        let message: Value = serde_json::from_str(&line).unwrap();
        let epoch = message["epoch"].clone();
        match message["type"].as_str().unwrap() {
            "lead" => {
                let lock = fs::File::create(folder.join("lock")).unwrap();
                let alone = if lock.try_lock().is_ok() { "alone" } else { "not alone" };
                // Held until this process ends, or until it has stopped if it is kept.
                held = Some(lock);
                println!("\nleads {epoch} {alone}");
                match mode.as_str() {
                    "dies" => process::exit(3),
                    "closes" => connection.shutdown(Shutdown::Both).unwrap(),
                    "forks" => {
                        let inherited = OwnedFd::from(connection);
                        Command::new("sleep").arg("1000").stdin(inherited).spawn().unwrap();
                        process::exit(0);
                    }
                    "is kept" => drop(Command::new("sleep").arg("1000").spawn().unwrap()),
                    "resigns" => drop(say(json!({ "type": "resign", "epoch": epoch }))),
                    _ => {}
                }
                say(json!({ "type": "leading", "epoch": epoch }));
                match mode.as_str() {
                    "hangs" => beat(folder.clone()),
                    "stops" | "stops and closes" => {
                        say(json!({ "type": "stopped", "epoch": epoch }));
                        if mode == "stops and closes" {
                            connection.shutdown(Shutdown::Both).unwrap();
                        }
                    }
                    "spins" => {
                        println!("\nhangs");
                        loop {
                            std::hint::spin_loop();
                        }
                    }
                    "blocks" | "reads no more" => {
                        if mode == "reads no more" {
                            beat(folder.clone());
                        }
                        println!("\nhangs");
                        loop {
                            thread::park();
                        }
                    }
                    "talks on" => {
                        println!("\nhangs");
                        let lines = format!("{}\n", json!({ "type": "alive", "epoch": "1" })).repeat(2000);
                        while (&connection).write_all(lines.as_bytes()).is_ok() {}
                    }
                    _ => {}
                }
                note_deadline(&folder, &message);
            }
            "renewed" => note_deadline(&folder, &message),
            "stop" => {
                println!("\nstops {}", message["reason"]);
                if mode == "is kept" {
                    held = None;
                }
                if mode != "hangs" {
                    say(json!({ "type": "stopped", "epoch": epoch }));
                }
            }
            "refused" => println!("\nrefused: {}", message["reason"]),
            _ => {}
        }
    }
    let _held = held;
    loop {
        thread::park();
    }
}

fn note_deadline(folder: &Path, message: &Value) {
    fs::write(folder.join("kill_at.new"), message["kill_at"].to_string()).unwrap();
    fs::rename(folder.join("kill_at.new"), folder.join("kill_at")).unwrap();
}

fn beat(folder: PathBuf) {
    thread::spawn(move || {
        loop {
            let now = SystemClock::read().as_nanos() / 1_000_000;
            fs::write(folder.join("beat.new"), now.to_string()).unwrap();
            fs::rename(folder.join("beat.new"), folder.join("beat")).unwrap();
            thread::sleep(Duration::from_millis(2));
        }
    });
}

fn number(file: &Path) -> u64 {
    fs::read_to_string(file).unwrap().parse().unwrap()
}

pub(super) fn warm(trial: &Trial, mode: &str) -> Run {
    by_script(trial, mode, "exec \"$0\" \"$@\"")
}

pub(super) fn by_script(trial: &Trial, mode: &str, script: &str) -> Run {
    let program = env::current_exe().unwrap();
    let script = format!("trap '' TERM; {script}");
    let app = [program.to_str().unwrap(), "--exact", "cases::warm::app", "--nocapture"];
    let run = trial.run(["sh", "-c", &script].into_iter().chain(app));
    run.with(["--warm", "--stop-timeout", "500ms"])
        .environment(MODE, mode)
        .environment(FOLDER, trial.folder().to_str().unwrap())
}

pub(super) fn leader(trial: &Trial, mode: &str, ttl: &str) -> Running {
    let mut running = warm(trial, mode).with(["--ttl", ttl]).start();
    leads_alone(&mut running);
    running
}

pub(super) fn standby(trial: &Trial, ttl: &str) -> Running {
    warm(trial, "obeys").with(["--ttl", ttl]).waiting()
}

pub(super) fn apps(trial: &Trial) -> Vec<Pid> {
    let program = env::current_exe().unwrap().display().to_string();
    trial.processes().of(&program)
}

pub(super) fn leads_alone(next: &mut Running) {
    let line = next.stdout.wait_for("leads");
    assert!(line.ends_with(" alone"), "{line}");
}

/// The TTL is longer than any wait of this test. Shows I6.
#[test]
fn standby_leads_when_the_host_of_the_leader_is_killed() {
    let trial = VVM.trial();
    let first = leader(&trial, "obeys", "120s");
    let mut second = standby(&trial, "120s");
    kill_process(first.host(), Signal::KILL).unwrap();
    leads_alone(&mut second);
    first.finish();
    // Not "stop requested", and not that the app has left.
    second.signal(Signal::KILL);
    second.stderr.wait_for("stopping the app: the guardian died");
    second.finish();
}

#[test]
fn asked_to_step_down_the_app_stops_and_stands_by_again() {
    let trial = VVM.trial();
    let mut first = leader(&trial, "obeys", "120s");
    let mut second = standby(&trial, "120s");
    trial.must("step-down", &[]);
    first.stdout.wait_for("stops \"step_down\"");
    leads_alone(&mut second);
    first.stdout.wait_for("warm");
    first.stderr.wait_for("waiting for leadership");
    for running in [second, first] {
        assert_eq!(running.stop().signal(), Signal::TERM.as_raw());
    }
}

/// Shows I6.
#[test]
fn kept_app_stands_by_and_leads_again_in_the_same_process() {
    let trial = VVM.trial();
    let start = || warm(&trial, "is kept").with(["--ttl", "120s", "--after-stop", "keep"]).start();
    let mut first = start();
    first.stdout.wait_for("leads");
    let mut second = start();
    second.stderr.wait_for("waiting for leadership");
    trial.must("step-down", &[]);
    first.stdout.wait_for("stops \"step_down\"");
    let line = first.stderr.wait_for("still running: ");
    let (_, named) = line.split_once("still running: ").unwrap();
    assert!(named.ends_with(" (sleep)") && !named.contains(','), "{line}");
    leads_alone(&mut second);
    first.stderr.wait_for("waiting for leadership");
    second.stop();
    leads_alone(&mut first);
    let finished = first.stop();
    let starts = finished.stdout.iter().filter(|line| *line == "warm").count();
    assert_eq!(starts, 1, "{:#?}", finished.stdout);
}

/// It neither stops nor heeds TERM, and the storage does not answer. Shows I4.
fn hung_app_is_dead_by_the_deadline(attempt: &Attempt, trial: &Trial) -> Result<(), Late> {
    let mut running = warm(trial, "hangs").with(["--ttl", SHORT_TTL, "--stop-timeout", "1m"]).start();
    running.stdout.wait_for("leads");
    let lock = trial.lock_storage();
    let since = SystemClock::read();
    let finished = running.finish();
    drop(lock);
    let (beat, kill_at) = (number(&trial.folder().join("beat")), number(&trial.folder().join("kill_at")));
    println!("the last sign of life was at {beat}, the deadline at {kill_at}");
    // A host that is late is ended by its own deadline, and the app with it.
    let bound = match finished.code() {
        79 => Duration::ZERO,
        80 | 137 => SECOND_LAYER_BEHIND,
        code => panic!("{code}: {:#?}", finished.stderr),
    };
    let outlived = Duration::from_millis(beat.saturating_sub(kill_at));
    attempt.reported("the app lived after its deadline, and", bound, outlived, since)?;
    Ok(())
}

mod timed {
    use super::*;

    #[test]
    fn app_that_hangs_at_stop_is_dead_by_the_deadline() {
        VVM.timed("an app hangs", hung_app_is_dead_by_the_deadline);
    }

    /// The keeper kills it, half of the time for killing before the deadline. Shows I4.
    #[test]
    fn app_of_a_stopped_host_is_dead_by_the_deadline() {
        const BEFORE: Duration = Duration::from_millis(100);
        VVM.timed("the host of an app is stopped", |attempt, trial| {
            let options = ["--ttl", SHORT_TTL, "--result-file", &trial.result_file()];
            let mut running = warm(trial, "hangs").with(options).start();
            running.stdout.wait_for("leads");
            let beats = trial.folder().join("beat");
            eventually("the app beats", || beats.exists());
            let since = SystemClock::read();
            kill_process(running.host(), Signal::STOP).unwrap();
            running.finish();
            let deadline = Duration::from_nanos(trial.result()["kill_deadline_ns"].as_u64().unwrap());
            let last = Duration::from_millis(number(&beats));
            let late = (last + BEFORE).saturating_sub(deadline);
            attempt.reported("the end of the app", BEFORE, late, since).map(|_| ())
        });
    }
}

#[test]
fn process_that_is_not_contained_is_refused() {
    let trial = VVM.trial();
    let mut running = warm(&trial, "obeys").start();
    let line = running.stdout.wait_for("socket ");
    let path = line.trim_start_matches("socket ");
    let mut socket = UnixStream::connect(path).unwrap();
    let _ = socket.write_all(b"{\"type\":\"hello\",\"version\":1}\n{\"type\":\"ready\",\"ready\":true}\n");
    let mut answer = String::new();
    // It may be reset, because it has sent what was not read.
    let _ = socket.read_to_string(&mut answer);
    assert!(answer.starts_with("{\"type\":\"refused\""), "{answer}");
    running.stderr.wait_for("is not of the app: refused");
    running.stdout.wait_for("leads");
    running.stop();
    assert!(!Path::new(path).exists(), "the socket is removed");
}

#[test]
fn app_that_is_silent_is_reported_with_what_is_missing() {
    let trial = VVM.trial();
    let mut running = trial.run(["sleep", "1000"]).with(["--warm"]).start();
    running
        .stderr
        .wait_for("waiting for the app, 2s after its start: no process of it has connected to VVM_SOCKET");
    running.stop();
}

/// The tree of a standby is older than its leadership: a keeper that hangs must not let it lead. Shows I4.
#[test]
fn app_whose_keeper_is_stopped_while_its_deadline_is_armed_never_leads() {
    let trial = VVM.trial();
    let first = leader(&trial, "obeys", SHORT_TTL);
    let mut second = warm(&trial, "obeys").with(["--ttl", SHORT_TTL, "--restart-backoff", "1h"]).waiting();
    let stage = if VVM.level() == Level::PidNamespace { "stage-init" } else { "stage-keeper" };
    let (host, keepers) = (second.host(), trial.processes().with(stage));
    let keeper = keepers.into_iter().find(|keeper| ancestors(*keeper).any(|one| one == host)).unwrap();
    // A signal to continue has no effect on a traced process.
    let traced = nix::unistd::Pid::from_raw(keeper.as_raw_pid());
    ptrace::attach(traced).unwrap();
    eventually("the keeper is stopped", || state(keeper) == Some('t'));
    kill_process(first.host(), Signal::KILL).unwrap();
    first.finish();
    second.stderr.wait_for("does not confirm the kill deadline");
    ptrace::detach(traced, None).unwrap();
    second.stderr.wait_for("starting the app again");
    assert!(apps(&trial).is_empty());
    eventually("the record is released", || trial.slot_state() == "free");
    let finished = second.stop();
    assert!(!finished.stdout.iter().any(|line| line.contains("leads")), "{:#?}", finished.stdout);
}

#[test]
fn term_while_the_storage_opens_reaches_the_app() {
    let trial = VVM.trial();
    let lock = trial.lock_storage();
    let running = trial.run_trapping("echo got TERM; exit").with(["--warm"]).up();
    let finished = running.stop();
    drop(lock);
    assert_eq!(finished.signal(), Signal::TERM.as_raw(), "{:#?}", finished.stderr);
    assert_eq!(finished.stdout, ["up", "got TERM"]);
    finished.assert_says("stopped while waiting");
}

/// A write lease keeps the kernel from opening the file (fcntl(2)), as a file server does that does not answer. Shows I10.
#[test]
fn app_whose_execution_hangs_is_stopped_before_it_is_executed() {
    const LEASE: &str = "import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
fcntl.fcntl(os.open(sys.argv[1], os.O_WRONLY), fcntl.F_SETLEASE, fcntl.F_WRLCK)
print(flush=True)
sys.stdin.read()";
    let trial = VVM.trial();
    let app = trial.folder().join("app");
    fs::write(&app, "#!/bin/sh\necho up\n").unwrap();
    fs::set_permissions(&app, fs::Permissions::from_mode(0o755)).unwrap();
    let mut lease = Command::new("python3");
    lease.args(["-c", LEASE]).arg(&app).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut lease) = lease.spawn() else { return println!("left out: there is no python3") };
    lease.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let running = trial.run([app.to_str().unwrap()]).with(["--warm"]).start();
    let is_executing = |process: &Pid| {
        let wait = fs::read_to_string(format!("/proc/{process}/wchan")).unwrap_or_default();
        wait.contains("break_lease")
    };
    eventually("the execution hangs", || trial.processes().with("stage-worker").iter().any(is_executing));
    let finished = running.stop();
    assert_eq!(finished.stdout, [""; 0], "the lease is broken after 45 s, and the app executed");
    assert_eq!(finished.signal(), Signal::TERM.as_raw(), "{:#?}", finished.stderr);
    drop(lease.stdin.take());
    lease.wait().unwrap();
}

#[test]
fn app_that_can_not_be_executed_ends_vvm_as_a_shell_would() {
    VVM.trial().run(["/nowhere/app"]).with(["--warm"]).finish().assert_code(127);
}
