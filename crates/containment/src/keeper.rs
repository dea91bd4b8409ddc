//! The keeper: parent and only reaper of the command and of all processes that it leaves behind. It is a sub-reaper
//! between supervisor and command, or process 1 of the command's namespace. It kills by order, near the deadline, and
//! when supervisor or guardian is gone. It sends [`Gone`](FromKeeper::Gone) when no descendant or member is left (I6).

use crate::{
    containment::{Containment, Level},
    control_group::ControlGroup,
    launch::{self, Accepted, HelperLines, SHIM_STAGE, StageError, helper_command, without_lines},
    link::{self, Link, LinkMessage},
    messages::{FromKeeper, FromShim, Helper, NAME, ToKeeper, ToShim},
    processes::{Family, Member, Reap, Reaped, group_of, has_ended, own_group, reap},
    rules::{KeeperAction, KeeperEvent, KeeperRules},
    signals::{ForwardedSignal, Signals},
    sweep::{LONGEST_PAUSE, OutOfReachReport, Sweep, sweep},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags, open},
    io::Errno,
    process::{Pid, Signal, getpid, kill_process, kill_process_group, set_child_subreaper},
};
use std::{
    ffi::OsString,
    fs, io,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::process::CommandExt as _,
    },
    process::Command,
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};
use vvm_deadman::KernelTimer;

pub(crate) const STAGE: &str = "stage-keeper";

pub(crate) fn main(arguments: &[OsString]) -> Result<u8, StageError> {
    // First. A service manager signals every process; the supervisor forwards those signals to the command.
    // They are caught, not ignored, because the command would inherit that.
    let signals = Signals::catch_all(true).map_err(StageError::System)?;
    let Accepted { link, first, descriptors } = launch::accept()?;
    let command = launch::command_of(arguments).ok_or(StageError::NotAStage)?;
    if let ToKeeper::Begin { group, deadline, before_the_deadline } = first {
        let lines = &HelperLines::of_environment();
        let group = group.map_or(Group::Own, |number| Group::Terminal(Some(number)));
        let task = KeeperTask { lines, command, group, deadline, before_the_deadline, descriptors };
        keep(&link, task, signals, Scope::Descendants);
    }
    Ok(0)
}

pub(crate) struct KeeperTask<'k> {
    pub(crate) lines: &'k HelperLines,
    pub(crate) command: &'k [OsString],
    pub(crate) group: Group,
    pub(crate) deadline: Option<Instant>,
    pub(crate) before_the_deadline: Duration,
    /// The command's standard input, the guardian's process, a control group's folder.
    pub(crate) descriptors: Vec<OwnedFd>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Descendants,
    Namespace,
}

pub(crate) fn keep(link: &Link<FromKeeper, ToKeeper>, order: KeeperTask<'_>, signals: Signals, scope: Scope) {
    let mut descriptors = order.descriptors.into_iter();
    let (Some(input), Some(guardian)) = (descriptors.next(), descriptors.next()) else { return };
    // Before anything is started, because a supervisor or guardian that has ended would not kill it.
    let mut early = Vec::new();
    loop {
        match link.receive() {
            Some(LinkMessage::Message(message, _)) => early.push(message),
            Some(LinkMessage::End) => return,
            None => break,
        }
    }
    // Without that message, the supervisor knows that nothing has run.
    if has_ended(&guardian) || link.send(&FromKeeper::Ready).is_err() {
        return;
    }
    let mut established = || {
        let containment = match scope {
            Scope::Descendants => {
                // Processes that the command leaves behind become children of this one, which waits for them all (I6).
                set_child_subreaper(Some(getpid()))?;
                let group = descriptors.next().map(ControlGroup::from_folder).transpose()?;
                Containment::from_guardian(Level::Guardian, group).map_err(io::Error::other)?
            }
            Scope::Namespace => Containment::of_this_namespace().map_err(io::Error::other)?,
        };
        let timer = (scope == Scope::Descendants).then(KernelTimer::new).transpose()?;
        Ok((containment, timer))
    };
    let (containment, timer) = match established() {
        Ok(established) => established,
        Err(cause) => return refuse(link, &cause),
    };
    let mut keeper = Keeper {
        link,
        rules: KeeperRules::new(order.before_the_deadline),
        guardian,
        lines: order.lines,
        containment,
        timer,
        command: None,
        shim: None,
        helpers: Vec::new(),
        out_of_reach_report: OutOfReachReport::default(),
    };
    keeper.on(KeeperEvent::Deadline(order.deadline));
    if let Err(cause) = keeper.start(order.command, order.group, input) {
        let _ = link.send(&FromKeeper::NotStarted(errno_of(&cause)));
        keeper.on(KeeperEvent::NotStarted);
    }
    // Earlier messages are for the command, too. A signal among them may kill its shim.
    early.into_iter().for_each(|message| keeper.obey(message));
    keeper.watch(signals);
}

