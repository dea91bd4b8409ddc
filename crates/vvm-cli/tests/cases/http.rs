use crate::VVM;
use harness::{Run, Running, Trial, eventually, has};
use rustix::process::Signal;
use serde_json::Value;
use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
};

pub(super) fn start(run: Run) -> (Running, SocketAddr) {
    let mut running = run.with(["--http", "127.0.0.1:0"]).start();
    let line = running.stderr.wait_for("http://");
    let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().parse().unwrap();
    (running, address)
}

pub(super) fn ask(address: SocketAddr, path: &str) -> Option<(u16, String)> {
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

fn sample(trial: &Trial, address: SocketAddr, metric: &str, label: &str) -> Option<f64> {
    let sample = format!("{metric}{{name=\"{}\"{label}}} ", trial.name());
    let (_, metrics) = answer(address, "/metrics");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&sample));
    line.map(|value| value.trim().parse().unwrap())
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

    let shown = status(at_leader);
    let (of_slot, epoch) = (",slot=\"1\"", shown["leadership"]["epoch"].as_u64().unwrap());
    let margin = sample(&trial, at_leader, "vvm_margin_seconds", of_slot).unwrap();
    assert!(margin > 0.0 && margin <= 16.0, "{margin}");
    assert_eq!(sample(&trial, at_leader, "vvm_epoch", of_slot).map(|it| it as u64), Some(epoch));
    assert_eq!(sample(&trial, at_leader, "vvm_leading", ""), Some(1.0));
    assert!(!shown["storage"]["location"].as_str().unwrap().is_empty(), "{shown}");
    assert!(shown["changes"][0]["says"].as_str().unwrap().starts_with("leading, slot 1"), "{shown}");
    assert_eq!(status(at_standby)["changes"][0]["says"], "waiting for leadership");
    assert_eq!(sample(&trial, at_standby, "vvm_epoch", of_slot), None);
    assert_eq!(sample(&trial, at_standby, "vvm_leading", ""), Some(0.0));

    leader.signal(Signal::TERM);
    standby.stdout.wait_for("up");
    eventually("the standby leads", || answer(at_standby, "/leader").0 == 200);
    leader.finish();
    assert_eq!(ask(at_leader, "/healthz"), None);
}

#[test]
fn occupied_http_address_is_71_before_any_campaign() {
    let trial = VVM.trial();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let options = ["--http", &address, "--result-file", &trial.result_file()];
    let finished = trial.run(["true"]).with(options).finish();
    finished.assert_code(71);
    has!(trial.result(), "outcome" == "system_refused", "exit_status" == 71);
    finished.assert_says(&format!("--http: can't listen at {address}"));
    assert!(!finished.says("the host process exited"), "{:#?}", finished.stderr);
    assert!(!finished.says("waiting for leadership"), "{:#?}", finished.stderr);
}
