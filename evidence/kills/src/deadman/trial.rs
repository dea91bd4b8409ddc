//! [`Trial`]: one process, from its start to its death. [`Verdict`]: the result of all trials in one state.
//!
//! A pidfd shows the time of death, on the clock of the deadline. The observer's own delay counts as lateness
//! of the process.

use super::{State, subject};
use clap::ValueEnum;
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, waitid},
};
use std::{
    error::Error,
    fmt,
    io::{self, BufRead, BufReader, Read},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};
use tempfile::NamedTempFile;
use vvm_clock::{Instant, Span, SystemClock};

/// After this time the trial kills a process that is not dead.
const GIVE_UP_AFTER: Duration = Duration::from_secs(2);

/// The observed death of a process.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) deadline: Instant,
    pub(crate) died: Instant,
    pub(crate) by: Death,
    /// When one of its threads last ran, if the state leaves signs of life.
    pub(crate) last_sign: Option<Instant>,
}

/// The cause of death.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Death {
    /// The deadman's thread.
    Thread,
    /// The deadman's kernel timer.
    Kernel,
    /// Something else.
    Other(ExitStatus),
    /// It did not die, and the trial killed it.
    None,
}

/// A trial, or why it has no result.
pub(crate) type Outcome = Result<Trial, Box<dyn Error + Send + Sync>>;

impl Trial {
    pub(crate) fn run(state: State, deadline_in: Duration) -> Outcome {
        let signs = state.leaves_signs().then(NamedTempFile::new).transpose()?;
        let signs = signs.as_ref().map(NamedTempFile::path);
        let mut child = start(state, deadline_in, signs)?;
        let outcome = Self::watch(&mut child, state, signs);
        if outcome.is_err() {
            // No process is left behind.
            child.kill()?;
            child.wait()?;
        }
        outcome
    }

    fn watch(child: &mut Child, state: State, signs: Option<&Path>) -> Outcome {
        let deadline = deadline_of(child)?;
        let process = Pid::from_child(child);
        if state == State::Stopped {
            kill_process(process, Signal::STOP)?;
            waitid(WaitId::Pid(process), WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT)?;
        }
        let pidfd = pidfd_open(process, PidfdFlags::empty())?;
        let timeout = SystemClock::read().until(deadline) + GIVE_UP_AFTER;
        let timeout = timeout.try_into().map_err(io::Error::other)?;
        let is_dead = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout))? == 1;
        let died = SystemClock::read();
        if !is_dead {
            child.kill()?;
        }
        let status = child.wait()?;
        let by = if is_dead { Death::of(status) } else { Death::None };
        let last_sign = signs.map(subject::last_sign).transpose()?.flatten();
        Ok(Self { deadline, died, by, last_sign })
    }

    pub(crate) fn is_early(&self) -> bool {
        self.died < self.deadline
    }

    /// Returns how long after its deadline it was dead.
    pub(crate) fn late(&self) -> Duration {
        self.died.since(self.deadline)
    }

    /// Returns how long after its deadline it last ran.
    pub(crate) fn worked(&self) -> Option<Duration> {
        Some(self.last_sign?.since(self.deadline))
    }
}

fn start(state: State, deadline_in: Duration, signs: Option<&Path>) -> io::Result<Child> {
    let state = state.to_possible_value().ok_or_else(|| io::Error::other("a state without a name"))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["subject", state.get_name(), "--deadline-in-ms", &deadline_in.as_millis().to_string()]);
    if let Some(signs) = signs {
        command.arg("--signs").arg(signs);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

/// Waits until the process is in its state, and returns its deadline.
fn deadline_of(child: &mut Child) -> Result<Instant, Box<dyn Error + Send + Sync>> {
    let mut line = String::new();
    if let Some(stdout) = &mut child.stdout {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    if let Ok(nanos) = line.trim().parse() {
        return Ok(Instant::from_nanos(nanos));
    }
    let mut words = String::new();
    if let Some(stderr) = &mut child.stderr {
        stderr.read_to_string(&mut words)?;
    }
    Err(format!("a process ended without a deadline: {words}").into())
}

impl Death {
    fn of(status: ExitStatus) -> Self {
        if status.code() == Some(vvm_deadman::EXIT_STATUS) {
            Self::Thread
        } else if status.signal() == Some(Signal::KILL.as_raw()) {
            Self::Kernel
        } else {
            Self::Other(status)
        }
    }
}

impl fmt::Display for Death {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread => write!(out, "by the thread (status {})", vvm_deadman::EXIT_STATUS),
            Self::Kernel => out.write_str("by the kernel (SIGKILL)"),
            Self::Other(status) => write!(out, "by something else ({status})"),
            Self::None => out.write_str("not at all"),
        }
    }
}

