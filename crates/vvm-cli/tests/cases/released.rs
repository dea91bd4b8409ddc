//! The guardian releases the record of a host that died, once it has proof that nothing of it runs.

use crate::VVM;
use harness::{Trial, eventually};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::time::Duration;
use vvm_clock::SystemClock;

/// The TTL. A standby that leads sooner must have got a released slot.
pub(super) const LONG: Duration = Duration::from_secs(60);

/// Prints whether it alone holds a lock. A process that it leaves behind holds the lock, too.
pub(super) fn alone(trial: &Trial) -> String {
    let lock = trial.folder().join("lock");
    format!(
        "exec 9>>'{}'; flock -n 9 && echo alone || echo not alone; (trap '' TERM; setsid sleep 1000 &); \
         exec sleep 1001",
        lock.display()
    )
}

pub(super) fn ends(trial: &Trial) -> Vec<Value> {
    let (code, out, error) = trial.ask("history", &["--name", &trial.name(), "--json"]);
    assert_eq!(code, 0, "{error}");
    let history: Vec<Value> = serde_json::from_str(&out).unwrap();
    history.into_iter().map(|past| past["end"].clone()).collect()
}

#[test]
fn standby_leads_at_once_after_a_killed_host_and_finds_nothing_of_it() {
    let trial = VVM.trial();
    let run = || trial.run_script(&alone(&trial)).with(["--ttl", "60s"]);
    let mut leader = run().start();
    leader.stdout.wait_for("alone");
    eventually("the start is noted", || ends(&trial) == [Value::Null]);
    let mut standby = run().start();
    standby.stderr.wait_for("waiting for leadership");
    let killed_at = SystemClock::read();
    kill_process(leader.host(), Signal::KILL).unwrap();
    assert_eq!(standby.stdout.wait_for("alone"), "alone");
    assert!(SystemClock::read().since(killed_at) < LONG / 2, "it waited for the TTL");
    let finished = leader.finish();
    assert_eq!(finished.code(), 128 + 9);
    assert!(finished.says("released by the guardian"), "{:#?}", finished.stderr);
    assert_eq!(ends(&trial)[0], "released by the guardian after the host was killed (SIGKILL)");
    standby.signal(Signal::TERM);
    standby.finish();
}

/// The deadman or the guardian kills it, and the lease lasts for another fifth of the TTL.
#[test]
fn host_that_is_stopped_beyond_its_deadline_is_released() {
    let trial = VVM.trial();
    let mut leader = trial.run_script("echo up; exec sleep 1000").with(["--ttl", harness::SHORT_TTL]).start();
    leader.stdout.wait_for("up");
    eventually("the start is noted", || ends(&trial) == [Value::Null]);
    kill_process(leader.host(), Signal::STOP).unwrap();
    let finished = leader.finish();
    assert!(finished.says("released by the guardian"), "{:#?}", finished.stderr);
    assert!(
        ends(&trial)[0]
            .as_str()
            .unwrap()
            .starts_with("released by the guardian after the host was killed at its deadline")
    );
}

#[test]
fn record_expires_if_the_storage_does_not_answer() {
    let trial = VVM.trial();
    let mut leader = trial.run_script("echo up; exec sleep 1000").with(["--ttl", harness::SHORT_TTL]).start();
    leader.stdout.wait_for("up");
    let outage = trial.outage();
    kill_process(leader.host(), Signal::KILL).unwrap();
    let finished = leader.finish();
    drop(outage);
    assert_eq!(finished.code(), 128 + 9);
    assert!(finished.says("the record is not released and expires by its TTL"), "{:#?}", finished.stderr);
    assert_eq!(trial.run(["echo", "next"]).finish().stdout, ["next"]);
}

/// Its claim is applied, and it dies before it has told its guardian that it leads.
#[test]
fn record_of_a_host_that_died_right_after_its_claim_is_released() {
    let trial = VVM.trial();
    let run = || trial.run_script(&alone(&trial)).with(["--ttl", "60s"]);
    let mut leader = run().start();
    leader.stdout.wait_for("alone");
    let mut claimant = run().start();
    claimant.stderr.wait_for("waiting for leadership");
    let host = claimant.host();
    // A host starts no command before its guardian has confirmed the kill deadline.
    claimant.signal(Signal::STOP);
    let led = trial.slots()[0]["holder"].clone();
    leader.signal(Signal::TERM);
    leader.finish();
    eventually("the claim is applied", || {
        let holder = &trial.slots()[0]["holder"];
        !holder.is_null() && *holder != led
    });
    kill_process(host, Signal::KILL).unwrap();
    claimant.signal(Signal::CONT);
    let finished = claimant.finish();
    assert_eq!(finished.stdout, Vec::<String>::new());
    assert!(finished.says("released by the guardian after the host was killed (SIGKILL)"), "{finished:#?}");
    let waits_since = SystemClock::read();
    assert_eq!(trial.run(["echo", "next"]).with(["--ttl", "60s"]).finish().stdout, ["next"]);
    assert!(SystemClock::read().since(waits_since) < LONG / 2, "it waited for the TTL");
}

/// A release by epoch and incarnation can't touch the record of the next leader.
#[test]
fn leader_that_followed_meanwhile_is_left_alone() {
    let trial = VVM.trial();
    let mut leader = trial.run_script("echo up; exec sleep 1000").with(["--ttl", "60s"]).start();
    leader.stdout.wait_for("up");
    let next = trial.usurp();
    let held = trial.slots();
    kill_process(leader.host(), Signal::KILL).unwrap();
    let finished = leader.finish();
    assert!(!finished.says("released by the guardian"), "{:#?}", finished.stderr);
    assert_eq!(trial.slots()[0]["epoch"], held[0]["epoch"]);
    assert_eq!(trial.slots()[0]["holder"], held[0]["holder"]);
    next.leave();
}

#[test]
fn release_is_not_run_by_hand() {
    let trial = VVM.trial();
    let (code, _, error) = trial.ask("stage-release", &["--name", &trial.name(), "--", "true"]);
    assert_eq!(code, 64, "{error}");
    assert!(error.contains("internal"), "{error}");
}
