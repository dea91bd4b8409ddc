//! A server ends with its owner, however the owner ends.
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

use rustix::process::{Pid, Signal, getpid, kill_process, test_kill_process};
use servers::owned::{GUARD, wait_until};
use std::{
    convert::Infallible,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::Duration,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_servers");

#[test]
fn server_ends_with_its_killed_owner() {
    // The owner prints a line when the server runs, and waits for an end of its input that never comes.
    let script = format!("\"$0\" {GUARD} $$ sh -c 'echo $$; exec sleep 1000' & read never");
    let mut owner = Command::new("sh")
        .args(["-c", &script, PROGRAM])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(owner.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let server = Pid::from_raw(line.trim().parse().unwrap()).unwrap();
    assert!(test_kill_process(server).is_ok(), "the server is not there");
    owner.kill().unwrap();
    owner.wait().unwrap();
    let is_gone = wait_until(Duration::from_secs(10), || {
        // A zombie is dead, too: init may reap it late.
        let status = std::fs::read_to_string(format!("/proc/{}/stat", server.as_raw_nonzero()));
        Ok::<_, Infallible>(status.map_or(true, |status| status.contains(") Z ")))
    });
    if is_gone != Ok(true) {
        kill_process(server, Signal::KILL).unwrap();
    }
    assert_eq!(is_gone, Ok(true));
}

#[test]
fn no_server_starts_for_an_owner_that_has_ended() {
    let not_its_parent = getpid().as_raw_nonzero().get() + 1;
    let started =
        Command::new(PROGRAM).args([GUARD, &not_its_parent.to_string(), "echo", "started"]).output();
    let started = started.unwrap();
    assert!(!started.status.success());
    assert!(started.stdout.is_empty());
    assert!(String::from_utf8_lossy(&started.stderr).contains("owner is gone"));
}
