//! Every exit status that the help promises.

use crate::VVM;
use harness::eventually;
use rustix::process::Signal;
use std::time::Duration;

#[test]
fn status_of_a_worker_killed_by_a_signal_from_outside() {
    let trial = VVM.trial();
    assert_eq!(trial.run_script("kill -SEGV $$").finish().code(), 128 + 11);
    assert_eq!(trial.run_script("kill -TERM $$").finish().code(), 128 + 15);
    assert_eq!(trial.run_script("kill -KILL $$").finish().code(), 128 + 9);
}

/// Every process of vvm reads from /dev/null if it has no input. Without it, the error must not look like a
/// crash. Where mounts are forbidden, this tests nothing; `stage` has a unit test of text and status.
#[test]
fn missing_dev_null_is_71_and_named() {
    let trial = VVM.trial();
    let without = "mount -t tmpfs none /dev && exec \"$@\"";
    let through = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", without, "sh"];
    if harness::is_permitted(&[&through[..], &["true"]].concat()) {
        // The mount also hides the folder of the trial in /dev/shm.
        let finished = trial.run(["true"]).with(["--local-dir", "none"]).through(through).finish();
        assert_eq!(finished.code(), 71, "{:#?}", finished.stderr);
        assert!(finished.says("/dev/null can't be opened"), "{:#?}", finished.stderr);
    }
}

/// `--try` must not mistake the record of a dead leader for a leader, or a job would never run again after a
/// crash.
#[test]
fn try_takes_over_from_a_crashed_leader() {
    let trial = VVM.trial();
    let ttl = harness::SHORT_TTL;
    let mut leader = trial.run_script("echo up; exec sleep 1000").with(["--ttl", ttl]).start();
    leader.stdout.wait_for("up");
    leader.signal(Signal::KILL);
    leader.finish();
    let finished = trial.run(["echo", "took over"]).with(["--ttl", ttl, "--try"]).finish();
    assert_eq!(finished.code(), 0, "{:#?}", finished.stderr);
    assert_eq!(finished.stdout, ["took over"]);
}

/// The host outlives the worker, so it can log the reason.
#[test]
fn worker_that_ignores_term_is_killed_before_the_deadline_of_a_loss() {
    let trial = VVM.trial();
    let worker = "trap '' TERM; echo up; while :; do sleep 0.01; done";
    let mut running = trial.run_script(worker).with(["--ttl", "4s"]).start();
    running.stdout.wait_for("up");
    trial.take_away();
    running.wait();
    assert_eq!(running.finish().code(), 79);
    eventually("no process is left", || trial.processes().0.is_empty());
}

/// The record was deleted, so another process may lead.
#[test]
fn lost_leadership_is_79_or_the_configured_status_after_the_worker_stopped() {
    for (options, code) in [(&[][..], 79), (&["--exit-code-lost", "7"][..], 7)] {
        let trial = VVM.trial();
        let worker = "trap 'echo told; exit 0' TERM; echo up; while :; do sleep 0.01; done";
        let ttl = ["--ttl", harness::SHORT_TTL];
        let mut running = trial.run_script(worker).with(ttl).with(options.iter().copied()).start();
        running.stdout.wait_for("up");
        trial.take_away();
        running.stdout.wait_for("told");
        let finished = running.finish();
        assert_eq!(finished.code(), code, "{:#?}", finished.stderr);
        assert!(finished.says("leadership lost, the command has been stopped"), "{:#?}", finished.stderr);
    }
}

mod timed {
    use super::*;

    /// A storage that does not answer shows no leader.
    #[test]
    fn try_on_an_unreachable_storage_is_75_in_bounded_time() {
        VVM.timed("a try on an unreachable storage", |attempt, trial| {
            let obstruction = trial.obstruct();
            let began = vvm_clock::SystemClock::read();
            let options = ["--try", "--ttl", harness::SHORT_TTL, "--storage", &obstruction.url];
            let finished = trial.run(["echo", "never"]).with(options).finish();
            // 1.4 TTL, and the longest attempt to open.
            attempt.took("the try", Duration::from_secs(15), began)?;
            assert_eq!(finished.code(), 75, "{:#?}", finished.stderr);
            assert_eq!(finished.stdout, Vec::<String>::new());
            obstruction.remove();
            Ok(())
        });
    }
}
