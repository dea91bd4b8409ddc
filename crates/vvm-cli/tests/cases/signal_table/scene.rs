//! [`Scene`]: brings a `vvm run` into a state, sends a signal, and checks the effect.

use super::{
    Effect::{self, Ends, EndsTheCommand, Kills, Nothing, PassedOn, Stops, Waits},
    RELEASE_WAS_LATE, State,
};
use crate::VVM;
use harness::{Finished, Obstruction, Run, Running, Trial, Usurper, eventually, has_ended};
use rustix::process::Signal;
use serde_json::Value;
use std::{mem, thread, time::Duration};
use vvm_containment::signal_named;

const REPORTER: &str = "for s in TERM INT HUP QUIT USR1 USR2; do trap \"echo $s\" $s; done
                        echo up; : > WORKS; while :; do sleep 0.01; done";

/// Longer than the time within which a second signal counts as an echo of the first.
pub(super) const NOT_AN_ECHO: Duration = Duration::from_millis(150);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Record {
    Never,
    Released,
    HeldBy(String),
}

pub(crate) struct Scene {
    state: State,
    trial: Trial,
    running: Running,
    obstacle: Obstacle,
}

#[derive(Default)]
enum Obstacle {
    #[default]
    Nothing,
    Leader(Running),
    Unopened(Obstruction),
    Usurper(Usurper),
}

impl Obstacle {
    fn remove(self) {
        match self {
            Self::Nothing => {}
            Self::Leader(leader) => drop(leader.stop()),
            Self::Unopened(obstruction) => obstruction.remove(),
            Self::Usurper(usurper) => usurper.leave(),
        }
    }

    fn processes(&self) -> usize {
        if matches!(self, Self::Leader(_)) { VVM.level().ours() + 1 } else { 0 }
    }
}

/// Starts a command that prints its signals. A long TTL leaves enough time to stop after a loss.
fn reporter(trial: &Trial, options: &[&str]) -> Running {
    let run = trial.run_script(&REPORTER.replace("WORKS", &works(trial))).with([
        "--ttl",
        "20s",
        "--stop-timeout",
        "1h",
    ]);
    run.with(options.iter().copied()).up()
}

fn works(trial: &Trial) -> String {
    trial.folder().join("works").display().to_string()
}

fn unhealthy(trial: &Trial) -> [String; 6] {
    let check = format!("! test -e {}", works(trial));
    ["--check", &check, "--check-interval", "20ms", "--check-failures", "1"].map(str::to_owned)
}

const PRE_STOP: [&str; 4] = ["--pre-stop", "echo pre-stop runs; exec sleep 1000", "--pre-stop-timeout", "1h"];

fn said(run: Run, line: &str) -> Running {
    let mut running = run.start();
    running.stderr.wait_for(line);
    running
}

fn told_to_stop(mut running: Running) -> Running {
    running.stdout.wait_for("TERM");
    thread::sleep(NOT_AN_ECHO);
    running
}

fn runs_pre_stop(mut running: Running) -> Running {
    running.stderr.wait_for("pre-stop runs");
    thread::sleep(NOT_AN_ECHO);
    running
}

impl Scene {
    pub(crate) fn set(state: State) -> Self {
        let trial = VVM.trial();
        let mut obstacle = Obstacle::default();
        let rejoins = |script: &str| trial.run_script(script).with(["--on-loss", "rejoin"]);
        let stopped = |running: Running| {
            running.signal(Signal::TERM);
            running
        };
        let running = match state {
            State::Opening => {
                let behind = trial.obstruct();
                let run = trial.run(["echo", "leads"]).with(["--storage", &behind.url]);
                obstacle = Obstacle::Unopened(behind);
                said(run, "trying again")
            }
            State::Campaigning => {
                obstacle = Obstacle::Leader(trial.run_forever().with(["--holder", "other"]).up());
                trial.run(["echo", "leads"]).waiting()
            }
            State::Rejoining => {
                // With the usual TTL, so that the loss is the one to the usurper, however late the machine is.
                let mut running = rejoins("echo leads; exec sleep 1000").start();
                running.stdout.wait_for("leads");
                obstacle = Obstacle::Usurper(trial.usurp());
                running.stderr.wait_for("leadership lost");
                running.stderr.wait_for("waiting for leadership");
                running
            }
            State::LettingOthersGoFirst => {
                let run = rejoins(&format!("echo leads; : > {}; exec sleep 1000", works(&trial)));
                let run = run.with(unhealthy(&trial).each_ref().map(String::as_str));
                let mut running = said(run, "unhealthy, the command has been stopped");
                running.stdout.wait_for("leads");
                running
            }
            State::Starting => said(trial.run(["sleep", "1000"]), "leading, epoch"),
            State::Leading => reporter(&trial, &["--stop-timeout", "200ms"]),
            State::PreStopping => runs_pre_stop(stopped(reporter(&trial, &PRE_STOP))),
            State::PreStoppingUnhealthy => {
                let unhealthy = unhealthy(&trial);
                let options = PRE_STOP.into_iter().chain(unhealthy.iter().map(String::as_str));
                runs_pre_stop(reporter(&trial, &options.collect::<Vec<_>>()))
            }
            State::Stopping => told_to_stop(stopped(reporter(&trial, &[]))),
            State::Unhealthy => {
                told_to_stop(reporter(&trial, &unhealthy(&trial).each_ref().map(String::as_str)))
            }
            State::Lost => {
                let running = reporter(&trial, &[]);
                obstacle = Obstacle::Usurper(trial.usurp());
                told_to_stop(running)
            }
            State::BetweenRuns => {
                let long = ["--on-exit", "restart", "--restart-backoff", "1h", "--restart-backoff-max", "1h"];
                said(trial.run_script("echo ran; exit 3").with(long), "restart 1 in 3600s")
            }
        };
        Self { state, trial, running, obstacle }
    }

