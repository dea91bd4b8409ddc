//! The kernel runs out of memory in a control group, and ends the host, the command, or all at once.

use super::released::{LONG, alone, ends};
use crate::VVM;
use harness::{MemoryGroup, Run, Running, Trial, eventually};
use rustix::process::Signal;
use serde_json::Value;
use std::time::Duration;
use vvm_clock::SystemClock;

/// Makes the group of a trial. `None` if this machine does not allow it.
fn group(trial: &Trial) -> Option<MemoryGroup> {
    let made = MemoryGroup::of(trial.mark());
    made.inspect_err(|cause| println!("not tested: no control group that limits memory: {cause}")).ok()
}

fn candidate(trial: &Trial, ttl: &str) -> Run {
    trial.run_script(&alone(trial)).with(["--ttl", ttl, "--stop-timeout", "300ms"])
}

/// Starts a leader and a standby.
fn pair(trial: &Trial) -> (Running, Running) {
    let mut leader = candidate(trial, "60s").start();
    leader.stdout.wait_for("alone");
    eventually("the start is noted", || ends(trial) == [Value::Null]);
    let mut standby = candidate(trial, "60s").start();
    standby.stderr.wait_for("waiting for leadership");
    (leader, standby)
}

#[test]
fn host_that_the_kernel_ends_for_memory_is_released_while_its_command_lives() {
    let trial = VVM.trial();
    let Some(group) = group(&trial) else { return };
    let (leader, mut standby) = pair(&trial);
    let began_at = SystemClock::read();
    group.exhaust(leader.host());
    assert_eq!(standby.stdout.wait_for("alone"), "alone");
    assert!(SystemClock::read().since(began_at) < LONG / 2, "it waited for the TTL");
    let finished = leader.finish();
    assert_eq!(finished.code(), 128 + 9, "{:#?}", finished.stderr);
    let reason = "released by the guardian after the host was killed (SIGKILL)";
    assert!(finished.says(reason), "{:#?}", finished.stderr);
    assert_eq!(ends(&trial)[0], reason);
    standby.signal(Signal::TERM);
    standby.finish();
}

#[test]
fn command_that_the_kernel_ends_for_memory_is_released_by_its_host() {
    let trial = VVM.trial();
    let Some(group) = group(&trial) else { return };
    let (leader, mut standby) = pair(&trial);
    let began_at = SystemClock::read();
    group.exhaust(trial.process("sleep 1001"));
    assert_eq!(standby.stdout.wait_for("alone"), "alone");
    assert!(SystemClock::read().since(began_at) < LONG / 2, "it waited for the TTL");
    let finished = leader.finish();
    assert_eq!(finished.code(), 128 + 9, "{:#?}", finished.stderr);
    assert!(finished.says("the command was ended by SIGKILL"), "{:#?}", finished.stderr);
    assert!(!finished.says("released by the guardian"), "{:#?}", finished.stderr);
    standby.signal(Signal::TERM);
    standby.finish();
}

/// No process is left that could release the record, so the next leader waits until the lease ends.
#[test]
fn group_that_the_kernel_ends_as_a_whole_for_memory_waits_for_the_ttl() {
    const TTL: Duration = Duration::from_secs(3);
    let trial = VVM.trial();
    let Some(group) = group(&trial) else { return };
    let enter = group.enter();
    let mut leader = candidate(&trial, "3s").through(enter.iter().map(String::as_str)).start();
    leader.stdout.wait_for("alone");
    let mut standby = candidate(&trial, "3s").start();
    standby.stderr.wait_for("waiting for leadership");
    if group.ends_together() {
        group.exhaust(leader.host());
    } else {
        println!("memory.oom.group is not tested: it needs control groups of version 2; killed instead");
        group.kill();
    }
    let finished = leader.finish();
    assert_eq!(finished.signal(), 9, "{:#?}", finished.stderr);
    let (_, shown, error) = trial.status(&["--name", &trial.name(), "--json"]);
    let asked_at = SystemClock::read();
    let slots: Value = serde_json::from_str(&shown).unwrap();
    let age = slots[0]["age_ms"].as_u64().unwrap_or_else(|| panic!("not held: {shown} {error}"));
    assert_eq!(standby.stdout.wait_for("alone"), "alone");
    let age = Duration::from_millis(age) + SystemClock::read().since(asked_at);
    assert!(age >= TTL, "{age:?}");
    standby.signal(Signal::TERM);
    standby.finish();
}
