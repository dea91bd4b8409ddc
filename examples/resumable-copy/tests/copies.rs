//! What a running copy shows. That it continues where its leader was killed, `cargo xtask resume` shows.
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};
use vvm_clock::SystemClock;

const GIVE_UP_AFTER: Duration = Duration::from_secs(120);

fn copy(place: &Path) -> Command {
    let mut copy = Command::new(env!("CARGO_BIN_EXE_resumable-copy"));
    copy.args(["--storage", &format!("sqlite:{}?allow=overlay", place.join("copy.db").display())])
        .arg("--from")
        .arg(place.join("from"))
        .arg("--to")
        .arg(place.join("to"))
        .args(["--piece", "1024"])
        .stdin(Stdio::null());
    copy
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let give_up_at = SystemClock::read().after(GIVE_UP_AFTER);
    while !condition() {
        assert!(SystemClock::read() < give_up_at, "never: {what}");
        SystemClock::block_for(Duration::from_millis(5));
    }
}

/// A process, killed at the end of the test.
struct Copying(Child);

impl Drop for Copying {
    fn drop(&mut self) {
        // Fails if the process has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ask(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[test]
fn running_copy_shows_its_report_and_counts() {
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("from");
    fs::create_dir(&from).unwrap();
    fs::write(from.join("large"), vec![7; 1 << 20]).unwrap();
    let mut copying = copy(place.path())
        // A thousand steps of a second each, so that it runs until the end of the test.
        .args(["--pause-ms", "1000", "--http", "127.0.0.1:0"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(copying.stderr.take().unwrap());
    let _killed_in_the_end = Copying(copying);
    let line = said.lines().map(Result::unwrap).find(|line| line.contains("http://")).unwrap();
    let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap();

    eventually("it leads and makes progress", || {
        let status = serde_json::from_str::<serde_json::Value>(&ask(address, "/status")).unwrap();
        let instance = &status["instances"][0];
        // The copy may report before its host has noted that all services are up.
        let is_at_work = status["role"] == "leading" && instance["report"]["bytes"].as_u64() > Some(0);
        if is_at_work {
            assert_eq!(instance["state"], "running", "{status}");
            assert_eq!(status["services"][0]["running"], 1, "{status}");
        }
        is_at_work
    });
    let metrics = ask(address, "/metrics");
    let service = &metrics[metrics.find("vvm_service_instances{").unwrap()..];
    assert!(service.contains("state=\"running\"} 1\n"), "{metrics}");
    let running = "vvm_service_state=\"running\"} 1\n";
    assert!(metrics.contains(running) && metrics.ends_with("# EOF\n"), "{metrics}");
}