/// The bound between the deadline and the last instruction of a process, on every machine: the kernel's
/// signal does not wait for the scheduler. It is sent
/// [`SECOND_LAYER_BEHIND`](vvm_deadman::SECOND_LAYER_BEHIND) the deadline. The rest is for a timer interrupt
/// that a busy hypervisor delivers late.
const WORKED_AT_MOST: Duration = Duration::from_millis(20);

/// The result of all trials in one state.
#[derive(Debug)]
pub(crate) struct Verdict {
    state: State,
    trials: usize,
    by_thread: usize,
    by_kernel: usize,
    late: Lateness,
    /// The largest time between deadline and last instruction, if known.
    worked_max_ms: Option<f64>,
    pub(crate) violations: Vec<String>,
}

/// The time between deadline and death, in milliseconds.
#[derive(Debug, Default)]
struct Lateness {
    late_min_ms: f64,
    late_median_ms: f64,
    late_max_ms: f64,
}

impl Verdict {
    /// Judges trials. `at_most` is the bound between deadline and death.
    pub(crate) fn of(state: State, at_most: Duration, outcomes: Vec<Outcome>) -> Self {
        let violations = outcomes.iter().filter_map(|outcome| violation(state, at_most, outcome)).collect();
        let trials: Vec<&Trial> = outcomes.iter().flatten().collect();
        let by = |death| trials.iter().filter(|trial| trial.by == death).count();
        Self {
            state,
            trials: outcomes.len(),
            by_thread: by(Death::Thread),
            by_kernel: by(Death::Kernel),
            late: Lateness::of(trials.iter().map(|trial| trial.late()).collect()),
            worked_max_ms: trials.iter().filter_map(|trial| trial.worked()).max().map(in_ms),
            violations,
        }
    }
}

fn violation(state: State, at_most: Duration, outcome: &Outcome) -> Option<String> {
    let trial = match outcome {
        Ok(trial) => trial,
        Err(error) => return Some(format!("{state}: {error}")),
    };
    // A stopped process has no thread that could act first.
    let is_ours = match trial.by {
        Death::Thread => state != State::Stopped,
        Death::Kernel => true,
        Death::Other(_) | Death::None => false,
    };
    if trial.is_early() {
        Some(format!("{state}: died before its deadline, {}", trial.by))
    } else if !is_ours {
        Some(format!("{state}: died {}, {} after its deadline", trial.by, Span(trial.late())))
    } else if state.leaves_signs() && trial.worked().is_none_or(|worked| worked > WORKED_AT_MOST) {
        Some(format!("{state}: {}", ran(trial.worked())))
    } else if trial.late() > at_most {
        Some(format!("{state}: died {} after its deadline, {}", Span(trial.late()), trial.by))
    } else {
        None
    }
}

fn ran(worked: Option<Duration>) -> String {
    worked.map_or_else(
        || "left no sign of life".to_owned(),
        |worked| format!("last ran {} after its deadline", Span(worked)),
    )
}

impl Lateness {
    fn of(mut all: Vec<Duration>) -> Self {
        all.sort();
        let at = |index: usize| all.get(index).copied().map_or(0.0, in_ms);
        Self {
            late_min_ms: at(0),
            late_median_ms: at(all.len() / 2),
            late_max_ms: at(all.len().saturating_sub(1)),
        }
    }
}

