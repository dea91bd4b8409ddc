//! Supervises process trees in a program that has children of its own by tokio: neither takes the other's
//! statuses, and no process is left. A program of its own, because it is guardian, supervisor and keeper.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not a test without a harness")]

use std::{env, process::ExitCode, sync::Arc, time::Duration};
use tokio::{
    process::Command,
    sync::{broadcast, watch},
};
use tokio_util::sync::CancellationToken;
use vvm_clock::{Clock, SystemClock};
use vvm_containment::{
    CommandSpec, Containment, Controls, Ended, Family, HelperLines, Level, OnEvent, StopTimeouts, Supervised,
    Supervisor, Wanted, guard, stage, supervise,
};

const ROUNDS: u8 = 200;

/// A daemon, a child that is left behind, and a status.
const TREE: &str = "(setsid sleep 1000 &); sleep 1000 & exit 7";

fn main() -> ExitCode {
    match stage::enter() {
        Ok(None) => {}
        Ok(Some(status)) => return status,
        Err(refusal) => panic!("{refusal}"),
    }
    if env::args_os().nth(1).is_some_and(|argument| argument == "supervisor") {
        run_rounds();
        return ExitCode::SUCCESS;
    }
    let containment = Containment::establish(Wanted::Exactly(Level::Guardian)).unwrap();
    // Returns only when no descendant is left.
    let ended = guard(vec!["supervisor".into()], &[], containment, |heard| println!("{heard:?}")).unwrap();
    assert_eq!(ended.supervisor, Some(Ended::Exited(0)));
    println!("{ROUNDS} rounds: no status taken, nothing left");
    ExitCode::SUCCESS
}

fn run_rounds() {
    let supervisor = Supervisor::accept().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for round in 0..ROUNDS {
            let exit = format!("exit {round}");
            let own = || Command::new("sh").args(["-c", &exit]).status();
            let (first, tree, second) = tokio::join!(own(), tree(&supervisor), own());
            for status in [first, second] {
                assert_eq!(status.unwrap().code(), Some(i32::from(round)));
            }
            assert_eq!(tree.ended, Some(Ended::Exited(7)));
            let left = Family::of_this_process().unwrap().descendants();
            assert!(left.is_empty(), "round {round}: {left:?}");
        }
    });
}

/// Runs one tree to its end.
async fn tree(supervisor: &Supervisor) -> Supervised {
    let (_deadlines, deadline) = watch::channel(None);
    let (_signals, signals) = broadcast::channel(1);
    let spec = CommandSpec {
        command: &["sh", "-c", TREE].map(Into::into),
        environment: env::vars_os().collect(),
        helpers: &HelperLines::default(),
        input: &supervisor.input,
        guardian: &supervisor.guardian_process,
        group: None,
        containment: &supervisor.containment,
        deadline: deadline.clone(),
        on_event: OnEvent::new(|event| println!("{event}")),
    };
    let timeouts = StopTimeouts {
        pre_stop_timeout: Duration::ZERO,
        least_to_stop: Duration::ZERO,
        stop_timeout: Duration::ZERO,
        killing: Duration::ZERO,
    };
    let clock = Arc::new(SystemClock::start().unwrap()) as Arc<dyn Clock>;
    let (stop, kill) = (CancellationToken::new(), CancellationToken::new());
    let controls = Controls { signals, stop, kill, deadline };
    supervise(&spec, clock, timeouts, controls).await.unwrap()
}
