//! After the death of `vvm elect`, its demoter runs the on-loss hook. Its success leads to a release.

use super::elect::Elect;
use crate::VVM;
use harness::eventually;
use rustix::process::Signal;
use std::time::Duration;
use vvm_clock::SystemClock;

const ON_LEAD: &str = "echo lead $VVM_LEADER_EPOCH";
const ON_LOSS: &str = "echo loss $VVM_LEADER_EPOCH";

/// The TTL. A standby that leads sooner must have got a released slot.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn standby_leads_at_once_after_a_killed_leader_whose_on_loss_hook_has_run() {
    let trial = VVM.trial();
    let start = |on_lead| Elect::start(&trial, on_lead, ON_LOSS, &["--ttl", "60s"]);
    // Its on-lead hook still runs.
    let mut first = start("echo lead $VVM_LEADER_EPOCH; sleep 0.3; echo midway; sleep 1000");
    let led = first.stdout.wait_for("lead").replace("lead", "loss");
    // By then the demoter knows its process.
    first.stdout.wait_for("midway");
    let mut second = start(ON_LEAD);
    second.stderr.wait_for("waiting for leadership");
    let killed_at = SystemClock::read();
    first.signal(Signal::KILL);
    first.child.wait().unwrap();
    assert_eq!(first.stdout.rest().last(), Some(&led));
    let said = first.stderr.rest();
    assert!(said.iter().any(|line| line.contains("released by the demoter")), "{said:#?}");
    second.stdout.wait_for("lead");
    assert!(SystemClock::read().since(killed_at) < LONG / 2, "it waited for the TTL");
    assert_eq!(trial.processes().with("sleep 1000"), []);
    second.signal(Signal::TERM);
    assert_eq!(second.finish().0, 0);
}

#[test]
fn record_expires_after_a_killed_leader_whose_on_loss_hook_fails() {
    let trial = VVM.trial();
    let mut leader = Elect::start(&trial, ON_LEAD, "exit 7", &["--ttl", "60s"]);
    leader.stdout.wait_for("lead");
    let held = trial.slots();
    leader.signal(Signal::KILL);
    leader.child.wait().unwrap();
    let said = leader.stderr.rest();
    let refusal = "expires by its TTL: the on-loss hook ended with exit status: 7";
    assert!(said.iter().any(|line| line.contains(refusal)), "{said:#?}");
    assert_eq!(trial.slots()[0]["holder"], held[0]["holder"]);
}

#[test]
fn candidate_that_is_killed_leaves_its_demoter_nothing_to_do() {
    let trial = VVM.trial();
    let mut leader = Elect::start(&trial, ON_LEAD, ON_LOSS, &[]);
    leader.stdout.wait_for("lead");
    let mut standby = Elect::start(&trial, ON_LEAD, ON_LOSS, &[]);
    standby.stderr.wait_for("waiting for leadership");
    standby.signal(Signal::KILL);
    standby.child.wait().unwrap();
    assert_eq!(standby.stdout.rest(), Vec::<String>::new());
    let said = standby.stderr.rest();
    assert!(said.last().unwrap().contains("waiting for leadership"), "{said:#?}");
    leader.signal(Signal::TERM);
    assert_eq!(leader.finish().0, 0);
    eventually("no process is left", || trial.processes().0.is_empty());
}
