//! [`Demoter`]: the process that demotes after the death of this one. It runs the on-loss hook, and releases the record
//! if the hook attests by its success that nothing leads here any more. A child and no guardian: a guardian ends all
//! that descends from it, and what a hook has started is not for `vvm` to kill.

use super::ElectArgs;
use crate::{
    announce::{self, say},
    args::STAGE_DEMOTE,
    contained::conclude,
    leadership::{HostReport, Leadership, RecordId, ToGuardian},
    release,
    settings::HANDED_ON,
};
use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, test_kill_process_group},
};
use std::{
    env,
    ffi::OsString,
    io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::process::CommandExt as _,
    },
    process::{Child, Command, ExitCode, Stdio},
    sync::{
        Mutex, MutexGuard, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};
use vvm_containment::{DeathNotice, NoteLink, Signals, ends_by};
use vvm_deadman::KernelTimer;
use vvm_host::operate::{HostEnd, ResourceLimit, way_out};

/// A handle of the process. It notices the end of this one by the end of the link.
#[derive(Debug)]
pub(super) struct Demoter {
    name: String,
    arguments: Vec<OsString>,
    settings: OsString,
    process: Mutex<Process>,
}

#[derive(Debug)]
enum Process {
    Runs(Child, NoteLink),
    /// It ended, or missed a message. The next claim starts another.
    Lost {
        is_said: bool,
    },
    /// This process demotes by itself from here on, or ends without a demotion.
    Dismissed,
}

impl Demoter {
    pub(super) fn start(
        name: String,
        arguments: impl Iterator<Item = OsString>,
        settings: OsString,
    ) -> io::Result<Self> {
        let process = Mutex::new(Process::Lost { is_said: true });
        let demoter = Self { name, arguments: arguments.collect(), settings, process };
        *demoter.process() = demoter.spawn()?;
        Ok(demoter)
    }

