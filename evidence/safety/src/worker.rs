//! The worker: holds a lock while it lives, and writes down when it was there.
//!
//! The lock is what tells an overlap for certain: the kernel gives it up when the last process that has it is
//! gone, so a worker that starts and finds it taken started while another still ran.
//!
//! It leaves somebody in the background, in a session of his own: the lock is not his, so that it tells of
//! workers alone. Every second one does not care for a hangup, as under `nohup`.

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

/// How often it says that it is there.
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
    let host = rustix::process::getppid().map_or(0, |host| host.as_raw_nonzero().get());
    let name = format!("worker-{}-{epoch}", process::id());
    let mut log = OpenOptions::new().create_new(true).append(true).open(folder.join(name))?;
    writeln!(log, "{epoch} {host} {} {background}", if alone { "alone" } else { "OVERLAP" })?;
    loop {
        writeln!(log, "{}", SystemClock::read().as_nanos())?;
        SystemClock::block_for(BEAT);
    }
}

fn missing(variable: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{variable} is not set: this is run by `vvm run`"))
}
