//! The worker: holds an exclusive lock while it lives, and logs when it ran.
//!
//! The kernel releases the lock when its last owner has ended. So a worker that finds the lock taken started
//! while another one still ran. The worker leaves a background process in a session of its own, which does
//! not inherit the lock. Every second worker ignores HUP, as under `nohup`.

use crate::{instance::PROGRAM, proc_fs};
use rustix::fs::{FlockOperation, flock};
use std::{
    env,
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
    process::{self, Command},
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};
use vvm_clock::SystemClock;

/// Between two lines of the log.
pub(crate) const BEAT: Duration = Duration::from_millis(5);

/// Works until it is killed.
pub(crate) fn work(folder: &Path) -> io::Result<bool> {
    let lock = File::create(folder.join("lock"))?;
    let alone = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
    let epoch = env::var("VVM_LEADER_EPOCH").map_err(|_| missing("VVM_LEADER_EPOCH"))?;
    if epoch.ends_with(['0', '2', '4', '6', '8']) {
        signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::new(AtomicBool::new(false)))?;
    }
    let background = Command::new("setsid").args(["sleep", "1000"]).spawn()?.id();
    let keeper = rustix::process::getppid().map_or(0, |keeper| keeper.as_raw_nonzero().get());
    let host = proc_fs::parent(keeper).unwrap_or_default();
    let name = format!("worker-{}-{epoch}", process::id());
    let mut log = OpenOptions::new().create_new(true).append(true).open(folder.join(name))?;
    let program = env::var(PROGRAM).map_err(|_| missing(PROGRAM))?;
    writeln!(log, "{epoch} {host} {} {background} {program}", if alone { "alone" } else { "OVERLAP" })?;
    loop {
        writeln!(log, "{}", SystemClock::read().as_nanos())?;
        SystemClock::block_for(BEAT);
    }
}

fn missing(variable: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{variable} is not set: only `vvm run` starts this"))
}