    fn spawn(&self) -> io::Result<Process> {
        let (link, mut command) = NoteLink::to(STAGE_DEMOTE, self.arguments.iter().cloned())?;
        // A group of its own: the keys of a terminal are for the leader.
        let child = command.env(HANDED_ON, &self.settings).process_group(0).spawn()?;
        Ok(Process::Runs(child, link))
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message. Waits only for the end of a demoter that missed one, as [`kill`] does: such a demoter might
    /// release the record without a demotion.
    pub(super) fn report(&self, message: ToDemoter) {
        self.send(message, |link, note| link.tell(note));
    }

    /// Sends that a hook runs in this process, a child that was not reaped yet: so its descriptor is of the hook, and
    /// of no process that gets its number later. Without a descriptor, the demoter does not know the hook's process.
    pub(super) fn tell_runs(&self, child: &Child) {
        let process = Pid::from_child(child);
        if let Ok(descriptor) = pidfd_open(process, PidfdFlags::empty()) {
            self.send(ToDemoter::Runs(process), |link, note| link.tell_with(note, descriptor.as_fd()));
        }
    }

    fn send(&self, message: ToDemoter, send: impl FnOnce(&NoteLink, DeathNotice) -> bool) {
        let mut process = self.process();
        if let Process::Runs(child, link) = &mut *process
            && !send(link, message.into())
        {
            kill(child);
            *process = Process::Lost { is_said: false };
        }
        // A line may hang. None comes between a hook and the on-loss hook that follows it.
        let may_hang = matches!(
            message,
            ToDemoter::Host(_) | ToDemoter::Deadline(_) | ToDemoter::Ended(Hook::OnLoss, _)
        );
        match &mut *process {
            Process::Lost { is_said: is_said @ false } if may_hang => *is_said = true,
            _ => return,
        }
        drop(process);
        say!(
            "{}: the demoter has ended or hangs: if vvm elect dies before it leads anew, nothing demotes this \
             machine, and the record expires by its TTL. A demoter starts with the next claim: hand over by \
             `vvm step-down`, or restart vvm elect",
            self.name
        );
    }

    /// Sends that a claim is about to be sent or was won, or that no record stands. Starts another process before the
    /// on-lead hook if the last one was lost. The next renewal tells it a deadline that it has missed.
    pub(super) fn tell_claim(&self, claim: Option<RecordId>) {
        if claim.is_some() {
            self.restart_if_lost();
        }
        self.report(ToDemoter::Host(ToGuardian::Claim(claim)));
    }

    fn restart_if_lost(&self) {
        let mut process = self.process();
        let is_lost = match &mut *process {
            Process::Runs(child, _) => !matches!(child.try_wait(), Ok(None)),
            Process::Lost { .. } => true,
            Process::Dismissed => false,
        };
        if !is_lost {
            return;
        }
        let started = self.spawn();
        let said = match &started {
            Ok(_) => "the demoter had ended; another one was started".to_owned(),
            Err(cause) => format!(
                "the demoter has ended, and another one can't be started ({cause}{}): nothing demotes this \
                 machine if vvm elect dies",
                way_out(cause)
            ),
        };
        *process = started.unwrap_or(Process::Lost { is_said: true });
        drop(process);
        say!("{}: {said}", self.name);
    }

    pub(super) fn dismiss(&self) {
        if let Process::Runs(mut child, _) = std::mem::replace(&mut *self.process(), Process::Dismissed) {
            kill(&mut child);
        }
    }
}

/// A message. The demoter acts on the last ones when its sender is dead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ToDemoter {
    /// What a guardian gets from its host, too: a claim, a leadership.
    Host(ToGuardian),
    Deadline(Option<Instant>),
    Starts(Hook),
    /// It runs in this process, which leads a group. It carries a descriptor of the process.
    Runs(Pid),
    Ended(Hook, bool),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hook {
    OnLead,
    OnLoss,
}

impl Hook {
    fn from_number(number: u64) -> Option<Self> {
        [Self::OnLead, Self::OnLoss].into_iter().find(|hook| *hook as u64 == number)
    }
}

/// Kinds below are those of [`ToGuardian`].
const OWN: u8 = 64;

impl From<ToDemoter> for DeathNotice {
    fn from(message: ToDemoter) -> Self {
        let (kind, first, second) = match message {
            ToDemoter::Host(message) => return message.into(),
            ToDemoter::Deadline(None) => (0, 0, 0),
            ToDemoter::Deadline(Some(at)) => (0, 1, at.as_nanos()),
            ToDemoter::Starts(hook) => (1, hook as u64, 0),
            ToDemoter::Runs(process) => (2, u64::from(process.as_raw_pid().unsigned_abs()), 0),
            ToDemoter::Ended(hook, success) => (3, hook as u64, u64::from(success)),
        };
        Self { kind: OWN + kind, words: [first, second, 0, 0] }
    }
}

impl ToDemoter {
    fn read(note: DeathNotice) -> Option<Self> {
        let [first, second, ..] = note.words;
        Some(match note.kind.checked_sub(OWN) {
            None => Self::Host(ToGuardian::read(note)?),
            Some(0) => Self::Deadline((first == 1).then(|| Instant::from_nanos(second))),
            Some(1) => Self::Starts(Hook::from_number(first)?),
            Some(2) => Self::Runs(Pid::from_raw(i32::try_from(first).ok()?)?),
            Some(3) => Self::Ended(Hook::from_number(first)?, second == 1),
            Some(_) => return None,
        })
    }
}

pub(crate) fn main(args: &ElectArgs) -> ExitCode {
    let link = match NoteLink::given() {
        Ok(link) => link,
        Err(refusal) => return conclude(&refusal),
    };
    // A service manager signals every process of a unit. This one ends after its leader. The signals are
    // caught and not ignored, because hooks would inherit that.
    let caught = Signals::catch();
    announce::start_log(args.candidate.log_format);
    let mut demotion = Demotion::default();
    link.hear_until_death(|note, process| {
        if let Some(message) = ToDemoter::read(note) {
            demotion.hear(message, process);
        }
    });
    demotion.act(args);
    drop(caught);
    ExitCode::SUCCESS
}

#[derive(Default, Debug)]
pub(super) struct Demotion {
    told: HostReport,
    deadline: Option<Instant>,
    running: Running,
    /// How its on-loss hook has ended. `Some(true)` also before its on-lead hook is started.
    demoted: Option<bool>,
}

#[derive(Default, Debug)]
enum Running {
    #[default]
    Nothing,
    /// It may run, in a process that is not known.
    Somewhere,
    Group(Pid, OwnedFd),
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
enum NotDemoted {
    #[error("a hook may still run: it was just being started, or hangs in the kernel")]
    HookUnknown,
    #[error("the on-loss hook had failed")]
    Failed,
    #[error("the on-loss hook {0}")]
    FailsNow(String),
}

impl Demotion {
    pub(super) fn hear(&mut self, message: ToDemoter, process: Option<OwnedFd>) {
        match message {
            ToDemoter::Host(message) => {
                if matches!(message, ToGuardian::Leading(_)) {
                    self.demoted = Some(true);
                }
                self.told.hear(message);
            }
            ToDemoter::Deadline(deadline) => self.deadline = deadline,
            ToDemoter::Starts(hook) => {
                self.running = Running::Somewhere;
                if hook == Hook::OnLead {
                    self.demoted = None;
                }
            }
            ToDemoter::Runs(group) => {
                self.running = process.map_or(Running::Somewhere, |leader| Running::Group(group, leader));
            }
            ToDemoter::Ended(hook, success) => {
                self.running = Running::Nothing;
                if hook == Hook::OnLoss {
                    self.demoted = Some(success);
                }
            }
        }
    }

