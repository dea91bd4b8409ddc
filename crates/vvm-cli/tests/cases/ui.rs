//! `vvm ui`: a page of all names, which only reads.

use super::http::answer;
use crate::VVM;
use harness::{Lines, Trial, eventually, has};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    net::{SocketAddr, TcpListener},
    os::unix::process::ExitStatusExt as _,
    process::Stdio,
};

#[test]
fn page_shows_who_leads_which_name_is_paused_and_which_is_vacant() {
    let trial = VVM.trial();
    let named = |suffix: &str| format!("{}-{suffix}", trial.name());
    let (led, paused, vacant) = (trial.name(), named("paused"), named("vacant"));
    let leader = trial.run_forever().with(["--holder", "db1"]).up();
    for name in [&paused, &vacant] {
        trial.run(["true"]).with(["--name", name, "--holder", "db2"]).finish().assert_code(0);
    }
    let (code, _, said) = trial.ask("pause", &["--name", &paused, "--by", "alice"]);
    assert_eq!(code, 0, "{said}");

    let mut ui = VVM.command(&["ui", "--http", "127.0.0.1:0", "--storage", &trial.storage()]);
    if Trial::is_on_a_server() {
        ui.args(["--name", &led, "--name", &paused, "--name", &vacant]);
    }
    let mut ui = ui.stdout(Stdio::piped()).spawn().unwrap();
    let first = Lines::of("stdout", ui.stdout.take().unwrap()).wait_for("http://");
    let address = first.strip_prefix("http://").and_then(|rest| rest.split('/').next()).unwrap();
    let address: SocketAddr = address.parse().unwrap();
    let shown = || serde_json::from_str::<Value>(&answer(address, "/names?after=0").1).unwrap();
    let of = |name: &str| {
        let names = shown();
        let found = names["names"].as_array().unwrap().iter().find(|shown| shown["name"] == name);
        found.cloned().unwrap_or_default()
    };
    eventually("the leader is seen", || of(&led)["rows"][0]["state"] == "led");
    has!(of(&led)["rows"][0], "holder" == "db1", "slot" == 1);
    has!(of(&paused)["pause"], "by" == "alice");
    has!(of(&vacant), "slots" == 1, "pause" == Value::Null);
    has!(of(&vacant)["rows"][0], "state" == "free");
    assert_eq!(shown()["trouble"], Value::Null);

    let (code, page) = answer(address, "/");
    assert!(code == 200 && !page.contains("//"), "it names an address of another server");
    let picture = format!("/timeline.svg?id={}", of(&vacant)["id"]);
    eventually("its history is read", || {
        shown();
        answer(address, &picture).1.contains("the command exited with status 0")
    });
    leader.stop();
    eventually("the release is seen", || of(&led)["rows"][0]["state"] == "free");
    kill_process(Pid::from_child(&ui), Signal::INT).unwrap();
    assert_eq!(ui.wait().unwrap().signal(), Some(Signal::INT.as_raw()));
}

#[test]
fn storage_that_never_was_and_occupied_address_are_refused_with_the_reason() {
    let trial = VVM.trial();
    let (code, _, said) = trial.ask("ui", &["--http", "127.0.0.1:0"]);
    assert!(code == 66 || Trial::is_on_a_server(), "{code}: {said}");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let (code, _, said) = trial.ask("ui", &["--http", &taken.local_addr().unwrap().to_string()]);
    assert!(code == 71 && said.contains("--http: can't listen at"), "{code}: {said}");
}
