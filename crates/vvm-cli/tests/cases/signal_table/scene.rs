//! [`Scene`]: brings a `vvm run` into a state, sends a signal, and checks the effect.

use super::{
    Effect::{self, Ends, EndsTheCommand, Kills, Nothing, PassedOn, Stops, Waits},
    State,
};
use crate::VVM;
use harness::{Finished, Obstruction, Run, Running, Trial, Usurper, eventually};
use rustix::process::Signal;
use serde_json::Value;
use std::{thread, time::Duration};

/// Prints its signals, and ends on none of them.
const REPORTER: &str = "for s in TERM INT HUP QUIT USR1 USR2; do trap \"echo $s\" $s; done
                        echo up; while :; do sleep 0.01; done";

/// Longer than the time within which a second signal counts as an echo of the first.
pub(super) const NOT_AN_ECHO: Duration = Duration::from_millis(150);

/// The record afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Record {
    /// There was never a record.
    Never,
    /// Released.
    HandedBack,
    /// Another leader holds it, undisturbed.
    Of(&'static str),
}

/// A `vvm run` in a state.
pub(crate) struct Scene {
    state: State,
    pub(crate) trial: Trial,
    pub(crate) running: Running,
    pub(crate) obstacle: Obstacle,
}

/// What keeps a candidate from leading.
#[derive(Default)]
pub(crate) enum Obstacle {
    #[default]
    Nothing,
    Leader(Running),
    Unopened(Obstruction),
    Usurper(Usurper),
    Pause,
}

impl Obstacle {
    pub(crate) fn remove(self, trial: &Trial) {
        match self {
            Self::Nothing => {}
            Self::Leader(leader) => drop(leader.stop()),
            Self::Unopened(obstruction) => obstruction.remove(),
            Self::Usurper(usurper) => usurper.leave(),
            Self::Pause => drop(trial.must("resume", &[])),
        }
    }

    /// Returns how many processes the leader has: those of `vvm`, and the command.
    fn processes(&self) -> usize {
        if matches!(self, Self::Leader(_)) { VVM.level().ours() + 1 } else { 0 }
    }
}

fn pause(trial: &Trial) {
    trial.must("pause", &["--wait", "no"]);
}

/// Starts a command that prints its signals. A long TTL leaves enough time to stop after a loss.
fn reporter(trial: &Trial, options: &[&str]) -> Running {
    let run = trial.run_script(REPORTER).with(["--ttl", "20s", "--stop-timeout", "1h"]);
    run.with(options.iter().copied()).up()
}

const UNHEALTHY: [&str; 6] = ["--check", "false", "--check-interval", "20ms", "--check-failures", "1"];
const PRE_STOP: [&str; 4] = ["--pre-stop", "echo pre-stop runs; exec sleep 1000", "--pre-stop-timeout", "1h"];

fn told_to_stop(mut running: Running, by: &str) -> Running {
    running.stdout.wait_for(by);
    thread::sleep(NOT_AN_ECHO);
    running
}