    /// Demotes for the dead leader and releases its record. The leader's process is gone and writes nothing. What leads
    /// may be any process, so nothing proves that it has stopped. The on-loss hook attests it by status 0 and by the
    /// end of all that it has started in its group. Only then the record is released (I6).
    pub(super) fn act(mut self, args: &ElectArgs) {
        let (Some(claim), since, candidate) = (self.told.claim, self.told.since, &args.candidate) else {
            self.end_hook();
            return;
        };
        let name = candidate.name.as_str();
        let (ttl, reaped_at, deadline) = (candidate.ttl, SystemClock::read(), self.deadline);
        let end = HostEnd { proven: true, orderly: false, reaped_at, deadline };
        if let Err(refusal) = self.demote(args) {
            say!("{name}: the record is not released and expires by its TTL: {refusal}");
            return;
        }
        let Some((_, until)) = end.release_window(SystemClock::read(), ttl, Duration::ZERO) else { return };
        if let Err(cause) = KernelTimer::new().and_then(|timer| timer.set(Some(until))) {
            say!("{name}: the record is not released and expires by its TTL: {cause}");
            return;
        }
        let how = "released by the demoter after the death of vvm elect";
        let unanswered = || {
            say!("{name}: the record is not released and expires by its TTL: the storage does not answer");
        };
        unless_done_by(until.before(TO_SAY_WHY), unanswered, || {
            release::release(candidate, (claim, since, until), ("demoter", how));
        });
    }

    /// Returns whether no hook runs any more. One that was just being started, or hangs in the kernel, can't be ended.
    fn end_hook(&mut self) -> bool {
        match std::mem::take(&mut self.running) {
            Running::Nothing => true,
            Running::Somewhere => false,
            Running::Group(group, leader) => end(group, leader),
        }
    }

    fn demote(&mut self, args: &ElectArgs) -> Result<(), NotDemoted> {
        let hook_may_run = !self.end_hook();
        let demoted = match (self.told.leading, self.demoted) {
            (None, _) | (_, Some(true)) => Ok(()),
            (_, Some(false)) => Err(NotDemoted::Failed),
            (Some(led), None) => run_on_loss(args, led).map_err(NotDemoted::FailsNow),
        };
        if hook_may_run { demoted.and(Err(NotDemoted::HookUnknown)) } else { demoted }
    }
}

/// How long before its timer ends the demoter it says why.
const TO_SAY_WHY: Duration = Duration::from_millis(50);

/// Calls `act`, and at `limit` meanwhile `late`, on a thread of its own if it starts: a storage may hang in the kernel.
fn unless_done_by(limit: Instant, late: impl FnOnce() + Send, act: impl FnOnce()) {
    let (done, is_done) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let watch = move || {
            let left = SystemClock::read().until(limit);
            if is_done.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
                late();
            }
        };
        let _watching = thread::Builder::new().name("late".into()).spawn_scoped(scope, watch);
        act();
        drop(done);
    });
}

/// Ends a hook whose shell runs; otherwise the hook is over, and its number may be another's. Returns whether it ended.
fn end(group: Pid, leader: OwnedFd) -> bool {
    if ends_by(&leader, Instant::ORIGIN) {
        return true;
    }
    let _ = kill_process_group(group, Signal::KILL);
    ends_by(&leader, SystemClock::read().after(KILL_TIMEOUT))
}

