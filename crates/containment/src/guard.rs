//! The guardian: the process that the user starts. It establishes the containment, starts the supervisor, and forwards
//! signals to it. When the supervisor ends or outlives its deadline, the guardian kills it and all its descendants: no
//! process can clean up after its own SIGKILL. It has one thread, so that it works as process 1, when memory is short,
//! and while all other processes hang.

use crate::{
    containment::{Containment, Level, RequestedLevel},
    control_group::{self, ControlGroup, ControlGroupRefusal},
    event::SupervisionEvent,
    launch::{self, SHIM_STAGE},
    link::{self, Link},
    messages::{DeathNotice, FromShim, ToGuardian, ToShim, ToSupervisor},
    namespace,
    processes::{self, Family, ForeignProcFs, Reap, Reaped, has_ended, reap},
    refusal::NamespaceRefusal,
    rules::{ENDS_WITHIN, GuardianRules},
    signals::{Signals, Terminal},
    sweep::{Sweep, end_all, sweep},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, set_child_subreaper},
};
use std::{
    ffi::OsString,
    io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::process::CommandExt as _,
    },
    path::Path,
    sync::Arc,
    time::Duration,
};
use vvm_clock::{Alarm, Instant, SystemClock};

/// What a guardian reports while it watches.
#[derive(Debug)]
pub enum Report {
    /// A note of the supervisor. The guardian passes it on without reading it.
    Note(DeathNotice),
    /// An event of the guardian itself.
    Event(SupervisionEvent),
}

/// Starts the supervisor, and blocks until it has ended and no descendant of this process is left. Then dissolves the
/// containment. Leaves only a supervisor that hangs in the kernel. The supervisor is this program again, with
/// `arguments`. Its `main` must call [`Supervisor::accept`](crate::Supervisor::accept). `environment` sets and removes
/// variables of the supervisor. The calling process must have a single thread. It becomes a sub-reaper, and this
/// function reaps all its children. Fails, and starts no work, if the system refuses a process or a descriptor.
pub fn guard(
    arguments: Vec<OsString>,
    environment: &[(OsString, Option<OsString>)],
    containment: Containment,
    on_report: impl FnMut(Report),
) -> io::Result<SupervisorEnd> {
    let guarding = start_supervisor(arguments, environment, containment.clone())
        .inspect_err(|_| containment.dissolve())?;
    Ok(guarding.watch(on_report))
}

fn start_supervisor(
    arguments: Vec<OsString>,
    environment: &[(OsString, Option<OsString>)],
    containment: Containment,
) -> io::Result<Guarding> {
    let terminal = Terminal::of_this_process();
    // Signals that arrive before the supervisor can handle them wait in the link.
    let signals = terminal.catch()?;
    let countdown = Alarm::new()?;
    set_child_subreaper(Some(getpid())).map_err(io::Error::from)?;

    let (link, far) = link::pair()?;
    let (first, arguments) = arguments.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = launch::command(first, arguments.iter().cloned(), far);
    // A group of its own: the terminal's signals to the foreground group reach the supervisor only by the guardian.
    command.process_group(0);
    for (name, value) in environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let supervisor = launch::start(command)?;
    let process = pidfd_open(supervisor, PidfdFlags::empty()).map_err(io::Error::from)?;
    let this_process = pidfd_open(getpid(), PidfdFlags::empty()).map_err(io::Error::from)?;
    let begin = ToSupervisor::Begin { terminal_group: terminal.group(), level: containment.level() };
    let mut descriptors = vec![rustix::stdio::stdin(), this_process.as_fd()];
    descriptors.extend(containment.group.as_ref().map(|group| group.as_fd()));
    link.begin(&begin, &descriptors)?;
    Ok(Guarding {
        supervisor,
        process,
        link,
        link_open: true,
        containment,
        signals,
        terminal,
        countdown,
        rules: GuardianRules::default(),
        last_deadline: None,
    })
}

const LOOK: Duration = Duration::from_millis(20);

#[derive(Debug)]
struct Guarding {
    supervisor: Pid,
    /// Readable once the supervisor has ended. Unlike SIGCHLD, the parent of this process can't block it.
    process: OwnedFd,
    link: Link<ToSupervisor, ToGuardian>,
    link_open: bool,
    containment: Containment,
    signals: Signals,
    terminal: Terminal,
    countdown: Alarm,
    rules: GuardianRules,
    last_deadline: Option<Instant>,
}

