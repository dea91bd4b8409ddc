//! Runs a command, stops it after a second if it has not ended, and proves that no process of it is left.
//!
//! `cargo run -p vvm-containment --example run_tree -- sh -c '(setsid sleep 1000 &); sleep 1000'`
#![forbid(unsafe_code)]

use std::{env, error::Error, ffi::OsString, process::ExitCode, sync::Arc, time::Duration};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use vvm_clock::{Clock, SystemClock};
use vvm_containment::{
    CommandSpec, Containment, Controls, GuardReport, HelperLines, OnEvent, RequestedLevel, StopTimeouts,
    Supervisor, guard, stage, supervise,
};

const SUPERVISOR: &str = "supervisor";

fn main() -> Result<ExitCode, Box<dyn Error>> {
    // First: shims and keepers are this program, too.
    if let Some(status) = stage::enter()? {
        return Ok(status);
    }
    let mut arguments = env::args_os().skip(1).collect::<Vec<_>>();
    if arguments.first().is_some_and(|first| first == SUPERVISOR) {
        run(&arguments[1..])?;
        return Ok(ExitCode::SUCCESS);
    }
    arguments.insert(0, SUPERVISOR.into());
    let containment = Containment::establish(RequestedLevel::Auto)?;
    println!("level {}", containment.level());
    // Returns when no descendant is left.
    let ended = guard(arguments, &[], containment, |report| {
        if let GuardReport::Event(event) = report {
            println!("{event}");
        }
    })?;
    match ended.supervisor {
        Some(supervisor) => println!("the supervisor {supervisor}"),
        None => println!("the supervisor hangs in the kernel"),
    }
    Ok(ExitCode::SUCCESS)
}

fn run(command: &[OsString]) -> Result<(), Box<dyn Error>> {
    let supervisor = Supervisor::accept()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let clock = Arc::new(SystemClock::start()?) as Arc<dyn Clock>;
    runtime.block_on(async {
        // The holder of a lease would move this deadline, and a forwarder of signals would use the other sender.
        let (_deadlines, deadline) = watch::channel(None);
        let (_signals, signals) = broadcast::channel(1);
        let timeouts = StopTimeouts {
            pre_stop_timeout: Duration::ZERO,
            least_to_stop: Duration::ZERO,
            stop_timeout: Duration::from_secs(1),
            killing: Duration::from_millis(200),
        };
        let spec = CommandSpec {
            command,
            environment: env::vars_os().collect(),
            helpers: &HelperLines::default(),
            input: &supervisor.input,
            guardian: &supervisor.guardian_process,
            group: supervisor.terminal_group,
            containment: &supervisor.containment,
            deadline: deadline.clone(),
            killing: timeouts.killing,
            on_event: OnEvent::new(|event| println!("{event}")),
        };
        let (stop, kill) = (CancellationToken::new(), CancellationToken::new());
        let controls = Controls { signals, stop: stop.clone(), stop_signal: None, kill, deadline };
        let supervising = supervise(&spec, Arc::clone(&clock), timeouts, controls);
        let stopping = async {
            clock.sleep(Duration::from_secs(1)).await;
            stop.cancel();
        };
        let (supervised, ()) = tokio::join!(supervising, stopping);
        match supervised?.ended {
            Some(ended) => println!("the command {ended}, and no process of it is left"),
            None => println!("no command ran"),
        }
        Ok(())
    })
}
