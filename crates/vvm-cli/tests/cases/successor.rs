//! A successor, on a server: the next command begins seconds after the loss of the leader's machine, and never beside it.

use crate::VVM;
use harness::{Attempt, Late, Run, Running, Trial, eventually};
use rustix::process::{Signal, kill_process};
use std::{fs, path::PathBuf, time::Duration};
use vvm_clock::SystemClock;

/// The default of `--support`, which each server takes. The TTL is the default of 20 s.
const PERIOD: Duration = Duration::from_secs(5);

/// Writes when it works, in nanoseconds, until it is killed.
fn candidate(trial: &Trial, holder: &str) -> Run {
    let work = format!(
        "echo works; while :; do date +%s%N >> {}; sleep 0.01; done",
        stamps(trial, holder).display()
    );
    trial.run_script(&work).with(["--holder", holder, "--successor", "127.0.0.1:0"])
}

fn stamps(trial: &Trial, holder: &str) -> PathBuf {
    trial.folder().join(holder)
}

/// A leader that has named a standby, and that standby.
fn pair(trial: &Trial) -> (Running, Running) {
    let mut leader = candidate(trial, "a").start();
    leader.stdout.wait_for("works");
    let standby = candidate(trial, "b").waiting();
    leader.stderr.wait_for("successor named");
    (leader, standby)
}

fn b_has_written(trial: &Trial) {
    eventually("a time of b", || fs::metadata(stamps(trial, "b")).is_ok_and(|file| file.len() > 0));
}

fn assert_no_overlap(trial: &Trial) {
    let [last, first] = ["a", "b"].map(|holder| {
        let text = fs::read_to_string(stamps(trial, holder)).unwrap();
        let mut whole = text.lines().filter_map(|line| line.parse::<u128>().ok());
        let first = whole.next().unwrap();
        (first, whole.next_back().unwrap_or(first))
    });
    assert!(last.1 < first.0, "a worked until {}, and b from {}", last.1, first.0);
}

#[test]
fn leader_stays_when_its_successor_stops_or_dies_and_names_the_next_one() {
    if !Trial::is_on_a_server() {
        return println!("not tested: a successor needs a storage on a server");
    }
    let trial = VVM.trial();
    let (mut leader, standby) = pair(&trial);
    let has_successor = || trial.slots()[0]["successor"].as_str().is_some();
    eventually("the status shows it", has_successor);
    let (_, shown, _) = trial.status(&[]);
    assert!(shown.contains("slot 1 has a successor: 127.0.0.1:"), "{shown}");
    // It may not have heard that it is named.
    standby.stop();
    leader.stderr.wait_for("withdrawn: ");
    eventually("the status shows none", || !has_successor());
    let next = candidate(&trial, "b").waiting();
    leader.stderr.wait_for("successor named");
    next.crash();
    next.finish();
    leader.stderr.wait_for("withdrawn: it does not answer");
    // As it withdraws its word, it renews; only then it names another one.
    let _third = candidate(&trial, "b").waiting();
    leader.stderr.wait_for("successor named");
    let ended = leader.stop();
    assert!(!ended.says("lost"), "{:#?}", ended.stderr);
}

#[test]
fn doctor_tries_the_way_to_the_leader() {
    if !Trial::is_on_a_server() {
        return println!("not tested: a successor needs a storage on a server");
    }
    let trial = VVM.trial();
    let mut leader = candidate(&trial, "a").start();
    leader.stdout.wait_for("works");
    let says = |word: &str| trial.about("doctor", &["--successor", "127.0.0.1:0"]).1.contains(word);
    eventually("the leader answers", || says("the leader at 127.0.0.1:"));
    assert!(says("ide enough: a slow write"));
    let ended = leader.stop();
    assert!(!ended.says("successor named"), "{:#?}", ended.stderr);
}

#[test]
fn leader_with_a_killed_guardian_releases_and_withdraws_nothing() {
    if !Trial::is_on_a_server() {
        return println!("not tested: a successor needs a storage on a server");
    }
    let trial = VVM.trial();
    let (leader, mut standby) = pair(&trial);
    leader.signal(Signal::KILL);
    standby.stdout.wait_for("works");
    let ended = leader.finish();
    ended.assert_says("the guardian died");
    assert!(!ended.says("withdrawn"), "{:#?}", ended.stderr);
    b_has_written(&trial);
    standby.stop();
    assert_no_overlap(&trial);
}

mod timed {
    use super::*;

    fn takes_over(name: &str, bound: Duration, end: impl Fn(&Running)) {
        if !Trial::is_on_a_server() {
            return println!("not tested: a successor needs a storage on a server");
        }
        VVM.timed(name, |attempt: &Attempt, trial: &Trial| -> Result<(), Late> {
            let (leader, mut standby) = pair(trial);
            let began_at = SystemClock::read();
            end(&leader);
            standby.stdout.wait_for("works");
            attempt.took("the take-over", bound, began_at)?;
            standby.stderr.wait_for("taken over as the successor");
            eventually("the history", || {
                trial.must("history", &[]).contains("taken over by the successor b, 5.")
            });
            b_has_written(trial);
            // A stopped guardian has no timer of its own.
            leader.signal(Signal::KILL);
            leader.finish();
            standby.stop();
            assert_no_overlap(trial);
            Ok(())
        });
    }

    /// S waits for P after its last acknowledgement, reads and claims within P/10 each, and starts the command.
    #[test]
    fn loss_of_a_machine_costs_little_more_than_the_support_period() {
        takes_over("the loss of a machine", PERIOD + PERIOD / 5 + Duration::from_millis(500), Running::crash);
    }

    /// Guardian and host do nothing any more. The kernel and the keeper end the old command by 0.8 P (N1, N2). Shows I1.
    #[test]
    fn stopped_guardian_and_host_leave_no_command_beside_the_successor() {
        let stop = |leader: &Running| {
            let host = leader.host();
            kill_process(host, Signal::STOP).unwrap();
            leader.signal(Signal::STOP);
        };
        takes_over("a machine that stands still", PERIOD + PERIOD / 5 + Duration::from_millis(500), stop);
    }
}