fn refuse(link: &Link<FromKeeper, ToKeeper>, cause: &io::Error) {
    let _ = link.send(&FromKeeper::NotStarted(errno_of(cause)));
    let _ = link.send(&FromKeeper::Gone);
}

struct Keeper<'k> {
    link: &'k Link<FromKeeper, ToKeeper>,
    rules: KeeperRules,
    guardian: OwnedFd,
    lines: &'k HelperLines,
    containment: Containment,
    /// Kills a keeper that is stopped or hangs at the deadline, and with it the command (I4). `None` for
    /// process 1, which ignores its own timers: it ends with the supervisor, through the process outside.
    timer: Option<KernelTimer>,
    command: Option<ChildHandle>,
    shim: Option<Link<ToShim, FromShim>>,
    helpers: Vec<(Helper, Pid)>,
    out_of_reach_report: OutOfReachReport,
}

impl Keeper<'_> {
    fn start(&mut self, command: &[OsString], group: Group, input: OwnedFd) -> io::Result<()> {
        let (near, far) = link::pair()?;
        let shim = launch::command(SHIM_STAGE, launch::behind_dashes(command), far);
        let mut process = without_lines(shim);
        let group = match group {
            // Process 1 was started in the terminal's group, and so is its child.
            Group::Terminal(None) => Group::Terminal(own_group()),
            Group::Terminal(Some(number)) => {
                process.process_group(number.as_raw_pid());
                group
            }
            Group::Own => {
                process.process_group(0);
                group
            }
        };
        let pid = launch::start(process)?;
        self.command = Some(ChildHandle { pid, group, started_at: SystemClock::read() });
        self.admit_and_tell(pid, &near, input.as_fd())?;
        self.shim = Some(near);
        Ok(())
    }

    fn start_helper(&mut self, helper: Helper) -> io::Result<()> {
        let line = self.lines.of(helper).ok_or(io::ErrorKind::NotFound)?;
        let (near, far) = link::pair()?;
        let nothing = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let process: Command = helper_command(line, far)?;
        let pid = launch::start(process)?;
        self.admit_and_tell(pid, &near, nothing.as_fd())?;
        self.helpers.push((helper, pid));
        Ok(())
    }

    /// Puts a shim into the control group, and sends it its message. A shim without a message ends.
    fn admit_and_tell(
        &self,
        pid: Pid,
        near: &Link<ToShim, FromShim>,
        input: BorrowedFd<'_>,
    ) -> io::Result<()> {
        if let Some(group) = &self.containment.group {
            group.admit(pid)?;
        }
        near.begin(&ToShim { parent: getpid() }, &[input])
    }

    fn watch(mut self, mut signals: Signals) {
        loop {
            let _ = signals.pending();
            self.listen_to_shim();
            let mut is_childless = self.reap();
            if KeeperRules::is_over(is_childless, || self.containment.has_no_member()) {
                let _ = self.link.send(&FromKeeper::Gone);
                return;
            }
            self.listen();
            if has_ended(&self.guardian) {
                self.on(KeeperEvent::GuardianEnded);
            }
            if self.rules.on(KeeperEvent::Turn(SystemClock::read())).is_some() {
                is_childless = self.kill();
            }
            if !is_childless {
                self.wait(&signals);
            }
        }
    }

    fn reap(&mut self) -> bool {
        loop {
            match reap() {
                Reap::One(reaped) => self.note(reaped),
                Reap::NoneYet => return false,
                Reap::Childless => return true,
            }
        }
    }

    fn kill(&mut self) -> bool {
        let mut reaped = Vec::new();
        let state = sweep(&self.containment, |one| reaped.push(one));
        reaped.into_iter().for_each(|one| self.note(one));
        let is_complete = match &state {
            Sweep::Clear => true,
            Sweep::Waiting(pass) => pass.is_complete,
        };
        self.on(KeeperEvent::Swept(SystemClock::read(), is_complete));
        match state {
            Sweep::Clear => true,
            Sweep::Waiting(pass) => {
                for some in self.out_of_reach_report.once(pass.out_of_reach).chunks(4) {
                    let mut processes = [None; 4];
                    processes.iter_mut().zip(some).for_each(|(place, pid)| *place = Some(*pid));
                    let _ = self.link.send(&FromKeeper::OutOfReach(processes));
                }
                false
            }
        }
    }

    fn note(&mut self, reaped: Reaped) {
        // That the supervisor is gone shows at the next receive.
        if self.command.take_if(|command| command.pid == reaped.pid).is_some() {
            // Its shim may have sent its last message after the last look.
            self.listen_to_shim();
            let _ = self.link.send(&FromKeeper::Ended(reaped.ended));
        }
        if let Some(place) = self.helpers.iter().position(|(_, pid)| *pid == reaped.pid) {
            let (helper, _) = self.helpers.swap_remove(place);
            let _ = self.link.send(&FromKeeper::HelperEnded(helper, reaped.ended));
        }
    }

    fn listen_to_shim(&mut self) {
        match self.shim.as_ref().and_then(Link::receive) {
            // The shim's end closes on exec, or when the shim is killed: then it is reaped.
            Some(LinkMessage::End) => {
                let _ = self.link.send(&FromKeeper::Executed);
                self.shim = None;
            }
            Some(LinkMessage::Message(FromShim { errno }, _)) => {
                let _ = self.link.send(&FromKeeper::NotExecuted(Errno::from_raw_os_error(errno)));
                self.shim = None;
            }
            None => {}
        }
    }

    fn listen(&mut self) {
        while self.rules.has_supervisor() {
            match self.link.receive() {
                Some(LinkMessage::Message(message, _)) => self.obey(message),
                Some(LinkMessage::End) => self.on(KeeperEvent::LinkClosed),
                None => return,
            }
        }
    }

    fn obey(&mut self, message: ToKeeper) {
        match message {
            ToKeeper::Signal(passed) => {
                self.listen_to_shim();
                let is_executed = self.shim.is_none();
                // Only this process reaps it: until then, its number names no other process.
                if let Some(Err(errno)) = self.command.map(|command| command.pass_on(passed, is_executed)) {
                    let _ = self.link.send(&FromKeeper::NotPassedOn(passed.signal, errno));
                }
            }
            ToKeeper::Helper(helper) => {
                // A helper would have to be killed at once.
                let started = if self.rules.is_killing() {
                    Err(Errno::CANCELED.into())
                } else {
                    self.start_helper(helper)
                };
                if let Err(cause) = started {
                    let _ = self.link.send(&FromKeeper::HelperNotStarted(helper, errno_of(&cause)));
                }
            }
            ToKeeper::KillHelper(wanted) => {
                for (_, pid) in self.helpers.iter().filter(|(helper, _)| *helper == wanted) {
                    let _ = kill_process_group(*pid, Signal::KILL);
                }
            }
            ToKeeper::Deadline(deadline) => self.on(KeeperEvent::Deadline(deadline)),
            ToKeeper::TellRest => tell_to_end(self.containment.family, &self.helpers, |name| {
                let _ = self.link.send(name);
            }),
            ToKeeper::Kill => self.on(KeeperEvent::Kill),
            ToKeeper::Begin { .. } | ToKeeper::TryOut => {}
        }
    }

    fn on(&mut self, event: KeeperEvent) {
        match self.rules.on(event) {
            // The kernel documents no refusal. With one, the earlier deadline stays in force (I4).
            Some(KeeperAction::Arm(at)) => {
                if self.set_timer(at).is_ok() {
                    // If the link is full, the supervisor asks again.
                    let _ = self.link.send(&FromKeeper::InForce(self.rules.deadline()));
                }
            }
            Some(KeeperAction::Disarm) => drop(self.set_timer(None)),
            Some(KeeperAction::ConfirmKill) => drop(self.link.send(&FromKeeper::Kills)),
            Some(KeeperAction::Sweep) | None => {}
        }
    }

    fn set_timer(&self, at: Option<Instant>) -> io::Result<()> {
        self.timer.as_ref().map_or(Ok(()), |timer| timer.set(at))
    }

    fn wait(&self, signals: &Signals) {
        let mut fds = vec![PollFd::new(signals, PollFlags::IN)];
        if self.rules.has_supervisor() {
            fds.push(PollFd::new(self.link, PollFlags::IN));
        }
        if !self.rules.is_killing() {
            fds.push(PollFd::new(&self.guardian, PollFlags::IN));
        }
        fds.extend(self.shim.as_ref().map(|shim| PollFd::new(shim, PollFlags::IN)));
        // This wait does not count suspend. After one, the timers of supervisor and keeper expire at once.
        let left = if self.rules.is_killing() {
            Some(LONGEST_PAUSE)
        } else {
            self.rules.wakes_at().map(|due| SystemClock::read().until(due))
        };
        let longest = left.and_then(|left| Timespec::try_from(left).ok());
        // After an error, the caller looks at everything as well.
        let _ = poll(&mut fds, longest.as_ref());
    }
}