/// Runs the on-loss hook. Returns why it is no attestation. It has its time even past the end of the lease: a
/// demotion that is cut off helps neither this machine nor the next leader.
fn run_on_loss(args: &ElectArgs, led: RecordId) -> Result<(), String> {
    let ElectArgs { candidate, on_loss, hook_timeout, .. } = args;
    let name = candidate.name.as_str();
    let leadership = Leadership {
        name: name.to_owned(),
        slot: led.slot,
        epoch: led.epoch,
        holder: candidate.own_holder().map_err(|refusal| refusal.to_string())?,
        incarnation: led.incarnation,
    };
    let mut child = start_hook(on_loss, leadership.environment(env::vars_os(), candidate.withheld()))
        .map_err(|cause| format!("could not be started: {}", ResourceLimit::from(cause)))?;
    say!("{name} slot {}: vvm elect is dead; running the on-loss hook", led.slot);
    let group = Pid::from_child(&child);
    let process = pidfd_open(group, PidfdFlags::empty()).map_err(|errno| errno.to_string())?;
    if !ends_by(&process, SystemClock::read().after(*hook_timeout)) {
        kill(&mut child);
        return Err("took too long and was killed".into());
    }
    // Reaped, its number leads the group as long as a member is left.
    let status = child.wait().map_err(|cause| cause.to_string())?;
    if !status.success() {
        return Err(format!("ended with {status}"));
    }
    match test_kill_process_group(group) {
        Err(Errno::SRCH) => Ok(()),
        _ => Err("has left processes behind".into()),
    }
}

