//! `--http` of real processes: probes, routing and metrics.

use crate::VVM;
use harness::{Run, Running, Trial, eventually, has};
use rustix::process::Signal;
use serde_json::Value;
use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
};

/// Starts a run with HTTP at a free port, and returns the address.
pub(super) fn start(run: Run) -> (Running, SocketAddr) {
    let mut running = run.with(["--http", "127.0.0.1:0"]).start();
    let line = running.stderr.wait_for("http://");
    let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().parse().unwrap();
    (running, address)
}

/// Returns status and body of the answer, if there is one.
fn ask(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

pub(super) fn answer(address: SocketAddr, path: &str) -> (u16, String) {
    ask(address, path).unwrap()
}

fn status(address: SocketAddr) -> Value {
    serde_json::from_str(&answer(address, "/status").1).unwrap()
}

fn sample(address: SocketAddr, sample: &str) -> Option<f64> {
    let (_, metrics) = answer(address, "/metrics");
    let line = metrics.lines().find_map(|line| line.strip_prefix(sample));
    line.map(|value| value.trim().parse().unwrap())
}

/// Returns the sample of a metric for this trial's name, with one more label or none.
fn labelled(trial: &Trial, metric: &str, label: &str) -> String {
    let more = if label.is_empty() { String::new() } else { format!(",{label}") };
    format!("{metric}{{name=\"{}\"{more}}} ", trial.name())
}

#[test]
fn leader_and_standby_answer_probes_and_routers_by_role() {
    let trial = VVM.trial();
    let (mut leader, at_leader) = start(trial.run_forever().with(["--holder", "first"]));
    leader.stdout.wait_for("up");
    let (mut standby, at_standby) = start(trial.run_forever().with(["--holder", "second"]));

    eventually("the leader leads", || answer(at_leader, "/leader").0 == 200);
    let said = answer(at_leader, "/leader").1;
    assert!(said.starts_with("leading: slot 1, epoch ") && said.ends_with(" s left\n"), "{said}");
    eventually("the standby knows who leads", || answer(at_standby, "/leader").1.contains("slot 1: first"));
    assert_eq!(answer(at_standby, "/leader").0, 503);
    assert_eq!((answer(at_leader, "/readyz").0, answer(at_standby, "/readyz").0), (200, 200));

    let margin = sample(at_leader, &labelled(&trial, "vvm_margin_seconds", "slot=\"1\"")).unwrap();
    assert!(margin > 0.0 && margin <= 16.0, "{margin}");
    let epoch = sample(at_leader, &labelled(&trial, "vvm_epoch", "slot=\"1\"")).unwrap();
    assert_eq!(sample(at_leader, &labelled(&trial, "vvm_leading", "")), Some(1.0));
    assert_eq!(epoch as u64, status(at_leader)["leadership"]["epoch"].as_u64().unwrap());
    let shown = status(at_leader);
    assert!(!shown["storage"]["location"].as_str().unwrap().is_empty(), "{shown}");
    assert!(shown["changes"][0]["says"].as_str().unwrap().starts_with("leading, slot 1"), "{shown}");
    assert_eq!(status(at_standby)["changes"][0]["says"], "waiting for leadership");
    assert_eq!(sample(at_standby, &labelled(&trial, "vvm_epoch", "slot=\"1\"")), None);
    assert_eq!(sample(at_standby, &labelled(&trial, "vvm_leading", "")), Some(0.0));

    // A clean hand-over moves the answers with it.
    leader.signal(Signal::TERM);
    standby.stdout.wait_for("up");
    eventually("the standby leads", || answer(at_standby, "/leader").0 == 200);
    leader.finish();
    assert_eq!(ask(at_leader, "/healthz"), None);
    standby.stop();
}

#[test]
fn occupied_http_address_is_71_before_any_campaign() {
    let trial = VVM.trial();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let options = ["--http", &address, "--result-file", &trial.result_file()];
    let finished = trial.run(["true"]).with(options).finish();
    assert_eq!(finished.code(), 71, "{:#?}", finished.stderr);
    let result = trial.result();
    has!(result, "outcome" == "system_refused", "exit_status" == 71);
    assert!(finished.says(&format!("--http: can't listen at {address}")), "{:#?}", finished.stderr);
    assert!(!finished.says("the host process exited"), "{:#?}", finished.stderr);
    assert!(!finished.says("waiting for leadership"), "{:#?}", finished.stderr);
}

/// The flood includes clients that connect and send nothing.
#[test]
fn flood_of_requests_delays_no_renewal() {
    let trial = VVM.trial();
    let (mut running, address) = start(trial.run_forever().with(["--ttl", harness::SHORT_TTL]));
    running.stdout.wait_for("up");
    let silent = (0..40).filter_map(|_| TcpStream::connect(address).ok()).collect::<Vec<_>>();
    let renewals = || status(address)["renewals"]["count"].as_u64().unwrap();
    let before = renewals();
    eventually("as many renewals as two TTLs have", || {
        let asked = (0..20).filter_map(|_| ask(address, "/metrics")).count();
        assert!(asked > 0);
        renewals() >= before + 8
    });
    let shown = status(address);
    has!(shown, "leaderships" == 1, "losses" == serde_json::json!({}));
    drop(silent);
    running.stop();
}

#[test]
fn paused_standby_names_the_pause() {
    let trial = VVM.trial();
    trial.run(["true"]).finish();
    trial.must("pause", &["--by", "alice", "--reason", "new schema"]);
    let (mut standby, address) = start(trial.run(["true"]));
    standby.stderr.wait_for("waiting until it is resumed");
    let paused = "paused by alice: new schema\n";
    assert_eq!(answer(address, "/leader"), (503, format!("not leading: {paused}")));
    assert_eq!(answer(address, "/readyz"), (200, format!("ready: {paused}")));
    standby.stop();
}