fn errno_of(cause: &io::Error) -> Errno {
    Errno::from_io_error(cause).unwrap_or(Errno::IO)
}

/// The command, for its parent. Until that process reaps the command, its number names no other process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ChildHandle {
    pid: Pid,
    group: Group,
    /// It was in its group by then, but not executed.
    started_at: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Group {
    Own,
    /// The terminal's group. `None` if it belongs to a PID namespace above.
    Terminal(Option<Pid>),
}

impl ChildHandle {
    fn pass_on(self, passed: ForwardedSignal, is_executed: bool) -> rustix::io::Result<()> {
        let ForwardedSignal { signal, delivered } = passed;
        // The command may have entered the terminal's group after the signal, or left it. A signal that came before it
        // was executed has killed its shim, if it was in the group, so that no command gets one twice.
        let was_there = is_executed && delivered.is_some_and(|heard_at| heard_at > self.started_at);
        let stayed = matches!(self.group, Group::Terminal(group) if group_of(self.pid) == group);
        match self.group {
            _ if was_there && stayed => Ok(()),
            Group::Terminal(_) => kill_process(self.pid, signal),
            Group::Own => kill_process_group(self.pid, signal),
        }
    }
}

const NAMED: usize = 8;

/// Leaves out helpers, and what is in their groups: they are killed by [`ToKeeper::KillHelper`].
fn tell_to_end(family: Family, helpers: &[(Helper, Pid)], name: impl Fn(&FromKeeper)) {
    let mut rest = family.descendants();
    rest.retain(|member| {
        let group = group_of(member.pid);
        helpers.iter().all(|(_, helper)| group != Some(*helper))
    });
    let names = rest.iter().filter_map(name_of).collect::<Vec<_>>();
    let total = u32::try_from(names.len()).unwrap_or(u32::MAX);
    for (place, one) in names.iter().take(NAMED).enumerate() {
        let is_last = place + 1 == names.len().min(NAMED);
        name(&FromKeeper::LeftOver { total, is_last, name: *one });
    }
    for member in rest {
        for signal in [Signal::TERM, Signal::CONT] {
            // Gone, or out of reach: the kill reports that.
            let _ = family.signal(member, signal);
        }
    }
}

