//! Supervises process trees in a program that has children of its own by tokio: neither takes the other's
//! statuses, and no process is left. A program of its own, because it is guardian, supervisor and keeper.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not a test without a harness")]

use std::{env, ffi::OsString, os::fd::OwnedFd, process::ExitCode, sync::Arc, time::Duration};
use tokio::{
    process::Command,
    sync::{broadcast, watch},
};
use tokio_util::sync::CancellationToken;
use vvm_clock::{Clock, Instant, SystemClock};
use vvm_containment::{
    CommandSpec, Containment, Controls, Family, HelperLines, Level, OnEvent, ProcessEnd, RequestedLevel,
    StopTimeouts, Supervised, Supervision, Supervisor, guard, spawn, stage, supervise,
};

const ROUNDS: u8 = 200;

const TREE: &str = "(setsid sleep 1000 &); sleep 1000 & exit 7";

fn main() -> ExitCode {
    match stage::enter() {
        Ok(None) => {}
        Ok(Some(status)) => return status,
        Err(refusal) => {
            eprintln!("{refusal}");
            return ExitCode::FAILURE;
        }
    }
    match env::args().nth(1).as_deref() {
        Some("rounds") => run_rounds(),
        Some("member") => run_member(),
        Some("armed") => run_armed(),
        _ => {
            supervise_in(Containment::establish(RequestedLevel::Exactly(Level::Guardian)).unwrap(), "rounds");
            println!("{ROUNDS} rounds: no status taken, nothing left");
            supervise_in(Containment::establish(RequestedLevel::Exactly(Level::Guardian)).unwrap(), "armed");
            println!("an armed keeper: confirms each deadline");
            match Containment::establish(RequestedLevel::Exactly(Level::ControlGroup)) {
                Ok(containment) => {
                    supervise_in(containment, "member");
                    println!("a member of the group that is no descendant: killed before the end is told");
                }
                Err(refusal) => println!("member of a group: left out, since {refusal}"),
            }
        }
    }
    ExitCode::SUCCESS
}

/// Runs this program again as a supervisor. Returns only when no descendant of it is left.
fn supervise_in(containment: Containment, what: &str) {
    let ended = guard(vec![what.into()], &[], containment, |heard| println!("{heard:?}")).unwrap();
    assert_eq!(ended.supervisor, Some(ProcessEnd::Exited(0)));
}

/// A keeper that was started without a deadline confirms each one that it gets later (I4).
fn run_armed() {
    with_supervisor(async |supervisor| {
        let (deadlines, deadline) = watch::channel(None);
        let (_signals, signals) = broadcast::channel(1);
        let clock = Arc::new(SystemClock::start().unwrap()) as Arc<dyn Clock>;
        let (stop, kill) = (CancellationToken::new(), CancellationToken::new());
        let command = ["sleep", "1000"].map(Into::into);
        let spec = spec(supervisor, &command, deadline.clone());
        let controls = Controls { signals, stop: stop.clone(), stop_signal: None, kill, deadline };
        let starting = spawn(&spec).unwrap();
        let mut supervision = Supervision::new(starting, Arc::clone(&clock), AT_ONCE, controls);
        supervision.executed().await.unwrap();
        let mut in_force = supervision.in_force();
        let arming = async {
            for seconds in [1000, 2000] {
                let at = Some(clock.now().after(Duration::from_secs(seconds)));
                deadlines.send_replace(at);
                in_force.wait_for(|confirmed| *confirmed == at).await.unwrap();
            }
            deadlines.send_replace(None);
            in_force.wait_for(Option::is_none).await.unwrap();
            stop.cancel();
        };
        let (ended, ()) = tokio::join!(supervision.run(), arming);
        assert_eq!(ended.unwrap().ended, Some(ProcessEnd::Signalled(15)));
    });
}