pub(super) fn start_hook(
    line: &str,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> io::Result<Child> {
    let mut command = Command::new("sh");
    command.args(["-c", line]).env_clear().envs(environment);
    command.process_group(0).stdin(Stdio::null()).spawn()
}

/// How long a killed process is waited for. It ends at once, unless it hangs in the kernel.
pub(super) const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// Kills a child and its process group. Returns whether the child has ended within [`KILL_TIMEOUT`]: the thread of the
/// hooks is the deadman's only trigger, so it must not wait for a process that hangs in the kernel (I10).
pub(super) fn kill(child: &mut Child) -> bool {
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    ends(child)
}

/// Without a descriptor it can't wait, and does not say that the child hangs.
fn ends(child: &mut Child) -> bool {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty());
    let has_ended =
        process.map_or(true, |process| ends_by(&process, SystemClock::read().after(KILL_TIMEOUT)));
    // Waits for nothing: a tracer keeps a process from its parent until it has reaped it itself.
    let _ = child.try_wait();
    has_ended
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::args::tests::parsed;
    use ielections::{Epoch, Incarnation};
    use std::sync::Arc;

    /// Calls `act` with a demoter. No report to it ends meanwhile.
    pub(in crate::elect) fn while_reports_wait<T>(act: impl FnOnce(&Arc<Demoter>) -> T) -> T {
        let process = Mutex::new(Process::Dismissed);
        let (name, settings) = ("n".into(), OsString::new());
        let demoter = Arc::new(Demoter { name, arguments: Vec::new(), settings, process });
        let _waits = demoter.process();
        act(&demoter)
    }

    #[test]
    fn storage_that_hangs_is_named_before_the_release_ends_and_one_that_answers_is_not() {
        let (late, is_late) = mpsc::channel();
        unless_done_by(
            Instant::ORIGIN,
            || late.send(()).unwrap(),
            || is_late.recv_timeout(harness::HANG_LIMIT).unwrap(),
        );
        unless_done_by(Instant::NEVER, || unreachable!(), || ());
    }

    #[test]
    fn every_message_survives_its_note() {
        let incarnation = Incarnation::from_bytes(std::array::from_fn(|place| place as u8));
        let leading = RecordId { slot: u32::MAX, epoch: Epoch::new(Epoch::MAX).unwrap(), incarnation };
        let mut messages = vec![
            ToDemoter::Host(ToGuardian::Claim(None)),
            ToDemoter::Host(ToGuardian::Leading(leading)),
            ToDemoter::Deadline(None),
            ToDemoter::Deadline(Some(Instant::NEVER)),
            ToDemoter::Runs(rustix::process::getpid()),
        ];
        for hook in [Hook::OnLead, Hook::OnLoss] {
            messages.push(ToDemoter::Starts(hook));
            messages.extend([true, false].map(|success| ToDemoter::Ended(hook, success)));
        }
        for message in messages {
            assert_eq!(ToDemoter::read(message.into()), Some(message));
        }
        assert_eq!(ToDemoter::read(DeathNotice { kind: OWN + 4, words: [0; 4] }), None);
    }

    fn args(on_loss: &str) -> ElectArgs {
        parsed(&["--storage", "sqlite:x.db", "--name", "n", "--on-lead", ":", "--on-loss", on_loss])
    }

    fn led() -> RecordId {
        let incarnation = Incarnation::from_bytes([5; 16]);
        RecordId { slot: 1, epoch: Epoch::new(7).unwrap(), incarnation }
    }

    fn after(messages: &[ToDemoter]) -> Demotion {
        let mut demotion = Demotion::default();
        let begun = [
            ToDemoter::Host(ToGuardian::Leading(led())),
            ToDemoter::Starts(Hook::OnLead),
            ToDemoter::Ended(Hook::OnLead, true),
        ];
        begun.iter().chain(messages).for_each(|message| demotion.hear(*message, None));
        demotion
    }

    fn demoted(on_loss: &str, messages: &[ToDemoter]) -> Result<(), NotDemoted> {
        after(messages).demote(&args(on_loss))
    }

    #[test]
    fn only_a_hook_that_succeeds_in_time_and_leaves_nothing_attests() {
        let fails = |text: &str| Err(NotDemoted::FailsNow(text.into()));
        assert_eq!(demoted("test $VVM_LEADER_EPOCH = 7", &[]), Ok(()));
        assert_eq!(demoted("exit 3", &[]), fails("ended with exit status: 3"));
        let short = ElectArgs { hook_timeout: Duration::from_millis(50), ..args("sleep 1000") };
        assert_eq!(after(&[]).demote(&short), fails("took too long and was killed"));
        let daemon = "sleep 0.5 & exit 0";
        assert_eq!(demoted(daemon, &[]), fails("has left processes behind"));
        assert_eq!(demoted("exit 3", &[ToDemoter::Ended(Hook::OnLoss, true)]), Ok(()), "it is done");
        let failed = demoted(":", &[ToDemoter::Ended(Hook::OnLoss, false)]);
        assert_eq!(failed, Err(NotDemoted::Failed));
        let started = demoted(":", &[ToDemoter::Starts(Hook::OnLoss)]);
        assert_eq!(started, Err(NotDemoted::HookUnknown));
    }

    #[test]
    fn hook_of_the_dead_leader_is_ended_before_the_on_loss_hook_runs() {
        let mut hook = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        let line = format!("! test -e /proc/{}/exe", hook.id());
        assert_eq!(while_runs(&hook, &hook).demote(&args(&line)), Ok(()));
        assert!(!hook.wait().unwrap().success());
    }

    #[test]
    fn on_loss_hook_of_the_start_is_ended_although_nothing_was_claimed() {
        let mut hook = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        let demotion = Demotion { running: while_runs(&hook, &hook).running, ..Demotion::default() };
        demotion.act(&args(":"));
        assert!(hook.try_wait().unwrap().is_some());
    }

    /// The note was read after the end of the hook, when another process has its number.
    #[test]
    fn process_with_the_number_of_a_hook_that_has_ended_is_not_killed() {
        let mut stranger = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        let mut hook = Command::new("true").spawn().unwrap();
        let mut demotion = while_runs(&stranger, &hook);
        hook.wait().unwrap();
        assert_eq!(demotion.demote(&args(":")), Ok(()));
        assert!(stranger.try_wait().unwrap().is_none());
        assert!(kill(&mut stranger));
    }

    /// What the demoter knows while a hook runs that has the number of one process, and is the other.
    fn while_runs(number: &Child, process: &Child) -> Demotion {
        let mut demotion = after(&[]);
        let process = pidfd_open(Pid::from_child(process), PidfdFlags::empty()).unwrap();
        demotion.hear(ToDemoter::Runs(Pid::from_child(number)), Some(process));
        demotion
    }

    /// The leader was stopped until another process led, and then killed.
    #[test]
    fn on_loss_hook_runs_to_its_end_after_the_end_of_the_lease() {
        let folder = tempfile::tempdir().unwrap();
        let done = folder.path().join("done");
        let claim = ToDemoter::Host(ToGuardian::Claim(Some(led())));
        let past = ToDemoter::Deadline(Some(SystemClock::read().before(Duration::from_secs(60))));
        after(&[claim, past]).act(&args(&format!("sleep 0.1; echo > {}", done.display())));
        assert!(done.exists());
    }

    /// A process of state D can't be made here. This one is killed, and another stands for it that does not end.
    #[test]
    fn hook_that_hangs_in_the_kernel_is_not_waited_for_and_attests_nothing() {
        let mut hook = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        let hangs = pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).unwrap();
        let running = Running::Group(Pid::from_child(&hook), hangs);
        let mut demotion = Demotion { running, demoted: Some(true), ..Demotion::default() };
        assert_eq!(demotion.demote(&args(":")), Err(NotDemoted::HookUnknown));
        assert!(!hook.wait().unwrap().success());
    }

    #[test]
    fn child_that_does_not_end_is_not_waited_for_without_limit() {
        let mut child = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        assert!(!ends(&mut child), "it was not killed");
        assert!(kill(&mut child));
    }
}