    /// Sends the signal, and checks that it has this effect. `None` if the machine was too late to tell.
    pub(crate) fn check(self, name: &str, effect: Effect) -> Option<()> {
        self.running.signal(signal_named(name).unwrap());
        self.follow(name, effect)
    }

    /// Stops and continues the guardian, which has no effect, and checks that TERM still has this effect.
    pub(crate) fn check_after_a_stop(self, effect: Effect) -> Option<()> {
        let guardian = self.running.guardian;
        self.running.signal(Signal::STOP);
        eventually("it is stopped", || harness::state(guardian) == Some('T'));
        self.running.signal(Signal::CONT);
        self.check("TERM", effect)
    }

    fn follow(mut self, name: &str, effect: Effect) -> Option<()> {
        let signal = signal_named(name).unwrap();
        match effect {
            Nothing => {
                self.nothing();
                return Some(());
            }
            PassedOn => {
                self.running.stdout.wait_for(name);
                self.running.signal(Signal::TERM);
                self.ask_again(Signal::TERM);
            }
            Waits => {
                thread::sleep(NOT_AN_ECHO);
                assert!(!has_ended(self.running.guardian), "one was enough");
                self.ask_again(signal);
            }
            Stops => drop(self.running.stdout.wait_for(name)),
            Ends | Kills | EndsTheCommand => {}
        }
        let (state, guardian) = (self.state, self.running.guardian);
        eventually("it ends", || has_ended(guardian));
        let (finished, record) = self.ended();
        if finished.says(RELEASE_WAS_LATE) {
            return None;
        }
        match effect {
            Ends => {
                assert_eq!(finished.signal(), signal.as_raw());
                finished.assert_says(&match state {
                    State::BetweenRuns => format!("stopped: by SIG{name}, between two runs of the command"),
                    _ => format!("stopped while waiting for leadership: by SIG{name}"),
                });
            }
            EndsTheCommand if [Signal::TERM, Signal::INT].contains(&signal) => {
                assert_eq!(finished.signal(), signal.as_raw());
            }
            EndsTheCommand => finished.assert_code(128 + signal.as_raw()),
            // Even if it got other signals, and had to be killed.
            _ if state == State::Lost => finished.assert_code(79),
            _ => finished.assert_code(128 + 9),
        }
        if matches!(state, State::PreStopping | State::PreStoppingUnhealthy) && effect != PassedOn {
            assert_eq!(finished.stdout, ["up"], "it was killed before it was told");
        }
        let expected = match state {
            State::Opening => Record::Never,
            State::Campaigning => Record::HeldBy("other".into()),
            State::Rejoining | State::Lost => Record::HeldBy("usurper".into()),
            _ => Record::Released,
        };
        assert_eq!(record, expected);
        Some(())
    }

    /// Repeats a stop request until it has an effect: after a halt of the machine, two may count as one, or as an echo.
    fn ask_again(&self, signal: Signal) {
        eventually("it ends", || {
            thread::sleep(NOT_AN_ECHO);
            let has_ended = has_ended(self.running.guardian);
            if !has_ended {
                self.running.signal(signal);
            }
            has_ended
        });
    }

    /// Checks that nothing has changed: a candidate leads when its obstacle is removed, a leader still holds its slot.
    fn nothing(mut self) {
        mem::take(&mut self.obstacle).remove();
        if self.state == State::BetweenRuns {
            self.trial.run(["true"]).with(["--acquire-timeout", "0"]).finish().assert_code(75);
        } else {
            self.running.stdout.wait_for("leads");
        }
        if !matches!(self.state, State::Opening | State::Campaigning) {
            self.running.signal(Signal::TERM);
        }
        let is_between_runs = self.state == State::BetweenRuns;
        let (finished, record) = self.ended();
        assert_eq!(record, Record::Released);
        assert!(!is_between_runs || finished.stdout == ["ran"], "{:#?}", finished.stdout);
    }

    fn ended(self) -> (Finished, Record) {
        let Self { trial, running, obstacle, .. } = self;
        let finished = running.finish();
        let left = trial.processes();
        assert_eq!(left.0.len(), obstacle.processes(), "{:?}", left.describe());
        let (code, out, _) = trial.status(&["--json"]);
        let record = if code == 66 {
            Record::Never
        } else {
            let found: Vec<Value> = serde_json::from_str(&out).unwrap();
            found[0]["holder"].as_str().map_or(Record::Released, |holder| Record::HeldBy(holder.into()))
        };
        obstacle.remove();
        (finished, record)
    }
}
