//! Real processes: one listens, and another one takes over after a stop or a kill.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "clippy exempts tests, but not their helpers"
)]

use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};
use vvm_clock::SystemClock;

/// Ends a test that hangs.
const GIVE_UP_AFTER: Duration = Duration::from_secs(60);

/// A process, killed at the end of the test.
struct Process {
    child: Child,
    http: SocketAddr,
}

impl Process {
    fn start(place: &Path, listen: SocketAddr) -> Self {
        let storage = format!("sqlite:{}?allow=overlay", place.join("service.db").display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_leader-service"));
        command.args(["--storage", &storage, "--listen", &listen.to_string(), "--ttl-ms", "4000"]);
        command.args(["--http", "127.0.0.1:0"]).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        let http = loop {
            line.clear();
            assert_ne!(said.read_line(&mut line).unwrap(), 0, "it ended");
            let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
            if let Some(address) = address {
                break address.parse().unwrap();
            }
        };
        // Read on, so that a full pipe never blocks the process.
        thread::spawn(move || io::copy(&mut said, &mut io::stderr()));
        Self { child, http }
    }

    /// Returns the status of the answer, and the answer.
    fn ask(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.http).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
    }

    fn tell(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn ended(mut self) -> ExitStatus {
        let mut status = None;
        eventually("it ends", || {
            status = self.child.try_wait().unwrap();
            status
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn eventually<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let give_up_at = SystemClock::read().after(GIVE_UP_AFTER);
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(SystemClock::read() < give_up_at, "never: {what}");
        SystemClock::block_for(Duration::from_millis(5));
    }
}

/// Waits for an answer with an epoch larger than `than`, and returns it.
fn epoch_above(than: u64, listen: SocketAddr) -> u64 {
    eventually("an answer with a new epoch", || {
        let mut line = String::new();
        TcpStream::connect(listen).ok()?.read_to_string(&mut line).ok()?;
        line.trim().strip_prefix("epoch ")?.parse().ok().filter(|epoch| *epoch > than)
    })
}

#[test]
fn one_process_listens_at_a_time_and_stops_on_a_signal() {
    let place = tempfile::tempdir().unwrap();
    let listen = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();

    let first = Process::start(place.path(), listen);
    let first_epoch = epoch_above(0, listen);
    // If it led beside the first, it would fail, because the address is taken.
    let second = Process::start(place.path(), listen);
    eventually("the second one is ready", || (second.ask("/readyz").0 == 200).then_some(()));
    assert_eq!((first.ask("/leader").0, second.ask("/leader").0), (200, 503));
    first.tell(Signal::TERM);
    let second_epoch = epoch_above(first_epoch, listen);
    assert_eq!(first.ended().code(), Some(0), "a requested stop is a success");

    eventually("the second one leads", || (second.ask("/leader").0 == 200).then_some(()));
    let metrics = second.ask("/metrics").1;
    assert!(metrics.contains(&format!("{second_epoch}\n")) && metrics.ends_with("# EOF\n"), "{metrics}");

    let third = Process::start(place.path(), listen);
    second.tell(Signal::KILL);
    epoch_above(second_epoch, listen);
    third.tell(Signal::INT);
    assert_eq!(third.ended().code(), Some(0));
}

#[test]
fn errors_are_printed_with_an_exit_status() {
    let place = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let command = Command::new(env!("CARGO_BIN_EXE_leader-service")).args(arguments).output().unwrap();
        (command.status.code(), String::from_utf8(command.stderr).unwrap())
    };
    let (status, said) = run(&["--storage", "file.db"]);
    assert_eq!(status, Some(64), "{said}");
    assert!(said.contains("sqlite:file.db"), "the fix is named: {said}");

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let storage = format!("sqlite:{}?allow=overlay", place.path().join("service.db").display());
    let (status, said) = run(&["--storage", &storage, "--listen", &taken.local_addr().unwrap().to_string()]);
    assert_eq!(status, Some(1), "a failed service has status 1: {said}");
    assert!(said.contains("greeter"), "the service is named: {said}");
}
