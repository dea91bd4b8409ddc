//! What happens after the command ends by itself: release or restart.

use crate::VVM;
use harness::{Trial, eventually, state};
use rustix::process::Signal;

const SOON: [&str; 4] = ["--on-exit", "restart", "--restart-backoff", "20ms"];

fn free_now(trial: &Trial) -> bool {
    trial.run(["true"]).with(["--acquire-timeout", "0"]).finish().code() == 0
}

/// These include daemons and processes that ignore TERM.
#[test]
fn restart_follows_the_end_of_every_process_of_the_run_before() {
    let trial = VVM.trial();
    let lock = trial.folder().join("lock").display().to_string();
    let daemon = "trap \"\" TERM; echo > \"$0.up\"; sleep 1000; :";
    let script = format!(
        "lock='{lock}'; flock -n \"$lock\" true && echo clean || echo left
         rm -f \"$lock.up\"; setsid flock \"$lock\" sh -c '{daemon}' \"$lock\" & \
         until [ -e \"$lock.up\" ]; do sleep 0.01; done"
    );
    let options = ["--restart-limit", "2", "--stop-timeout", "50ms"];
    let finished = trial.run_script(&script).with(SOON).with(options).finish();
    assert_eq!(
        (finished.code(), &finished.stdout[..]),
        (0, &["clean".to_owned(), "clean".into(), "clean".into()][..])
    );
}

#[test]
fn stopped_command_is_not_restarted() {
    let trial = VVM.trial();
    let script = "trap 'exit 6' TERM; echo up; while :; do sleep 0.01; done";
    let mut running = trial.run_script(script).with(SOON).start();
    running.stdout.wait_for("up");
    running.signal(Signal::TERM);
    let finished = running.finish();
    assert_eq!(finished.code(), 6, "{:#?}", finished.stderr);
    assert!(!finished.says("restart"), "{:#?}", finished.stderr);
}

#[test]
fn command_deleted_before_its_restart_is_127() {
    let trial = VVM.trial();
    let program = trial.folder().join("once");
    std::fs::write(&program, format!("#!/bin/sh\nrm '{}'\n", program.display())).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, executable).unwrap();
    let finished = trial.run([program.to_str().unwrap()]).with(SOON).finish();
    assert_eq!(finished.code(), 127, "{:#?}", finished.stderr);
    assert!(free_now(&trial));
}

#[test]
fn loss_between_two_runs_has_the_status_of_a_loss() {
    let trial = VVM.trial();
    let options = ["--on-exit", "restart", "--restart-backoff", "1h", "--restart-backoff-max", "1h"];
    let mut running = trial.run_script("exit 3").with(options).with(["--ttl", harness::SHORT_TTL]).start();
    running.stderr.wait_for("restart 1");
    let outage = trial.outage();
    eventually("it ends", || state(running.guardian) == Some('Z'));
    drop(outage);
    assert_eq!(running.finish().code(), 79);
}