fn in_ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

/// The report.
#[derive(Debug)]
pub(crate) struct Table<'a>(pub(crate) &'a [Verdict]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{:41}{:^26}  {:^9}  {:^19}", "", "gone after deadline, ms", "ran until", "ended by")?;
        let mut line = |cells: [&dyn fmt::Display; 8]| {
            let [state, trials, min, median, max, worked, thread, kernel] = cells;
            writeln!(
                out,
                "{state:<32} {trials:>6}  {min:>8} {median:>8} {max:>8}  {worked:>9}  {thread:>9} {kernel:>9}"
            )
        };
        line([&"", &"trials", &"min", &"median", &"max", &"max", &"thread", &"kernel"])?;
        for Verdict { state, trials, by_thread, by_kernel, late, worked_max_ms, .. } in self.0 {
            let ms = [late.late_min_ms, late.late_median_ms, late.late_max_ms].map(|ms| format!("{ms:.2}"));
            let worked = worked_max_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.2}"));
            line([state, trials, &ms[0], &ms[1], &ms[2], &worked, by_thread, by_kernel])?;
        }
        let violations: Vec<&String> = self.0.iter().flat_map(|verdict| &verdict.violations).collect();
        for violation in &violations {
            writeln!(out, "VIOLATION {violation}")?;
        }
        writeln!(out, "{} violations", violations.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{os::unix::process::ExitStatusExt, process::ExitStatus};
    use vvm_clock::Instant;

    const AT_MOST: Duration = Duration::from_millis(20);

    const DEADLINE: Instant = Instant::from_nanos(1_000);

    /// Returns a death this long after the deadline. The process last ran at the deadline.
    fn death(by: Death, late: Duration) -> Trial {
        Trial { deadline: DEADLINE, died: DEADLINE.after(late), by, last_sign: Some(DEADLINE) }
    }

    fn violates(state: State, trial: Trial) -> bool {
        violation(state, AT_MOST, &Ok(trial)).is_some()
    }

    #[test]
    fn death_in_time_by_the_deadman_is_no_violation() {
        for state in State::ALL {
            assert!(!violates(state, death(Death::Kernel, AT_MOST)));
            assert_eq!(violates(state, death(Death::Thread, Duration::ZERO)), state == State::Stopped);
        }
    }

    #[test]
    fn early_late_and_other_deaths_are_violations() {
        let a_little = Duration::from_nanos(1);
        let early = Trial { died: DEADLINE.before(a_little), ..death(Death::Thread, Duration::ZERO) };
        assert!(violates(State::Idle, early));
        assert!(violates(State::Idle, death(Death::Thread, AT_MOST + a_little)));
        assert!(violates(State::Idle, death(Death::Other(ExitStatus::from_raw(15)), Duration::ZERO)));
        assert!(violates(State::Idle, death(Death::None, Duration::ZERO)));
        assert!(violation(State::Idle, AT_MOST, &Err("no deadline".into())).is_some());
    }

    #[test]
    fn late_or_missing_sign_of_a_spinning_process_is_a_violation() {
        let ran_until = |last_sign| Trial { last_sign, ..death(Death::Kernel, Duration::ZERO) };
        assert!(!violates(State::Spinning, ran_until(Some(DEADLINE.after(WORKED_AT_MOST)))));
        assert!(violates(State::Spinning, ran_until(Some(DEADLINE.after(WORKED_AT_MOST * 2)))));
        assert!(violates(State::Spinning, ran_until(None)));
        assert!(!violates(State::Idle, ran_until(None)));
    }

    #[test]
    fn lateness_has_minimum_median_and_maximum() {
        let late = Lateness::of([3, 1, 2].map(Duration::from_millis).to_vec());
        assert_eq!((late.late_min_ms, late.late_median_ms, late.late_max_ms), (1.0, 2.0, 3.0));
    }
}