fn name_of(member: &Member) -> Option<[u8; NAME]> {
    let stat = fs::read(format!("/proc/{}/stat", member.pid)).ok()?;
    let opens = stat.iter().position(|byte| *byte == b'(')? + 1;
    let closes = stat.iter().rposition(|byte| *byte == b')')?;
    let state = *stat.get(closes + 2)?;
    let mut name = [0; NAME];
    name.iter_mut().zip(stat.get(opens..closes)?).for_each(|(place, byte)| *place = *byte);
    (!matches!(state, b'Z' | b'X')).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::{Family, ProcessEnd};
    use rustix::process::{WaitId, WaitIdOptions, waitid};

    /// A shim sends its refusal and ends at any moment, also between two looks of the keeper.
    #[test]
    fn last_message_of_a_shim_is_sent_before_the_end_of_its_command() {
        let ((link, supervisor), (to_shim, shim)) = (link::pair().unwrap(), link::pair().unwrap());
        let (supervisor, shim) = (Link::<ToKeeper, FromKeeper>::over(supervisor), Link::over(shim));
        let command = Pid::INIT;
        let mut keeper = Keeper {
            link: &link,
            rules: KeeperRules::new(Duration::ZERO),
            guardian: open("/dev/null", OFlags::RDONLY, Mode::empty()).unwrap(),
            lines: &HelperLines::default(),
            containment: Containment::by_family(Family::of_this_process().unwrap()),
            timer: None,
            command: Some(ChildHandle { pid: command, group: Group::Own, started_at: Instant::ORIGIN }),
            shim: Some(to_shim),
            helpers: Vec::new(),
            out_of_reach_report: OutOfReachReport::default(),
        };
        Link::<FromShim, ToShim>::send(&shim, &FromShim { errno: Errno::NOENT.raw_os_error() }).unwrap();
        keeper.note(Reaped { pid: command, ended: ProcessEnd::Exited(126) });
        let Some(LinkMessage::Message(first, _)) = supervisor.receive() else { panic!("no message") };
        assert_eq!(first, FromKeeper::NotExecuted(Errno::NOENT));
        let Some(LinkMessage::Message(second, _)) = supervisor.receive() else { panic!("one message") };
        assert_eq!(second, FromKeeper::Ended(ProcessEnd::Exited(126)));
    }

    #[test]
    fn process_that_has_ended_has_no_name() {
        let mut process = Command::new("sleep").arg("1000").spawn().unwrap();
        let family = Family::of_this_process().unwrap();
        let member =
            family.descendants().into_iter().find(|member| member.pid == Pid::from_child(&process)).unwrap();
        assert!(name_of(&member).is_some_and(|name| name.starts_with(b"sleep\0")));
        process.kill().unwrap();
        waitid(WaitId::Pid(member.pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        assert_eq!(name_of(&member), None);
        process.wait().unwrap();
    }
}
