//! [`Release`]: after the death of a host or keeper, the guardian has the record released, so that the next
//! leader does not wait for the rest of the TTL.
//!
//! The guardian has proof that nothing of the leadership runs (I6). The release itself runs in a process of
//! its own, `stage-release`, because the guardian must not hang with a storage.

use super::ending::Told;
use crate::{
    announce::say,
    args::RunArgs,
    exit,
    settings::HANDED_ON,
    stage_release::{Order, VARIABLE},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, getpid, pidfd_open},
};
use std::{
    ffi::OsString,
    io,
    process::{Child, Command, Stdio},
};
use vvm_clock::{Instant, SystemClock};
use vvm_containment::{Ended, GuardEnded, OWN_BINARY};
use vvm_host::operate::HostEnd;

/// A release to be run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Release {
    order: Order,
    /// When it begins, after `--quiet-time`.
    from: Instant,
    /// When it is given up.
    until: Instant,
}

impl Release {
    /// Returns the release of what a dead host led or had claimed: the guardian knows each claim before it is
    /// sent. `None` without proof of the end of every process, without such a claim, and if the host has
    /// ended in an orderly way: then it has released the record itself, or had a reason not to. Its one
    /// reason that does not hold for the guardian is a dead keeper: what the keeper had started are children
    /// of the guardian since (I6).
    pub(super) fn of(told: &Told, end: &GuardEnded, args: &RunArgs) -> Option<Self> {
        let leading = told.claim?;
        let &GuardEnded { proven, reaped_at, deadline, .. } = end;
        let of_host =
            HostEnd { proven, orderly: told.farewell.is_some() && !told.unproven, reaped_at, deadline };
        let (from, until) =
            of_host.release_window(SystemClock::read(), args.candidate.ttl, args.quiet_time)?;
        let ended = if told.unproven { "keeper of the command died".into() } else { ended_host(end) };
        let how = format!("released by the guardian after the {ended}");
        Some(Self { order: Order { from: getpid(), leading, how }, from, until })
    }

    /// Runs it, for as long as it may take. Reports what keeps it from being run.
    pub(super) fn run(&self, arguments: Vec<OsString>, settings: OsString) {
        SystemClock::block_for(SystemClock::read().until(self.from));
        let mut command = Command::new(OWN_BINARY);
        command.args(arguments).env(HANDED_ON, settings).env(VARIABLE, self.order.to_string());
        // Standard output is the command's.
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let ran = command.spawn().and_then(|child| self.wait_for(child));
        ran.unwrap_or_else(|cause| say!("the record is not released and expires by its TTL: {cause}"));
    }

    fn wait_for(&self, mut child: Child) -> io::Result<()> {
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
        loop {
            let left = SystemClock::read().until(self.until);
            let longest = Timespec::try_from(left).map_err(io::Error::other)?;
            // After an interruption, again with the time left.
            let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&longest));
            if child.try_wait()?.is_some() {
                return Ok(());
            }
            if left.is_zero() {
                child.kill()?;
                return Err(io::Error::other("the storage does not answer"));
            }
        }
    }
}

/// Says how the host ended.
fn ended_host(end: &GuardEnded) -> String {
    match end.supervisor {
        Some(Ended::Exited(exit::DEADMAN)) => "host was killed at its deadline".into(),
        Some(Ended::Signalled(number)) => {
            let name = signal_hook::low_level::signal_name(number).map(str::to_owned);
            let name = name.unwrap_or_else(|| format!("signal {number}"));
            format!("host was killed{} ({name})", if end.deadline_passed { " at its deadline" } else { "" })
        }
        Some(ended @ Ended::Exited(_)) => format!("host {ended}"),
        None => "host was gone".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notes::{Farewell, Leading};
    use clap::{Args as _, FromArgMatches as _};
    use ielections::{Epoch, Incarnation};
    use std::time::Duration;
    use vvm_containment::Level;

    fn parsed(words: &[&str]) -> RunArgs {
        let described = RunArgs::augment_args(clap::Command::new("run"));
        RunArgs::from_arg_matches(&described.get_matches_from(words)).unwrap()
    }

    fn end(proven: bool, deadline: Option<Instant>) -> GuardEnded {
        GuardEnded {
            deadline,
            deadline_passed: false,
            supervisor: Some(Ended::Signalled(9)),
            level: Level::Guardian,
            reaped_at: SystemClock::read(),
            proven,
        }
    }

    #[test]
    fn only_a_leader_that_died_without_a_word_and_with_proof_is_released() {
        let words = ["vvm", "--storage", "sqlite:x.db", "--name", "n", "--ttl", "20s", "--", "true"];
        let mut args = parsed(&words);
        let epoch = Epoch::new(7).unwrap();
        let leading = Leading { slot: 3, epoch, incarnation: Incarnation::from_bytes([5; 16]) };
        let leader = Told { claim: Some(leading), ..Told::default() };
        let soon = Some(SystemClock::read().after(Duration::from_secs(9)));
        let release = Release::of(&leader, &end(true, soon), &args).unwrap();
        assert_eq!(release.order.leading, leading);
        assert_eq!(release.order.how, "released by the guardian after the host was killed (SIGKILL)");
        for (ended, how) in [
            // A panic.
            (Ended::Exited(101), "exited with status 101"),
            (Ended::Signalled(6), "was killed (SIGABRT)"),
            (Ended::Exited(exit::DEADMAN), "was killed at its deadline"),
        ] {
            let end = GuardEnded { supervisor: Some(ended), ..end(true, soon) };
            let release = Release::of(&leader, &end, &args).unwrap();
            assert_eq!(release.order.how, format!("released by the guardian after the host {how}"));
        }
        assert_eq!(Release::of(&leader, &end(false, soon), &args), None, "no proof");
        assert_eq!(Release::of(&Told::default(), &end(true, soon), &args), None, "no claim");
        let orderly = Told { farewell: Some(Farewell::Exit(0)), ..leader };
        assert_eq!(Release::of(&orderly, &end(true, soon), &args), None, "an orderly end");
        let without_keeper = Told { unproven: true, ..orderly };
        let release = Release::of(&without_keeper, &end(true, soon), &args).unwrap();
        assert_eq!(release.order.how, "released by the guardian after the keeper of the command died");
        assert_eq!(Release::of(&without_keeper, &end(false, soon), &args), None, "no proof");
        let expired = Some(SystemClock::read().before(Duration::from_secs(4)));
        assert_eq!(Release::of(&leader, &end(true, expired), &args), None, "after the lease");
        args.quiet_time = Duration::from_secs(12);
        let release = Release::of(&leader, &end(true, soon), &args).unwrap();
        assert!(
            release.from > SystemClock::read().after(Duration::from_secs(11)) && release.until > release.from
        );
        args.quiet_time = Duration::from_secs(14);
        assert_eq!(Release::of(&leader, &end(true, soon), &args), None, "the lease ends in the quiet time");
    }
}
