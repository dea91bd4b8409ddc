//! The worker: holds a lock while it lives, and writes down when it was there.
//!
//! The lock is what tells an overlap for certain: the kernel gives it up when the last process that has it is gone, so
//! a worker that starts and finds it taken started while another still ran.

use clock::SystemClock;
use rustix::fs::{FlockOperation, flock};
use std::{
    env,
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
    process,
    time::Duration,
};

/// How often it says that it is there.
pub(crate) const BEAT: Duration = Duration::from_millis(5);

/// Works until it is killed.
pub(crate) fn work(folder: &Path) -> io::Result<bool> {
    let lock = File::create(folder.join("lock"))?;
    let alone = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
    let epoch = env::var("VVM_LEADER_EPOCH").map_err(|_| missing("VVM_LEADER_EPOCH"))?;
    let host = rustix::process::getppid().map_or(0, |host| host.as_raw_nonzero().get());
    let name = format!("worker-{}-{epoch}", process::id());
    let mut log = OpenOptions::new().create_new(true).append(true).open(folder.join(name))?;
    writeln!(log, "{epoch} {host} {}", if alone { "alone" } else { "OVERLAP" })?;
    loop {
        writeln!(log, "{}", SystemClock::read().as_nanos())?;
        SystemClock::block_for(BEAT);
    }
}

fn missing(variable: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{variable} is not set: this is run by `vvm run`"))
}
