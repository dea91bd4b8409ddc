//! `vvm run --warm` with apps that fail in every way that `docs/warm.md` lists: dead by the deadline, or no effect. The
//! app of [`warm`](super::warm) says more here than it should, or less. An app that works holds a lock, until its
//! process has ended. So the next one is alone only if it is dead.

use super::warm::{apps, by_script, leader, leads_alone, standby, warm};
use crate::VVM;
use harness::{Run, Running, SHORT_TTL, Trial, eventually, has_ended, state};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::{fs, os::unix::fs::PermissionsExt as _};

/// One app after an end that was not asked for.
const NO_OTHER: [&str; 2] = ["--restart-backoff", "1h"];

/// A leader with this app, which is started again only after an hour. No leadership ends by its TTL.
fn leads(run: Run) -> Running {
    let mut running = run.with(["--ttl", "120s"]).with(NO_OTHER).start();
    leads_alone(&mut running);
    running
}

fn end(running: Running) -> Vec<String> {
    end_and_say(running).0
}

fn end_and_say(running: Running) -> (Vec<String>, String) {
    let finished = running.stop();
    assert_eq!(finished.signal(), Signal::TERM.as_raw(), "{:#?}", finished.stderr);
    let is_of_the_app = |line: &String| ["leads", "stops", "warm"].iter().any(|word| line.starts_with(word));
    let said = finished.stdout.into_iter().filter(is_of_the_app).collect();
    (said, finished.stderr.last().cloned().unwrap_or_default())
}

fn next_is_alone(trial: &Trial, mut next: Running) {
    leads_alone(&mut next);
    eventually("one app is left", || apps(trial).len() == 1);
    end(next);
}

fn is_ended(app: impl Fn(&Trial) -> Run, reason: &str) {
    let trial = VVM.trial();
    let mut first = leads(app(&trial));
    first.stderr.wait_for(reason);
    first.stderr.wait_for("starting the app again");
    next_is_alone(&trial, warm(&trial, "obeys").with(["--ttl", "120s"]).start());
    end(first);
}

const GONE: &str = "closed its connection, or ended, without \"stopped\"";

/// Shows I6.
#[test]
fn app_that_ends_its_leadership_by_itself_is_ended() {
    for (mode, says) in [
        ("closes", GONE),
        ("stops and closes", "stopped its work unasked"),
        ("stops", "stopped its work unasked"),
        // The child has inherited the socket, so the stream does not end.
        ("forks", GONE),
        ("dies", GONE),
        ("resigns", "the app resigned"),
    ] {
        is_ended(|trial| warm(trial, mode), says);
    }
}

fn hangs_at_a_step_down(trial: &Trial, app: Run) {
    let mut first = leads(app);
    first.stdout.wait_for("hangs");
    let second = standby(trial, "120s");
    trial.must("step-down", &[]);
    first.stderr.wait_for("did not say \"stopped\" within --stop-timeout");
    next_is_alone(trial, second);
    end(first);
}

/// One works on in another thread and reads nothing, and the messages of another come faster than the host reads them.
#[test]
fn app_that_hangs_is_killed_when_it_is_asked_to_stop() {
    for mode in ["spins", "blocks", "reads no more", "talks on"] {
        let trial = VVM.trial();
        hangs_at_a_step_down(&trial, warm(&trial, mode));
    }
}

#[test]
fn app_that_spins_or_blocks_is_killed_for_its_silence_with_alive_within() {
    for mode in ["spins", "blocks"] {
        let app = |trial: &Trial| warm(trial, mode).with(["--alive-within", "200ms"]);
        is_ended(app, "did not say \"alive\" within --alive-within");
    }
}

#[test]
fn app_that_changes_its_user_leads_and_is_killed() {
    if !rustix::process::geteuid().is_root() {
        println!("left out: only root can change the user");
        return;
    }
    let trial = VVM.trial();
    fs::set_permissions(trial.folder(), fs::Permissions::from_mode(0o777)).unwrap();
    let change = "exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$0\" \"$@\"";
    hangs_at_a_step_down(&trial, by_script(&trial, "blocks", change));
}

// `lead` waits in the socket of an app that is stopped. TERM continues it, so it may read `lead` then.

#[test]
fn app_that_is_stopped_when_it_should_lead_is_killed() {
    let trial = VVM.trial();
    let (first, mut second, app) = with_stopped_standby(&trial, "120s", &["--start-timeout", "200ms"]);
    kill_process(first.host(), Signal::KILL).unwrap();
    first.finish();
    second.stderr.wait_for("did not say \"leading\" within --start-timeout");
    second.stderr.wait_for("starting the app again");
    assert!(has_ended(app));
    eventually("the record is released", || trial.slot_state() == "free");
    let said = end(second);
    assert!(!said.iter().any(|line| line.ends_with("not alone")), "{said:#?}");
}