impl Scene {
    pub(crate) fn set(state: State) -> Self {
        let trial = VVM.trial();
        let mut obstacle = Obstacle::default();
        let candidate = |run: Run, at: &str| {
            let mut running = run.start();
            running.stderr.wait_for(at);
            running
        };
        let running = match state {
            State::Opening => {
                let behind = trial.obstruct();
                let run = trial.run(["echo", "leads"]).with(["--storage", &behind.url]);
                obstacle = Obstacle::Unopened(behind);
                candidate(run, "trying again")
            }
            State::Campaigning => {
                let other = trial.run_forever().with(["--holder", "other"]).up();
                obstacle = Obstacle::Leader(other);
                candidate(trial.run(["echo", "leads"]), "waiting for leadership")
            }
            State::Paused => {
                assert_eq!(trial.run(["true"]).finish().code(), 0);
                pause(&trial);
                obstacle = Obstacle::Pause;
                candidate(trial.run(["echo", "leads"]), "waiting until it is resumed")
            }
            State::Rejoining => {
                // With the usual TTL, so that the loss is the one to the usurper, however late the machine is.
                let worker = "echo leads; exec sleep 1000";
                let options = ["--on-loss", "rejoin"];
                let mut running = trial.run_script(worker).with(options).start();
                running.stdout.wait_for("leads");
                obstacle = Obstacle::Usurper(trial.usurp());
                running.stderr.wait_for("leadership lost");
                running.stderr.wait_for("waiting for leadership");
                running
            }
            State::LettingOthersGoFirst => {
                let run = trial.run_script("echo leads; exec sleep 1000").with(UNHEALTHY);
                let mut running =
                    candidate(run.with(["--on-loss", "rejoin"]), "unhealthy, the command has been stopped");
                running.stdout.wait_for("leads");
                running
            }
            State::Starting => candidate(trial.run(["sleep", "1000"]), "leading, epoch"),
            State::Leading => reporter(&trial, &["--stop-timeout", "200ms"]),
            State::PreStopping => {
                let mut running = reporter(&trial, &PRE_STOP);
                running.signal(Signal::TERM);
                running.stderr.wait_for("pre-stop runs");
                thread::sleep(NOT_AN_ECHO);
                running
            }
            State::PreStoppingUnhealthy => {
                let mut running = reporter(&trial, &[&PRE_STOP[..], &UNHEALTHY].concat());
                running.stderr.wait_for("pre-stop runs");
                running
            }
            State::Stopping => {
                let running = reporter(&trial, &[]);
                running.signal(Signal::TERM);
                told_to_stop(running, "TERM")
            }
            State::StoppingByInt => {
                let running = reporter(&trial, &[]);
                running.signal(Signal::INT);
                told_to_stop(running, "INT")
            }
            State::Unhealthy => told_to_stop(reporter(&trial, &UNHEALTHY), "TERM"),
            State::Pausing => {
                let running = reporter(&trial, &[]);
                pause(&trial);
                obstacle = Obstacle::Pause;
                told_to_stop(running, "TERM")
            }
            State::Lost => {
                let running = reporter(&trial, &[]);
                obstacle = Obstacle::Usurper(trial.usurp());
                told_to_stop(running, "TERM")
            }
            State::BetweenRuns => {
                let long = ["--on-exit", "restart", "--restart-backoff", "1h", "--restart-backoff-max", "1h"];
                candidate(trial.run_script("echo ran; exit 3").with(long), "restart 1 in 3600s")
            }
        };
        Self { state, trial, running, obstacle }
    }

    /// Sends the signal, and checks that it has this effect.
    pub(crate) fn check(self, signal: Signal, name: &str, effect: Effect) {
        self.running.signal(signal);
        self.follow(signal, name, effect);
    }

    /// Stops and continues the guardian, which has no effect, and checks that TERM still has this effect.
    pub(crate) fn check_after_a_stop(self, effect: Effect) {
        let guardian = self.running.guardian;
        self.running.signal(Signal::STOP);
        eventually("it is stopped", || harness::state(guardian) == Some('T'));
        self.running.signal(Signal::CONT);
        self.running.signal(Signal::TERM);
        self.follow(Signal::TERM, "TERM", effect);
    }

