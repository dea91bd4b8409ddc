//! What each signal does in each state: the table of docs/vvm-run.md, row by row.
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

mod harness;

use harness::{Obstruction, Running, Trial, eventually};
use rustix::process::Signal;
use std::{thread, time::Duration};

const SIGNALS: [(Signal, &str); 6] = [
    (Signal::TERM, "TERM"),
    (Signal::INT, "INT"),
    (Signal::HUP, "HUP"),
    (Signal::QUIT, "QUIT"),
    (Signal::USR1, "USR1"),
    (Signal::USR2, "USR2"),
];

#[derive(Clone, Copy, Debug)]
enum State {
    /// The storage can't be opened yet.
    Opening,
    /// Somebody else leads.
    Campaigning,
    /// Leading, and the command may or may not have been executed yet.
    Starting,
    /// The command works.
    Leading,
    /// It was told to stop, by TERM, and goes on for a while.
    Stopping,
    /// The leadership is lost, and the command goes on for a while.
    Lost,
}

#[derive(Clone, Copy, Debug)]
enum Effect {
    /// `vvm` ends of it, without ever having run the command.
    Ends,
    /// None: the candidate leads when its time comes.
    Nothing,
    /// The command gets it, and nothing else happens.
    PassedOn,
    /// The command gets it, and has the stop timeout.
    Stops,
    /// The command is killed at once.
    Kills,
    /// The command, which does not care for signals, dies of it.
    EndsTheCommand,
}

use Effect::{Ends, EndsTheCommand, Kills, Nothing, PassedOn, Stops};

/// TERM, INT, HUP, QUIT, USR1, USR2.
const TABLE: [(State, [Effect; 6]); 6] = [
    (State::Opening, [Ends, Ends, Ends, Ends, Nothing, Nothing]),
    (State::Campaigning, [Ends, Ends, Ends, Ends, Nothing, Nothing]),
    (State::Starting, [EndsTheCommand; 6]),
    (State::Leading, [Stops, Stops, PassedOn, PassedOn, PassedOn, PassedOn]),
    (State::Stopping, [Kills, Kills, PassedOn, PassedOn, PassedOn, PassedOn]),
    (State::Lost, [PassedOn; 6]),
];

/// Says which signals it gets, and ends on none of them.
const REPORTER: &str = "for s in TERM INT HUP QUIT USR1 USR2; do trap \"echo $s\" $s; done
                        echo up; while :; do sleep 0.01; done";

/// More than separates one request from an echo of it.
const NOT_AN_ECHO: Duration = Duration::from_millis(150);

/// A `vvm run` in a state.
struct Scene {
    trial: Trial,
    running: Running,
    obstacle: Obstacle,
}

/// What keeps a candidate from leading.
#[derive(Default)]
struct Obstacle {
    leader: Option<Running>,
    obstruction: Option<Obstruction>,
}

impl Obstacle {
    fn remove(self) {
        if let Some(obstruction) = self.obstruction {
            obstruction.remove();
        }
        if let Some(leader) = self.leader {
            leader.signal(Signal::TERM);
            leader.finish();
        }
    }
}

impl Scene {
    fn set(state: State) -> Self {
        let trial = Trial::new();
        let mut obstacle = Obstacle::default();
        let running = match state {
            State::Opening => {
                let behind = trial.obstruct();
                let mut running = trial.run(["echo", "leads"]).with(["--storage", &behind.url]).start();
                obstacle.obstruction = Some(behind);
                running.stderr.wait_for("trying again");
                running
            }
            State::Campaigning => {
                let mut other = trial.run_script("echo up; exec sleep 1000").start();
                other.stdout.wait_for("up");
                obstacle.leader = Some(other);
                let mut running = trial.run(["echo", "leads"]).start();
                running.stderr.wait_for("waiting for leadership");
                running
            }
            State::Starting => {
                let mut running = trial.run(["sleep", "1000"]).start();
                running.stderr.wait_for("leading, epoch");
                running
            }
            State::Leading | State::Stopping | State::Lost => {
                // What is left to stop in after a loss is a part of the TTL.
                let stop = if matches!(state, State::Leading) { "200ms" } else { "1h" };
                let options = ["--ttl", "20s", "--stop-timeout", stop];
                let mut running = trial.run_script(REPORTER).with(options).start();
                running.stdout.wait_for("up");
                match state {
                    State::Stopping => {
                        running.signal(Signal::TERM);
                        running.stdout.wait_for("TERM");
                        thread::sleep(NOT_AN_ECHO);
                    }
                    State::Lost => {
                        trial.take_away();
                        running.stdout.wait_for("TERM");
                    }
                    _ => {}
                }
                running
            }
        };
        Self { trial, running, obstacle }
    }

    fn check(mut self, signal: Signal, name: &str, effect: Effect) {
        self.running.signal(signal);
        match effect {
            Ends => {
                eventually("it ends", || harness::state(self.running.guardian) == Some('Z'));
                let finished = self.running.finish();
                assert_eq!(finished.signal(), signal.as_raw());
                assert!(finished.says(&format!("stopped while waiting for leadership: by SIG{name}")));
                assert_eq!(finished.stdout, Vec::<String>::new());
                self.obstacle.remove();
            }
            Nothing => {
                self.obstacle.remove();
                let finished = self.running.finish();
                assert_eq!((finished.code(), finished.stdout), (0, vec!["leads".to_owned()]));
            }
            PassedOn => {
                self.running.stdout.wait_for(name);
                self.running.signal(Signal::KILL);
                self.running.finish();
            }
            Stops => {
                self.running.stdout.wait_for(name);
                assert_eq!(self.running.finish().code(), 128 + 9);
            }
            Kills => assert_eq!(self.running.finish().code(), 128 + 9),
            EndsTheCommand => {
                let finished = self.running.finish();
                match signal {
                    Signal::TERM | Signal::INT => assert_eq!(finished.signal(), signal.as_raw()),
                    _ => assert_eq!(finished.code(), 128 + signal.as_raw()),
                }
            }
        }
        drop(self.trial);
    }
}

#[test]
fn each_signal_does_in_each_state_what_the_documentation_says() {
    for (state, effects) in TABLE {
        // All six at once: some states take seconds to get into.
        let rows: Vec<_> = SIGNALS
            .into_iter()
            .zip(effects)
            .map(|((signal, name), effect)| {
                let row = thread::spawn(move || Scene::set(state).check(signal, name, effect));
                (format!("{state:?}, {name}: {effect:?}"), row)
            })
            .collect();
        for (what, row) in rows {
            assert!(row.join().is_ok(), "{what}");
        }
    }
}

/// As under `nohup`, also without a worker to keep it from.
#[test]
fn a_candidate_that_was_started_ignoring_hangups_lives_through_one() {
    let scene = Scene::set(State::Campaigning);
    let ignoring = ["sh", "-c", "trap '' HUP QUIT; exec \"$@\"", "sh"];
    let mut candidate = scene.trial.run(["echo", "leads"]).through(ignoring).start();
    candidate.stderr.wait_for("waiting for leadership");
    scene.running.signal(Signal::TERM);
    scene.running.wait();
    candidate.signal(Signal::HUP);
    candidate.signal(Signal::QUIT);
    scene.obstacle.remove();
    let finished = candidate.finish();
    assert_eq!((finished.code(), finished.stdout), (0, vec!["leads".to_owned()]));
}
