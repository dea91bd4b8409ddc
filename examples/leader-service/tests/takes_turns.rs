//! Two real processes: one listens, and the other does after it was told to stop, or was killed.
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

use clock::SystemClock;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::Read as _,
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

/// Far more than all of it takes; a machine may be slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process, killed at the latest when its test ends.
struct Process(Child);

impl Process {
    fn start(place: &Path, listen: SocketAddr) -> Self {
        let storage = format!("sqlite:{}", place.join("service.db").display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_leader-service"));
        command.args(["--storage", &storage, "--listen", &listen.to_string(), "--ttl-ms", "1000"]);
        Self(command.stdin(Stdio::null()).spawn().unwrap())
    }

    fn tell(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    fn ended(mut self) -> ExitStatus {
        let mut status = None;
        eventually("it ends", || {
            status = self.0.try_wait().unwrap();
            status
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Of one that has ended already, nothing.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn eventually<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let give_up_at = SystemClock::read().after(PATIENCE);
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(SystemClock::read() < give_up_at, "never: {what}");
        SystemClock::block_for(Duration::from_millis(5));
    }
}

/// The epoch that is answered with, once it is larger than `than`.
fn epoch_above(than: u64, listen: SocketAddr) -> u64 {
    eventually("somebody answers under a new epoch", || {
        let mut line = String::new();
        TcpStream::connect(listen).ok()?.read_to_string(&mut line).ok()?;
        line.trim().strip_prefix("epoch ")?.parse().ok().filter(|epoch| *epoch > than)
    })
}

#[test]
fn one_listens_at_a_time_and_stops_as_it_is_told() {
    let place = tempfile::tempdir().unwrap();
    let listen = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();

    let first = Process::start(place.path(), listen);
    let first_epoch = epoch_above(0, listen);
    // Were it to lead beside the first, the address would be taken, and it would end.
    let second = Process::start(place.path(), listen);
    first.tell(Signal::TERM);
    let second_epoch = epoch_above(first_epoch, listen);
    assert_eq!(first.ended().code(), Some(0), "a stop that was asked for is no failure");

    let third = Process::start(place.path(), listen);
    second.tell(Signal::KILL);
    epoch_above(second_epoch, listen);
    third.tell(Signal::INT);
    assert_eq!(third.ended().code(), Some(0));
}

#[test]
fn what_is_in_the_way_is_said_with_a_status() {
    let place = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let command = Command::new(env!("CARGO_BIN_EXE_leader-service")).args(arguments).output().unwrap();
        (command.status.code(), String::from_utf8(command.stderr).unwrap())
    };
    let (status, said) = run(&["--storage", "file.db"]);
    assert_eq!(status, Some(64), "{said}");
    assert!(said.contains("sqlite:file.db"), "the way out is named: {said}");

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let storage = format!("sqlite:{}", place.path().join("service.db").display());
    let (status, said) = run(&["--storage", &storage, "--listen", &taken.local_addr().unwrap().to_string()]);
    assert_eq!(status, Some(1), "a service that fails is the program's own failure: {said}");
    assert!(said.contains("greeter"), "the service is named: {said}");
}