/// A process that is in the command's control group, and no descendant of the keeper (I6).
fn run_member() {
    with_supervisor(async |supervisor| {
        // In a PID namespace of its own, each run has the same number.
        let now = SystemClock::read().as_nanos();
        let folder = env::temp_dir().join(format!("member-{}-{now}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        // In quotes: the path may have a space.
        let at = |name: &str| format!("'{}'", folder.join(name).display());
        let (group, new, joined) = (at("group"), at("group.new"), at("joined"));
        // Renamed, so that nothing half-written is read.
        let command = format!(
            "grep ^0: /proc/self/cgroup > {new}; mv {new} {group}; \
             until test -e {joined}; do sleep 0.01; done; exit 7"
        );
        let member = format!(
            "until test -e {group}; do sleep 0.01; done; \
             echo $$ > $(findmnt -n -o TARGET -t cgroup2 | head -n 1)$(cut -d: -f3 {group})/cgroup.procs; \
             echo > {joined}; exec sleep 1000"
        );
        let mut member = Command::new("sh").args(["-c", &member]).kill_on_drop(true).spawn().unwrap();
        assert_eq!(tree(supervisor, &command).await.ended, Some(ProcessEnd::Exited(7)));
        // It was killed before, and is only to be reaped.
        let proc = std::fs::read_to_string(format!("/proc/{}/stat", member.id().unwrap()));
        let is_dead = proc.map_or(true, |stat| stat.contains(") Z "));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(is_dead, "a member of the group lives");
        member.wait().await.unwrap();
    });
}

fn with_supervisor(work: impl AsyncFnOnce(&Supervisor)) {
    let supervisor = Supervisor::accept().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work(&supervisor));
}

fn run_rounds() {
    with_supervisor(async |supervisor| {
        for round in 0..ROUNDS {
            let exit = format!("exit {round}");
            let own = || Command::new("sh").args(["-c", &exit]).status();
            let (first, tree, second) = tokio::join!(own(), tree(supervisor, TREE), own());
            for status in [first, second] {
                assert_eq!(status.unwrap().code(), Some(i32::from(round)));
            }
            assert_eq!(tree.ended, Some(ProcessEnd::Exited(7)));
            let left = Family::of_this_process().unwrap().descendants();
            assert!(left.is_empty(), "round {round}: {left:?}");
        }
    });
}

const AT_ONCE: StopTimeouts = StopTimeouts {
    pre_stop_timeout: Duration::ZERO,
    least_to_stop: Duration::ZERO,
    stop_timeout: Duration::from_secs(60),
    killing: Duration::ZERO,
};

fn spec<'a>(
    supervisor: &'a Supervisor,
    command: &'a [OsString],
    deadline: watch::Receiver<Option<Instant>>,
) -> CommandSpec<'a, &'a OwnedFd, &'a OwnedFd> {
    CommandSpec {
        command,
        environment: env::vars_os().collect(),
        helpers: &HelperLines { pre_stop: None, check: None },
        input: &supervisor.input,
        guardian: &supervisor.guardian_process,
        group: None,
        containment: &supervisor.containment,
        deadline,
        killing: AT_ONCE.killing,
        on_event: OnEvent::new(|event| println!("{event}")),
    }
}

async fn tree(supervisor: &Supervisor, command: &str) -> Supervised {
    let (_deadlines, deadline) = watch::channel(None);
    let (_signals, signals) = broadcast::channel(1);
    let command = ["sh", "-c", command].map(Into::into);
    let spec = spec(supervisor, &command, deadline.clone());
    let timeouts = StopTimeouts { stop_timeout: Duration::ZERO, ..AT_ONCE };
    let clock = Arc::new(SystemClock::start().unwrap()) as Arc<dyn Clock>;
    let (stop, kill) = (CancellationToken::new(), CancellationToken::new());
    let controls = Controls { signals, stop, stop_signal: None, kill, deadline };
    supervise(&spec, clock, timeouts, controls).await.unwrap()
}
