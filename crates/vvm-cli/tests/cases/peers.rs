//! Problems that users of similar tools reported and that no other file tests.
//! `docs/contributing/peers.md` lists all.

use crate::VVM;
use harness::{Running, eventually};
use rustix::process::Signal;
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

/// A hangup ends `consul lock`, and its command lives on.
#[test]
fn hangup_or_quit_leaves_no_orphan() {
    for signal in [Signal::HUP, Signal::QUIT] {
        let trial = VVM.trial();
        // A daemon that ignores both signals, in its own session.
        let script =
            "setsid sh -c 'trap \"\" HUP QUIT; echo up; while :; do sleep 0.1; done' & sleep 1000; true";
        let mut running = trial.run_script(script).with(["--stop-timeout", "200ms"]).start();
        running.stdout.wait_for("up");
        running.signal(signal);
        assert_eq!(running.finish().code(), 128 + signal.as_raw());
        assert_eq!(trial.processes().0, []);
    }
}

/// A machine's name is not an identity, because clones share it.
#[test]
fn two_processes_of_one_holder_do_not_both_lead() {
    let trial = VVM.trial();
    let mut first = trial.run_script("echo up; exec sleep 1000").with(["--holder", "clone"]).start();
    first.stdout.wait_for("up");
    let second = trial.run(["echo", "leads"]).with(["--holder", "clone", "--try"]).finish();
    assert_eq!((second.code(), second.stdout), (75, Vec::new()), "{:#?}", second.stderr);
    first.signal(Signal::TERM);
    first.finish();
}

fn metrics(running: &mut Running) -> impl Fn() -> String + use<> {
    let line = running.stderr.wait_for("http://");
    let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    move || {
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

/// `docs/contributing/peers.md` advises an alarm if the sum is above 1. A standby reports 0 and the leader 1.
#[test]
fn leading_metrics_of_all_candidates_add_up_to_one() {
    let trial = VVM.trial();
    let mut candidates = ["a", "b", "c"].map(|holder| {
        trial.run_script("exec sleep 1000").with(["--holder", holder, "--http", "127.0.0.1:0"]).start()
    });
    let asked = candidates.each_mut().map(metrics);
    let leading = || {
        let answers = asked.iter().map(|ask| ask());
        let samples = answers.map(|answer| {
            let mut values =
                answer.lines().filter_map(|line| line.strip_prefix("vvm_leading{name=\"payroll\"} "));
            values.next().unwrap().parse::<u32>().unwrap()
        });
        samples.collect::<Vec<_>>()
    };
    eventually("one leads", || leading().iter().sum::<u32>() == 1);
    for _ in 0..20 {
        let leading = leading();
        assert_eq!(leading.iter().sum::<u32>(), 1, "{leading:?}");
    }
    for candidate in candidates {
        candidate.signal(Signal::TERM);
        candidate.finish();
    }
}
