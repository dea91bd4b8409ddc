//! A host that hangs, and is not stopped: its own thread ends it at the deadline, and says so.

use crate::VVM;
use harness::{eventually, state};
use nix::sys::ptrace;
use serde_json::Value;
use std::thread;

/// The main thread alone is held, as a debugger does it: it renews nothing and hears nobody, and the thread that watches
/// the deadline runs on.
#[test]
fn a_hung_host_ends_with_80_at_the_deadline_and_leaves_nobody_behind() {
    // The kernel's timer is a hair behind that thread, which a busy machine may keep waiting for longer.
    let by_the_kernel = (0..10).take_while(|_| code_of_a_hung_host() == 128 + 9).count();
    assert!(by_the_kernel < 10, "the thread was never the first");
}

/// 80, or 128 + 9 where the kernel was faster.
fn code_of_a_hung_host() -> i32 {
    let trial = VVM.trial();
    let path = trial.folder().join("result.json");
    let options = ["--ttl", trial.ttl("1s"), "--result-file", path.to_str().unwrap()];
    let worker = "trap '' TERM; (setsid sleep 1000 &); echo up; exec sleep 1001";
    let mut running = trial.run_script(worker).with(options).start();
    running.stdout.wait_for("up");
    let host = running.host();
    let traced = nix::unistd::Pid::from_raw(host.as_raw_pid());
    let tracer = thread::spawn(move || {
        ptrace::seize(traced, ptrace::Options::empty()).unwrap();
        ptrace::interrupt(traced).unwrap();
        eventually("the host has ended", || matches!(state(host), Some('Z') | None));
    });
    // Its parent hears of its end when nobody traces it any more: when that thread has ended.
    tracer.join().unwrap();
    eventually("nobody left", || trial.processes().0.is_empty());
    let finished = running.finish();
    let code = finished.code();
    assert!([80, 128 + 9].contains(&code), "{code}: {:#?}", finished.stderr);
    assert!(finished.says("killed at the deadline"), "{:#?}", finished.stderr);
    let found = serde_json::from_slice::<Value>(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!((&found["outcome"], &found["exit_status"]), (&"deadline".into(), &code.into()));
    assert!(found["host_ended_ns"].as_u64() >= found["kill_deadline_ns"].as_u64(), "{found}");
    code
}