/// How a supervisor ended.
#[derive(Debug)]
pub struct SupervisorEnd {
    /// The containment that was in force.
    pub level: Level,
    /// How its process ended. `None` if it had finished, and was left behind with a thread that hangs in the kernel.
    pub supervisor: Option<processes::ProcessEnd>,
    /// When it was reaped or left behind.
    pub reaped_at: Instant,
    /// The kill deadline that was armed when it ended.
    pub deadline: Option<Instant>,
    /// Its last kill deadline, also if it had disarmed that.
    pub last_deadline: Option<Instant>,
    /// Whether its kill deadline had passed when it ended or was to be killed.
    pub deadline_passed: bool,
    /// Whether every descendant is proven to have ended: `wait` has returned ECHILD, and any control group was removed.
    pub proven: bool,
}

impl Guarding {
    fn watch(mut self, mut on_report: impl FnMut(Report)) -> SupervisorEnd {
        let mut ended = None;
        while ended.is_none() && !self.rules.is_due(SystemClock::read()) {
            self.wait();
            // First, because the deadline may have moved while this process did not run.
            self.listen(&mut on_report);
            self.forward_signals();
            // Always: a sub-reaper, or process 1, may be given other processes' children at any time.
            while let Reap::One(reaped) = reap() {
                ended = ended.or(self.is_supervisor(reaped));
            }
        }
        let deadline_passed = has_passed(self.rules.deadline());
        let is_supervisor = |reaped: Reaped| self.is_supervisor(reaped);
        let left_behind = ended.is_none()
            && self.rules.may_leave()
            && self.end_others(|reaped| ended = ended.or(is_supervisor(reaped)));
        if left_behind {
            on_report(Report::Event(SupervisionEvent::LeftBehind(self.supervisor)));
        } else {
            end_all(
                &self.containment,
                |reaped| ended = ended.or(is_supervisor(reaped)),
                |event| on_report(Report::Event(event)),
            );
        }
        let is_dissolved = self.containment.remove_group();
        // The last messages may have arrived while the supervisor was ending.
        self.listen(&mut on_report);
        let (supervisor, reaped_at) = ended.unzip();
        // If no child is left, the supervisor was reaped, even if its status was not seen.
        SupervisorEnd {
            level: self.containment.level(),
            supervisor: supervisor.or((!left_behind).then_some(processes::ProcessEnd::Exited(0))),
            reaped_at: reaped_at.unwrap_or_else(SystemClock::read),
            deadline: self.rules.deadline(),
            last_deadline: self.last_deadline,
            deadline_passed,
            proven: GuardianRules::is_proven(left_behind, is_dissolved),
        }
    }

    /// Kills all descendants and reaps. Returns `true` if the supervisor alone stays too long, `false` if none is left.
    fn end_others(&self, mut on_reaped: impl FnMut(Reaped)) -> bool {
        let leave_at = SystemClock::read().after(ENDS_WITHIN);
        while sweep(&self.containment, &mut on_reaped) != Sweep::Clear {
            if has_passed(Some(leave_at)) && self.is_supervisor_alone() {
                return true;
            }
            SystemClock::block_for(LOOK);
        }
        false
    }

    /// Whether all other descendants have ended. Children of a supervisor that hangs are not reaped.
    fn is_supervisor_alone(&self) -> bool {
        let family = self.containment.family;
        let (found, is_complete) = family.search();
        is_complete
            && found.into_iter().all(|member| {
                member.pid == self.supervisor || family.pin(member).is_ok_and(|process| has_ended(&process))
            })
    }

    fn is_supervisor(&self, reaped: Reaped) -> Option<(processes::ProcessEnd, Instant)> {
        (reaped.pid == self.supervisor).then(|| (reaped.ended, SystemClock::read()))
    }

    fn wait(&self) {
        let mut fds = [
            PollFd::new(&self.countdown, PollFlags::IN),
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(&self.process, PollFlags::IN),
            PollFd::new(&self.link, PollFlags::IN),
        ];
        // A closed link is always readable.
        let polled = if self.link_open { &mut fds[..] } else { &mut fds[..3] };
        let left = self.rules.kill_at().map(|at| SystemClock::read().until(at));
        let longest = left.and_then(|left| Timespec::try_from(left).ok());
        // After an error, the caller looks at everything as well.
        let _ = poll(polled, longest.as_ref());
    }

    fn listen(&mut self, on_report: &mut impl FnMut(Report)) {
        while self.link_open {
            match self.link.receive() {
                Some(link::LinkMessage::Message(message, _)) => self.handle(message, on_report),
                Some(link::LinkMessage::End) => self.link_open = false,
                None => return,
            }
        }
    }

