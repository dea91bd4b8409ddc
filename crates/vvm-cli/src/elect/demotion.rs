//! [`Demotion`]: what a demoter knows of its leader, and does after the leader's death.

use super::to_demoter::{Hook, ToDemoter};
use crate::{announce::say, args::ElectArgs, leadership::Leadership, notes::Leading, stage_release};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, test_kill_process_group},
};
use std::{
    env,
    os::{fd::OwnedFd, unix::process::CommandExt as _},
    process::{Command, Stdio},
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};
use vvm_deadman::KernelTimer;

/// The longest that a release takes. With a slower storage, the next leader waits for the rest of the TTL.
const LIMIT: Duration = Duration::from_secs(5);

/// The state of the leader, by its messages.
#[derive(Default, Debug)]
pub(super) struct Demotion {
    /// The last claim that may have been applied and not been released.
    claim: Option<Leading>,
    deadline: Option<Instant>,
    /// The last leadership.
    led: Option<Leading>,
    running: Running,
    /// How its on-loss hook has ended. `Some(true)` also before its on-lead hook is started.
    demoted: Option<bool>,
}

/// A hook of the leader.
#[derive(Default, Debug)]
enum Running {
    #[default]
    Nothing,
    /// It may run, in a process that is not known.
    Somewhere,
    /// Its group, and a descriptor of the group's leader; none if that has ended.
    Group(Pid, Option<OwnedFd>),
}

/// Why no record is released.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
enum NotDemoted {
    #[error("a hook was being started and may still run")]
    HookUnknown,
    #[error("the on-loss hook had failed")]
    Failed,
    #[error("the on-loss hook {0}")]
    FailsNow(String),
}

impl Demotion {
    pub(super) fn hear(&mut self, message: ToDemoter) {
        match message {
            ToDemoter::Claim(claim) => self.claim = claim,
            ToDemoter::Deadline(deadline) => self.deadline = deadline,
            ToDemoter::Leading(leading) => (self.led, self.demoted) = (Some(leading), Some(true)),
            ToDemoter::Starts(hook) => {
                self.running = Running::Somewhere;
                if hook == Hook::OnLead {
                    self.demoted = None;
                }
            }
            ToDemoter::Runs(_, group) => {
                self.running = Running::Group(group, pidfd_open(group, PidfdFlags::empty()).ok());
            }
            ToDemoter::Ended(hook, success) => {
                self.running = Running::Nothing;
                if hook == Hook::OnLoss {
                    self.demoted = Some(success);
                }
            }
        }
    }

    /// Demotes for the dead leader and releases its record.
    ///
    /// The leader's process is gone and writes nothing. What leads may be any process, so nothing proves that
    /// it has stopped: the on-loss hook attests it by status 0 and by the end of all that it has started in
    /// its group. Only then the record is released (I6).
    pub(super) fn act(mut self, args: &ElectArgs) {
        let (Some(claim), candidate) = (self.claim, &args.candidate) else { return };
        let name = candidate.name.as_str();
        // The kill deadline is 0.8 TTL after the send of the last confirmed renewal.
        let lease_ends = self.deadline.map_or(Instant::NEVER, |at| at.after(candidate.ttl.get() / 5));
        if let Err(refusal) = self.demote(args, lease_ends) {
            say!("{name}: the record is not released and expires by its TTL: {refusal}");
            return;
        }
        let until = SystemClock::read().after(LIMIT).min(lease_ends);
        // A storage may hang in the kernel.
        let Ok(timer) = KernelTimer::new() else { return };
        if timer.set(Some(until)).is_err() {
            return;
        }
        let how = "released by the demoter after the death of vvm elect";
        stage_release::release(candidate, claim, ("demoter", how));
    }

    /// Ends a hook that runs, and runs the on-loss hook if that has not been done. A hook that was just being
    /// started can't be ended, so the demotion attests nothing then.
    fn demote(&mut self, args: &ElectArgs, lease_ends: Instant) -> Result<(), NotDemoted> {
        let hook_is_unknown = matches!(self.running, Running::Somewhere);
        if let Running::Group(group, leader) = std::mem::take(&mut self.running) {
            end(group, leader);
        }
        let demoted = match (self.led, self.demoted) {
            (None, _) | (_, Some(true)) => Ok(()),
            (_, Some(false)) => Err(NotDemoted::Failed),
            (Some(led), None) => run_on_loss(args, led, lease_ends).map_err(NotDemoted::FailsNow),
        };
        if hook_is_unknown { demoted.and(Err(NotDemoted::HookUnknown)) } else { demoted }
    }
}

/// Ends a hook whose shell still runs. A hook whose shell has ended is over, and its number may be another's.
fn end(group: Pid, leader: Option<OwnedFd>) {
    let Some(leader) = leader.filter(|leader| !has_ended(leader, Some(Duration::ZERO))) else { return };
    let _ = kill_process_group(group, Signal::KILL);
    has_ended(&leader, None);
}

