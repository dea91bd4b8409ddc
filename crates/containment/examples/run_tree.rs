//! Runs a command, stops it after a second if it has not ended, and proves that nothing that it started is
//! left.
//!
//! `cargo run -p vvm-containment --example run_tree -- sh -c '(setsid sleep 1000 &); sleep 1000'`
#![forbid(unsafe_code)]

use std::{env, error::Error, ffi::OsString, process::ExitCode, sync::Arc, time::Duration};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use vvm_clock::{Clock, SystemClock};
use vvm_containment::{
    Containment, HelperLines, OnEvent, Order, Orders, StopTimeouts, Supervision, Supervisor, Wanted, guard,
    spawn, stage,
};

/// What starts the inner side of this program.
const SUPERVISOR: &str = "supervisor";

fn main() -> Result<ExitCode, Box<dyn Error>> {
    // First: a shim, a keeper or the maker of a namespace is this program, too.
    if let Some(status) = stage::enter()? {
        return Ok(status);
    }
    let mut arguments = env::args_os().skip(1).collect::<Vec<_>>();
    if arguments.first().is_some_and(|first| first == SUPERVISOR) {
        supervise(&arguments[1..])?;
        return Ok(ExitCode::SUCCESS);
    }
    arguments.insert(0, SUPERVISOR.into());
    let containment = Containment::establish(Wanted::Auto)?;
    println!("level {}", containment.level());
    // Returns when no descendant is left.
    let ended = guard(arguments, &[], containment, |heard| println!("{heard:?}"))?;
    println!("the supervisor {}", ended.supervisor);
    Ok(ExitCode::SUCCESS)
}

fn supervise(command: &[OsString]) -> Result<(), Box<dyn Error>> {
    let supervisor = Supervisor::take_up()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let clock = Arc::new(SystemClock::start()?) as Arc<dyn Clock>;
    runtime.block_on(async {
        // A lease would move this deadline, and what passes signals on would keep the other sender.
        let (_deadlines, deadline) = watch::channel(None);
        let (_signals, signals) = broadcast::channel(1);
        let order = Order {
            command,
            environment: env::vars_os().collect(),
            helpers: &HelperLines::default(),
            input: &supervisor.input,
            guardian: &supervisor.guardian_process,
            group: supervisor.terminal_group,
            containment: &supervisor.containment,
            deadline: deadline.clone(),
            on_event: OnEvent::new(|event| println!("{event}")),
        };
        let mut starting = spawn(&order)?;
        starting.executed().await?;
        let timeouts = StopTimeouts {
            pre_stop_timeout: Duration::ZERO,
            least_to_stop: Duration::ZERO,
            stop_timeout: Duration::from_secs(1),
            killing: Duration::from_millis(200),
        };
        let (stop, kill) = (CancellationToken::new(), CancellationToken::new());
        let orders = Orders { signals, stop: stop.clone(), kill, deadline };
        let supervision = Supervision::of(starting, Arc::clone(&clock), timeouts, orders);
        let stopping = async {
            clock.sleep(Duration::from_secs(1)).await;
            stop.cancel();
        };
        let (supervised, ()) = tokio::join!(supervision.run(), stopping);
        // An error would say that the keeper died and left no proof.
        match supervised?.ended {
            Some(ended) => println!("the command {ended}, and no process of it is left"),
            None => println!("no command ran"),
        }
        Ok(())
    })
}