    fn handle(&mut self, message: ToGuardian, on_report: &mut impl FnMut(Report)) {
        match message {
            ToGuardian::Note(note) => on_report(Report::Note(note)),
            ToGuardian::Deadline(deadline) => {
                self.last_deadline = deadline.or(self.last_deadline);
                self.countdown.set(self.rules.moves(deadline).unwrap_or(Instant::NEVER));
                // A supervisor that does not receive this starts no work.
                let _ = self.link.send(&ToSupervisor::InForce(deadline));
            }
            ToGuardian::Finished => self.rules.finished(SystemClock::read()),
        }
    }

    fn forward_signals(&mut self) {
        for caught in self.signals.pending().unwrap_or_default() {
            match caught.signal {
                // The caller reaps in any case.
                Signal::CHILD => {}
                _ if self.terminal.is_stop(caught) => self.terminal.undo_stop(),
                signal => {
                    let source = self.terminal.source_of(caught);
                    // A supervisor that does not receive it hangs, and its deadline ends it.
                    let _ = self.link.send(&ToSupervisor::Signalled { signal, source });
                }
            }
        }
    }
}

fn has_passed(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|at| SystemClock::read() >= at)
}

/// Why the requested level is not available.
#[derive(Debug, thiserror::Error)]
pub enum LevelRefusal {
    /// No level is available.
    #[error(transparent)]
    ProcFs(#[from] ForeignProcFs),
    /// This process can't make a control group.
    #[error(transparent)]
    ControlGroup(#[from] ControlGroupRefusal),
    /// This process can't make a PID namespace.
    #[error(transparent)]
    Namespace(#[from] NamespaceRefusal),
}

impl Containment {
    /// Establishes the wanted level; `Auto` falls back to the guardian. [`dissolve`](Self::dissolve) removes a group.
    pub fn establish(wanted: RequestedLevel) -> Result<Self, LevelRefusal> {
        let (level, group) = match wanted {
            RequestedLevel::Auto => {
                let tried = control_group::own_group().and_then(|own| {
                    if control_group::is_delegated(&own) {
                        tried_group(&own)
                    } else {
                        Err(ControlGroupRefusal::NoGroups)
                    }
                });
                match tried {
                    Ok(group) => (Level::ControlGroup, Some(group)),
                    Err(refusal @ ControlGroupRefusal::System(_)) => return Err(refusal.into()),
                    Err(_) => (Level::Guardian, None),
                }
            }
            RequestedLevel::Exactly(Level::Guardian) => (Level::Guardian, None),
            RequestedLevel::Exactly(Level::ControlGroup) => {
                (Level::ControlGroup, Some(tried_group(&control_group::own_group()?)?))
            }
            RequestedLevel::Exactly(Level::PidNamespace) => {
                namespace::try_out()?;
                (Level::PidNamespace, None)
            }
        };
        Ok(Self::new(level, Family::of_this_process()?, group.map(Arc::new)))
    }
}

fn tried_group(own: &Path) -> Result<ControlGroup, ControlGroupRefusal> {
    let (near, far) = link::pair::<ToShim, FromShim>().map_err(ControlGroupRefusal::System)?;
    let group = ControlGroup::below(own).map_err(|cause| ControlGroupRefusal::of(own, cause))?;
    let started = launch::command(SHIM_STAGE, [], far).spawn().map_err(ControlGroupRefusal::System);
    let admitted = started.and_then(|mut shim| {
        let admitted = group.admit(Pid::from_child(&shim));
        // The shim ends without a message.
        drop(near);
        shim.wait().map_err(ControlGroupRefusal::System)?;
        admitted.map_err(|cause| ControlGroupRefusal::of(own, cause))
    });
    admitted.inspect_err(|_| drop(group.remove()))?;
    Ok(group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::BEHIND_THE_SUPERVISOR;
    use rustix::event::{PollFd, PollFlags, poll};
    use vvm_clock::SystemClock;

    fn has_expired(countdown: &Alarm) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(countdown, PollFlags::IN)], Some(&at_once)).unwrap() > 0
    }

    #[test]
    fn timer_expires_after_the_deadline_unless_it_moved() {
        let countdown = Alarm::new().unwrap();
        let deadline = SystemClock::read().after(Duration::from_millis(20));
        countdown.set(GuardianRules::default().moves(Some(deadline)).unwrap());
        assert!(!has_expired(&countdown));
        poll(&mut [PollFd::new(&countdown, PollFlags::IN)], None).unwrap();
        assert!(SystemClock::read() >= deadline.after(BEHIND_THE_SUPERVISOR));
        countdown.set(Instant::NEVER);
        assert!(!has_expired(&countdown));
        countdown.set(Instant::ORIGIN);
        assert!(has_expired(&countdown));
    }
}
