//! A host that hangs without being stopped: its own thread ends it at the deadline and logs it.

use crate::VVM;
use harness::{Attempt, Late, Trial, eventually, state};
use nix::sys::ptrace;
use serde_json::Value;
use std::thread;
use vvm_clock::Instant;
use vvm_deadman::SECOND_LAYER_BEHIND;

/// The kernel's timer is [`SECOND_LAYER_BEHIND`] behind the host's own thread, which acts before it unless
/// the machine keeps it waiting for that long.
fn hung_host_is_ended_by_its_own_thread(attempt: &Attempt, trial: &Trial) -> Result<(), Late> {
    let path = trial.folder().join("result.json");
    let options = ["--ttl", harness::SHORT_TTL, "--result-file", path.to_str().unwrap()];
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
    // The parent can reap the host after the tracer's thread has ended.
    tracer.join().unwrap();
    eventually("no process is left", || trial.processes().0.is_empty());
    let finished = running.finish();
    let code = finished.code();
    assert!([80, 128 + 9].contains(&code), "{code}: {:#?}", finished.stderr);
    assert!(finished.says("killed at the deadline"), "{:#?}", finished.stderr);
    let found = serde_json::from_slice::<Value>(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!((&found["outcome"], &found["exit_status"]), (&"deadline".into(), &code.into()));
    assert!(found["host_ended_ns"].as_u64() >= found["kill_deadline_ns"].as_u64(), "{found}");
    if code == 128 + 9 {
        let moment = |name: &str| Instant::from_nanos(found[name].as_u64().unwrap());
        let (deadline, ended) = (moment("kill_deadline_ns"), moment("host_ended_ns"));
        attempt.reported("the host's own thread", SECOND_LAYER_BEHIND, ended.since(deadline), deadline)?;
        panic!("the kernel ended the host before its own thread was late: {found}");
    }
    Ok(())
}

mod timed {
    use super::*;

    /// The main thread is held as by a debugger, so it renews nothing and handles no signal. The thread of
    /// the deadline still runs.
    #[test]
    fn hung_host_ends_with_80_at_the_deadline_and_leaves_no_process() {
        VVM.timed("a host hangs", hung_host_is_ended_by_its_own_thread);
    }
}