/// Shows I4.
#[test]
fn app_that_reads_lead_after_the_loss_is_dead_by_the_deadline() {
    let trial = VVM.trial();
    let options = ["--start-timeout", "1h", "--stop-timeout", "1h"];
    let (first, second, app) = with_stopped_standby(&trial, SHORT_TTL, &options);
    kill_process(first.host(), Signal::KILL).unwrap();
    first.finish();
    eventually("the standby's host leads", || trial.slot_state() != "free");
    let lock = trial.lock_storage();
    let finished = second.finish();
    drop(lock);
    // A host that is late is ended by its own deadline, and the app with it.
    assert!([79, 80, 128 + 9].contains(&finished.code()), "{:#?}", finished.stderr);
    assert!(!finished.says("starting the app again"), "this vvm ends: {:#?}", finished.stderr);
    assert!(has_ended(app));
    next_is_alone(&trial, warm(&trial, "obeys").with(["--ttl", SHORT_TTL]).start());
}

fn with_stopped_standby(trial: &Trial, ttl: &str, options: &[&str]) -> (Running, Running, Pid) {
    let first = leader(trial, "obeys", ttl);
    let of_the_first = apps(trial);
    let run = warm(trial, "obeys").with(["--ttl", ttl]).with(NO_OTHER);
    let second = run.with(options.iter().copied()).waiting();
    let app = apps(trial).into_iter().find(|app| !of_the_first.contains(app)).unwrap();
    kill_process(app, Signal::STOP).unwrap();
    eventually("the app is stopped", || state(app) == Some('T'));
    (first, second, app)
}

/// The machine goes on when its deadline is long over. A stopped process stands for one that is suspended, but
/// that the kernel's timers reach it: here it dies while it is stopped, or when it goes on. Shows I4.
#[test]
fn app_of_a_machine_that_is_suspended_past_the_deadline_is_dead_before_the_next_one_leads() {
    let trial = VVM.trial();
    let mut first = leader(&trial, "obeys", SHORT_TTL);
    let suspended = trial.processes().0;
    let mut second = warm(&trial, "obeys").with(["--ttl", SHORT_TTL]).waiting();
    for process in &suspended {
        kill_process(*process, Signal::STOP).unwrap();
    }
    let line = second.stdout.wait_for("leads");
    for process in &suspended {
        // Those that have died meanwhile are left for this process to reap, or gone.
        let _ = kill_process(*process, Signal::CONT);
    }
    first.wait();
    eventually("nothing of it is left", || suspended.iter().all(|process| has_ended(*process)));
    assert!(line.ends_with(" alone"), "{line}");
    let said = first.stdout.rest();
    assert_eq!(said.iter().filter(|line| line.starts_with("leads")).count(), 1, "{said:#?}");
    end(second);
}

#[test]
fn term_to_the_whole_group_stops_the_work_and_releases() {
    let trial = VVM.trial();
    let mut running = warm(&trial, "obeys").with(["--ttl", "120s"]).through(["setsid"]).start();
    running.stdout.wait_for("leads");
    kill_process_group(running.guardian, Signal::TERM).unwrap();
    running.stdout.wait_for("stops \"terminating\"");
    let finished = running.finish();
    assert_eq!(finished.signal(), Signal::TERM.as_raw(), "{:#?}", finished.stderr);
    finished.assert_says("payroll slot 1: stopped: by SIGTERM");
    assert!(apps(&trial).is_empty() && trial.slot_state() == "free");
}

#[test]
fn step_down_is_refused_while_no_other_app_is_ready() {
    let trial = VVM.trial();
    let first = leader(&trial, "obeys", "120s");
    let mut second = warm(&trial, "never ready").with(["--ttl", "120s", "--holder", "other"]).start();
    second.stdout.wait_for("warm");
    let (status, said, error) = trial.about("step-down", &["--to", "other"]);
    assert_ne!(status, 0, "{said}{error}");
    assert!(error.contains("An app of vvm run --warm must be ready"), "{error}");
    let line = "payroll: stopped while waiting for leadership: by SIGTERM, while no app was ready";
    let (said, told) = end_and_say(second);
    assert_eq!((&said[..], told.ends_with(line)), (&["warm".to_owned()][..], true), "{told}");
    let said = end(first);
    assert_eq!(said.last().map(String::as_str), Some("stops \"terminating\""), "it led until the end");
    assert_eq!(said.len(), 3, "{said:#?}");
}

#[test]
fn refusals_say_what_to_do_on_both_sides() {
    for (mode, reason) in [
        ("says a long line", "a line of more than 4096 bytes: send large data by other means"),
        (
            "speaks version 2",
            "speaks version 1 of the warm protocol, not 2: use vvm and client of one release",
        ),
    ] {
        let trial = VVM.trial();
        let mut running = warm(&trial, mode).start();
        let line = running.stdout.wait_for("refused");
        assert!(line.contains(reason), "{line}");
        let line = running.stderr.wait_for("a connection of the app is refused");
        assert!(line.contains(reason), "{line}");
        end(running);
    }
    let trial = VVM.trial();
    let mut running = warm(&trial, "leaves silently").start();
    let line = running.stderr.wait_for("has left without \"hello\"");
    assert!(line.contains("Its own output says why"), "{line}");
    end(running);
}