    fn follow(mut self, signal: Signal, name: &str, effect: Effect) {
        match effect {
            Nothing => return self.nothing(),
            PassedOn => {
                self.running.stdout.wait_for(name);
                self.kill();
            }
            Waits => {
                thread::sleep(NOT_AN_ECHO);
                assert_ne!(harness::state(self.running.guardian), Some('Z'), "one was enough");
                self.ask_again(signal);
            }
            Stops => {
                self.running.stdout.wait_for(name);
            }
            Ends | Kills | EndsTheCommand => {}
        }
        let (state, guardian) = (self.state, self.running.guardian);
        eventually("it ends", || harness::state(guardian) == Some('Z'));
        let (finished, record) = self.ended();
        match effect {
            Ends => {
                assert_eq!(finished.signal(), signal.as_raw());
                let why = match state {
                    State::BetweenRuns => format!("stopped: by SIG{name}, between two runs of the command"),
                    _ => format!("stopped while waiting for leadership: by SIG{name}"),
                };
                assert!(finished.says(&why), "{why}: {:#?}", finished.stderr);
            }
            // It was killed before it was told.
            Waits | Kills if matches!(state, State::PreStopping | State::PreStoppingUnhealthy) => {
                assert_eq!((finished.code(), &finished.stdout[..]), (128 + 9, &["up".to_owned()][..]));
            }
            EndsTheCommand => match signal {
                Signal::TERM | Signal::INT => assert_eq!(finished.signal(), signal.as_raw()),
                _ => assert_eq!(finished.code(), 128 + signal.as_raw()),
            },
            // Even if it got other signals, and had to be killed.
            _ if state == State::Lost => assert_eq!(finished.code(), 79),
            _ => assert_eq!(finished.code(), 128 + 9),
        }
        let expected = match state {
            State::Opening => Record::Never,
            State::Campaigning => Record::Of("other"),
            State::Rejoining | State::Lost => Record::Of("usurper"),
            _ => Record::HandedBack,
        };
        assert_eq!(record, expected);
    }

    /// Kills the command by a stop request, or by two.
    fn kill(&self) {
        self.running.signal(Signal::TERM);
        self.ask_again(Signal::TERM);
    }

    /// Repeats a stop request until it has an effect. After a halt of the machine, two requests may arrive as
    /// one, or as one and its echo.
    fn ask_again(&self, signal: Signal) {
        eventually("it ends", || {
            thread::sleep(NOT_AN_ECHO);
            let has_ended = harness::state(self.running.guardian) == Some('Z');
            if !has_ended {
                self.running.signal(signal);
            }
            has_ended
        });
    }

    /// Checks that nothing has changed: a candidate leads when its obstacle is removed, and a leader still
    /// holds its slot.
    fn nothing(mut self) {
        match self.state {
            State::BetweenRuns => {
                assert_eq!(self.trial.run(["true"]).with(["--acquire-timeout", "0"]).finish().code(), 75);
                self.running.signal(Signal::TERM);
                let (finished, record) = self.ended();
                assert_eq!((finished.stdout, record), (vec!["ran".to_owned()], Record::HandedBack));
            }
            State::Rejoining | State::LettingOthersGoFirst => {
                std::mem::take(&mut self.obstacle).remove(&self.trial);
                self.running.stdout.wait_for("leads");
                self.running.signal(Signal::TERM);
                assert_eq!(self.ended().1, Record::HandedBack);
            }
            _ => {
                std::mem::take(&mut self.obstacle).remove(&self.trial);
                let (finished, record) = self.ended();
                assert_eq!((finished.code(), finished.stdout), (0, vec!["leads".to_owned()]));
                assert_eq!(record, Record::HandedBack);
            }
        }
    }

    /// Checks that no process is left and that the record is as expected.
    fn ended(self) -> (Finished, Record) {
        let Self { trial, running, obstacle, .. } = self;
        let finished = running.finish();
        let left = trial.processes();
        assert_eq!(left.0.len(), obstacle.processes(), "{:?}", left.describe());
        let (code, out, error) = trial.status(&["--json"]);
        let record = if code == 66 {
            Record::Never
        } else {
            let found: Vec<Value> = serde_json::from_str(&out).unwrap();
            match found[0]["holder"].as_str() {
                Some("other") => Record::Of("other"),
                Some("usurper") => Record::Of("usurper"),
                Some(holder) => panic!("held by {holder}: {error}"),
                None => Record::HandedBack,
            }
        };
        obstacle.remove(&trial);
        (finished, record)
    }
}
