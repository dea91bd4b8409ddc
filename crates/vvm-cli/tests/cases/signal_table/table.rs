//! The table: what each signal does in each state.

use Effect::{Ends, EndsTheCommand, EndsWithTheCommandsStatus, Kills, Nothing, PassedOn, Stops, Waits};
use rustix::process::Signal;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// The storage can't be opened yet.
    Opening,
    /// Another process leads.
    Campaigning,
    /// The name is paused.
    Paused,
    /// It has lost its leadership to another process, and is a candidate again.
    Rejoining,
    /// It has given its leadership up because the command was unhealthy, and does not campaign yet.
    LettingOthersGoFirst,
    /// It leads, and may not have started the command yet.
    Starting,
    /// The command works.
    Leading,
    /// After TERM, it runs `--pre-stop`.
    PreStopping,
    /// It runs `--pre-stop` after a failed check.
    PreStoppingUnhealthy,
    /// The command got TERM, and still runs.
    Stopping,
    /// The command got INT, and still runs.
    StoppingByInt,
    /// A check has failed, and the command still runs.
    Unhealthy,
    /// The name is being paused, and the command still runs.
    Pausing,
    /// The leadership is lost to another process, and the command still runs.
    Lost,
    /// The command has ended, and the leadership is held.
    Held,
    /// The command has ended, and will be started again.
    BetweenRuns,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// The signal ends `vvm` at once.
    Ends,
    /// `vvm` ends at once, with the status of the command that ended before.
    EndsWithTheCommandsStatus,
    /// No effect.
    Nothing,
    /// The command gets it, and nothing else happens.
    PassedOn,
    /// The command gets it after `--pre-stop`. A second one kills.
    Waits,
    /// The command gets it, and must end within the stop timeout.
    Stops,
    /// The command is killed at once.
    Kills,
    /// The command dies of it.
    EndsTheCommand,
}

/// TERM, INT, HUP, QUIT, USR1, USR2.
pub(crate) const TABLE: [(State, [Effect; 6]); 16] = [
    (State::Opening, [Ends, Ends, Ends, Ends, Nothing, Nothing]),
    (State::Campaigning, [Ends, Ends, Ends, Ends, Nothing, Nothing]),
    (State::Paused, [Ends, Ends, Ends, Ends, Nothing, Nothing]),
    (State::Rejoining, [Ends, Ends, Ends, Ends, Nothing, Nothing]),
    (State::LettingOthersGoFirst, [Ends, Ends, Ends, Ends, Nothing, Nothing]),
    (State::Starting, [EndsTheCommand; 6]),
    (State::Leading, [Stops, Stops, PassedOn, PassedOn, PassedOn, PassedOn]),
    (State::PreStopping, [Kills, Kills, PassedOn, PassedOn, PassedOn, PassedOn]),
    (State::PreStoppingUnhealthy, [Waits, Waits, PassedOn, PassedOn, PassedOn, PassedOn]),
    (State::Stopping, [Kills, Kills, PassedOn, PassedOn, PassedOn, PassedOn]),
    (State::StoppingByInt, [Kills, Kills, PassedOn, PassedOn, PassedOn, PassedOn]),
    (State::Unhealthy, [PassedOn; 6]),
    (State::Pausing, [PassedOn; 6]),
    (State::Lost, [PassedOn; 6]),
    (
        State::Held,
        [
            EndsWithTheCommandsStatus,
            EndsWithTheCommandsStatus,
            EndsWithTheCommandsStatus,
            EndsWithTheCommandsStatus,
            Nothing,
            Nothing,
        ],
    ),
    (State::BetweenRuns, [Ends, Ends, Ends, Ends, Nothing, Nothing]),
];

pub(crate) const SIGNALS: [(Signal, &str); 6] = [
    (Signal::TERM, "TERM"),
    (Signal::INT, "INT"),
    (Signal::HUP, "HUP"),
    (Signal::QUIT, "QUIT"),
    (Signal::USR1, "USR1"),
    (Signal::USR2, "USR2"),
];