/// Waits for the end of a process, at most for `longest`. Returns whether it has ended.
fn has_ended(process: &OwnedFd, longest: Option<Duration>) -> bool {
    let longest = longest.and_then(|longest| Timespec::try_from(longest).ok());
    poll(&mut [PollFd::new(process, PollFlags::IN)], longest.as_ref()).is_ok_and(|ready| ready > 0)
}

/// Runs the on-loss hook. Returns why it is no attestation.
fn run_on_loss(args: &ElectArgs, led: Leading, lease_ends: Instant) -> Result<(), String> {
    let ElectArgs { candidate, on_loss, hook_timeout, .. } = args;
    let name = candidate.name.as_str();
    say!("{name} slot {}: vvm elect is dead; running the on-loss hook", led.slot);
    let leadership = Leadership {
        name: name.to_owned(),
        slot: led.slot,
        epoch: led.epoch,
        holder: candidate.own_holder().map_err(|refusal| refusal.to_string())?,
        incarnation: led.incarnation,
    };
    let withheld = vvm_storage::url::credentials(&candidate.storage);
    let mut command = Command::new("sh");
    command.args(["-c", on_loss]).env_clear().envs(leadership.environment(env::vars_os(), withheld));
    let started = command.process_group(0).stdin(Stdio::null()).spawn();
    let mut child = started.map_err(|cause| format!("could not be started: {cause}"))?;
    let group = Pid::from_child(&child);
    let process = pidfd_open(group, PidfdFlags::empty()).map_err(|errno| errno.to_string())?;
    let kill_at = SystemClock::read().after(*hook_timeout).min(lease_ends);
    loop {
        let left = SystemClock::read().until(kill_at);
        if has_ended(&process, Some(left)) {
            break;
        }
        if left.is_zero() {
            let _ = kill_process_group(group, Signal::KILL);
            let _ = child.wait();
            return Err("took too long and was killed".into());
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args as _, FromArgMatches as _};
    use ielections::{Epoch, Incarnation};

    fn args(on_loss: &str) -> ElectArgs {
        let words =
            ["vvm", "--storage", "sqlite:x.db", "--name", "n", "--on-lead", ":", "--on-loss", on_loss];
        let described = ElectArgs::augment_args(clap::Command::new("elect"));
        ElectArgs::from_arg_matches(&described.get_matches_from(words)).unwrap()
    }

    /// Returns why nothing is released after these messages of a leader that had run its on-lead hook.
    fn demoted(on_loss: &str, messages: &[ToDemoter], lease: Duration) -> Result<(), NotDemoted> {
        let epoch = Epoch::new(7).unwrap();
        let led = Leading { slot: 1, epoch, incarnation: Incarnation::from_bytes([5; 16]) };
        let mut demotion = Demotion::default();
        let [lead, _] = [Hook::OnLead, Hook::OnLoss];
        for message in [ToDemoter::Leading(led), ToDemoter::Starts(lead), ToDemoter::Ended(lead, true)] {
            demotion.hear(message);
        }
        messages.iter().for_each(|message| demotion.hear(*message));
        demotion.demote(&args(on_loss), SystemClock::read().after(lease))
    }

    #[test]
    fn only_a_hook_that_succeeds_in_time_and_leaves_nothing_attests() {
        const LONG: Duration = Duration::from_secs(60);
        let fails = |text: &str| Err(NotDemoted::FailsNow(text.into()));
        assert_eq!(demoted("test $VVM_LEADER_EPOCH = 7", &[], LONG), Ok(()));
        assert_eq!(demoted("exit 3", &[], LONG), fails("ended with exit status: 3"));
        let late = demoted("sleep 1000", &[], Duration::from_millis(50));
        assert_eq!(late, fails("took too long and was killed"));
        let daemon = "sleep 0.5 & exit 0";
        assert_eq!(demoted(daemon, &[], LONG), fails("has left processes behind"));
        assert_eq!(demoted("exit 3", &[ToDemoter::Ended(Hook::OnLoss, true)], LONG), Ok(()), "it is done");
        let failed = demoted(":", &[ToDemoter::Ended(Hook::OnLoss, false)], LONG);
        assert_eq!(failed, Err(NotDemoted::Failed));
        let started = demoted(":", &[ToDemoter::Starts(Hook::OnLoss)], LONG);
        assert_eq!(started, Err(NotDemoted::HookUnknown));
    }

    #[test]
    fn hook_of_the_dead_leader_is_ended_before_the_on_loss_hook_runs() {
        let mut hook = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        let runs = ToDemoter::Runs(Hook::OnLead, Pid::from_child(&hook));
        let line = format!("! test -e /proc/{}/exe", hook.id());
        assert_eq!(demoted(&line, &[runs], Duration::from_secs(60)), Ok(()));
        assert!(!hook.wait().unwrap().success());
    }
}
