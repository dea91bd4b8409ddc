//! [`Release`]: after the death of a host or keeper, the guardian has the record released, so that the next leader does
//! not wait for the rest of the TTL. The guardian has proof that nothing of the leadership runs (I6). The release
//! itself runs in a process of its own, `stage-release`, because the guardian must not hang with a storage.

use crate::{
    announce::{self, is_json, say, say_text, write_event},
    args::CandidateArgs,
    contained::conclude,
    exit,
    inspection::{InspectionError, inspect},
    leadership::{ExitWish, HostReport, RecordId},
    run::RunArgs,
    runtime::ends_a_candidate,
    settings::HANDED_ON,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, getpid, getppid, pidfd_open, set_parent_process_death_signal},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{
    env,
    ffi::OsString,
    io,
    num::NonZeroU32,
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    process::{Child, Command, ExitCode, Stdio},
    time::Duration,
};
use vvm_clock::{DisplayDuration, Instant, SystemClock};
use vvm_containment::{GuardEnded, OWN_BINARY, ProcessEnd, Signals, StageError, ends_by, signal_name};
use vvm_host::operate::{HostEnd, LeftBehind, Purpose};
use vvm_storage::SlotNumber;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Release {
    order: ReleaseOrder,
    from: Instant,
    until: Instant,
}

impl Release {
    /// Returns the release of what a dead host led or had claimed: the guardian knows each claim before it is sent.
    /// `None` without proof of the end of every process, and without such a claim. `None` also if the host has ended in
    /// an orderly way: it has released the record itself, or had a reason not to. Two of its reasons do not hold for
    /// the guardian. After a loss the storage did not take the host's release, but may take one of another process, as
    /// if a file of the host may not grow. And what a dead keeper had started are children of the guardian since (I6).
    pub(crate) fn new(told: &HostReport, end: &GuardEnded, args: &RunArgs) -> Option<Self> {
        let leading = told.claim?;
        let &GuardEnded { proven, reaped_at, .. } = end;
        let has_lost = told.farewell == Some(ExitWish::Exit(exit::LOST));
        // After a loss the host has disarmed the deadline.
        let deadline = if has_lost { end.last_deadline } else { end.deadline };
        let orderly = told.farewell.is_some() && !has_lost && !told.unproven;
        let of_host = HostEnd { proven, orderly, reaped_at, deadline };
        let (from, until) =
            of_host.release_window(SystemClock::read(), args.candidate.ttl, args.quiet_time)?;
        let ended = match (told.unproven, has_lost) {
            (true, _) => "keeper of the command died".into(),
            (false, true) => "leadership was lost".into(),
            (false, false) => ended_host(end),
        };
        let how = format!("released by the guardian after the {ended}");
        let order = ReleaseOrder {
            from: getpid().as_raw_pid(),
            leading,
            since_ns: told.since.as_nanos(),
            until_ns: until.as_nanos(),
            how,
        };
        Some(Self { order, from, until })
    }

    pub(crate) fn run(&self, arguments: Vec<OsString>, settings: OsString) {
        let ran = self.waits().and_then(|()| self.start(arguments, settings));
        ran.unwrap_or_else(|cause| say!("the record is not released and expires by its TTL: {cause}"));
    }

    /// Waits for the quiet time. Fails if a signal asks to stop meanwhile: the guardian passes it on to no host any more.
    fn waits(&self) -> io::Result<()> {
        let left = || SystemClock::read().until(self.from);
        if left().is_zero() {
            return Ok(());
        }
        let mut signals = Signals::catch()?;
        let longest = DisplayDuration(left());
        say!("after {longest} (--quiet-time), the record is {}", self.order.how);
        while !left().is_zero() {
            let pause = Timespec::try_from(left().min(Duration::from_secs(1))).ok();
            let _ = poll(&mut [PollFd::new(&signals, PollFlags::IN)], pause.as_ref());
            let caught = signals.pending().unwrap_or_default();
            if let Some(stop) = caught.into_iter().find(|caught| ends_a_candidate(caught.signal)) {
                let name = signal_name(stop.signal.as_raw());
                return Err(io::Error::other(format!("{name} came within --quiet-time")));
            }
        }
        Ok(())
    }

    fn start(&self, arguments: Vec<OsString>, settings: OsString) -> io::Result<()> {
        let mut command = Command::new(OWN_BINARY);
        let order = serde_json::to_string(&self.order).unwrap_or_default();
        command.args(arguments).env(HANDED_ON, settings).env(VARIABLE, order);
        // Standard output is the command's. Ctrl-C reaches the terminal's group alone.
        command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        self.wait_for(command.spawn()?)
    }

    fn wait_for(&self, mut child: Child) -> io::Result<()> {
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
        if ends_by(&process, self.until) {
            return match child.wait()?.signal() {
                Some(number) => {
                    Err(io::Error::other(format!("its process was ended by {}", signal_name(number))))
                }
                None => Ok(()),
            };
        }
        child.kill()?;
        Err(io::Error::other("the storage does not answer"))
    }
}

fn ended_host(end: &GuardEnded) -> String {
    match end.supervisor {
        Some(ProcessEnd::Exited(exit::DEADMAN)) => "host was killed at its deadline".into(),
        Some(ProcessEnd::Signalled(number)) => {
            let name = signal_name(number);
            format!("host was killed{} ({name})", if end.deadline_passed { " at its deadline" } else { "" })
        }
        Some(ended @ ProcessEnd::Exited(_)) => format!("host {ended}"),
        None => "host was gone".into(),
    }
}

pub(crate) const VARIABLE: &str = "VVM_STAGE_RELEASE";

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct ReleaseOrder {
    from: i32,
    leading: RecordId,
    since_ns: u64,
    until_ns: u64,
    how: String,
}

pub(crate) fn main(args: &RunArgs) -> ExitCode {
    let order = env::var(VARIABLE).ok().and_then(|order| serde_json::from_str::<ReleaseOrder>(&order).ok());
    let Some(ReleaseOrder { from, leading, since_ns, until_ns, how }) = order else {
        return conclude(&StageError::NotAStage);
    };
    announce::start_log(args.candidate.log_format);
    let dies_with_guardian = set_parent_process_death_signal(Some(Signal::KILL));
    // The kernel does not report a guardian that died before the line above.
    if dies_with_guardian.is_err() || getppid().map(Pid::as_raw_pid) != Some(from) {
        return conclude(&StageError::Abandoned);
    }
    let [since, until] = [since_ns, until_ns].map(Instant::from_nanos);
    match release(&args.candidate, (leading, since, until), ("guardian", &how)) {
        true => ExitCode::SUCCESS,
        false => exit::STORAGE.into(),
    }
}

/// Releases a dead leader's record for the process `by`, and reports `how` to history and log. False if it may stand.
pub(crate) fn release(
    candidate: &CandidateArgs,
    (leading, since, until): (RecordId, Instant, Instant),
    (by, how): (&str, &str),
) -> bool {
    let name = candidate.name.as_str();
    match try_to_release(candidate, leading, (since, until), how) {
        Ok(true) => report(name, leading, (by, how)),
        // The host had released it, its claim was not applied, or another process leads.
        Ok(false) => {}
        Err(refusal) => {
            say!("{name}: the record is not released and expires by its TTL: {refusal}");
            return false;
        }
    }
    true
}

fn try_to_release(
    candidate: &CandidateArgs,
    leading: RecordId,
    times: (Instant, Instant),
    how: &str,
) -> Result<bool, InspectionError> {
    let RecordId { slot, epoch, incarnation } = leading;
    let Some(number) = NonZeroU32::new(slot) else { return Ok(false) };
    let left = LeftBehind { slot: SlotNumber::new(number), epoch, incarnation, ttl: candidate.ttl };
    inspect((&candidate.storage, &candidate.name), Purpose::ReadAndWrite, async |storage| {
        let released = left.release(storage, how, times).await?;
        storage.wake_candidates(candidate.local_dir.as_ref());
        Ok(released)
    })
}

fn report(name: &str, leading: RecordId, (by, how): (&str, &str)) {
    let RecordId { slot, epoch, .. } = leading;
    say_text!("{name} slot {slot}: {how}; its epoch was {epoch}");
    if is_json() {
        let members = json!({"name": name, "slot": slot, "epoch": epoch.get(), "by": by, "reason": how});
        write_event("info", "released", members);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        args::tests::parsed,
        leadership::{ExitWish, RecordId},
    };
    use ielections::{Epoch, Incarnation};
    use vvm_containment::Level;

    fn end(proven: bool, deadline: Option<Instant>) -> GuardEnded {
        GuardEnded {
            deadline,
            last_deadline: deadline,
            deadline_passed: false,
            supervisor: Some(ProcessEnd::Signalled(9)),
            level: Level::Guardian,
            reaped_at: SystemClock::read(),
            proven,
        }
    }

    #[test]
    fn only_a_leader_that_died_without_a_word_and_with_proof_is_released() {
        let mut args: RunArgs =
            parsed(&["--storage", "sqlite:x.db", "--name", "n", "--ttl", "20s", "--", "true"]);
        let epoch = Epoch::new(7).unwrap();
        let leading = RecordId { slot: 3, epoch, incarnation: Incarnation::from_bytes([5; 16]) };
        let leader = HostReport { claim: Some(leading), ..HostReport::default() };
        let soon = Some(SystemClock::read().after(Duration::from_secs(9)));
        let release = Release::new(&leader, &end(true, soon), &args).unwrap();
        assert_eq!(release.order.leading, leading);
        assert_eq!(release.order.how, "released by the guardian after the host was killed (SIGKILL)");
        for (ended, how) in [
            (ProcessEnd::Exited(101), "exited with status 101"),
            (ProcessEnd::Signalled(6), "was killed (SIGABRT)"),
            (ProcessEnd::Exited(exit::DEADMAN), "was killed at its deadline"),
        ] {
            let end = GuardEnded { supervisor: Some(ended), ..end(true, soon) };
            let release = Release::new(&leader, &end, &args).unwrap();
            assert_eq!(release.order.how, format!("released by the guardian after the host {how}"));
        }
        assert_eq!(Release::new(&leader, &end(false, soon), &args), None, "no proof");
        assert_eq!(Release::new(&HostReport::default(), &end(true, soon), &args), None, "no claim");
        let orderly = HostReport { farewell: Some(ExitWish::Exit(0)), ..leader };
        assert_eq!(Release::new(&orderly, &end(true, soon), &args), None, "an orderly end");
        let lost = HostReport { farewell: Some(ExitWish::Exit(exit::LOST)), ..leader };
        let release = Release::new(&lost, &end(true, soon), &args).unwrap();
        assert_eq!(release.order.how, "released by the guardian after the leadership was lost");
        assert_eq!(Release::new(&lost, &end(false, soon), &args), None, "no proof");
        let past = SystemClock::read().before(Duration::from_secs(4));
        let disarmed = GuardEnded { last_deadline: Some(past), ..end(true, None) };
        assert_eq!(Release::new(&lost, &disarmed, &args), None, "the lease has ended");
        assert!(Release::new(&leader, &disarmed, &args).is_some(), "of a claim after that lease");
        let without_keeper = HostReport { unproven: true, ..orderly };
        let release = Release::new(&without_keeper, &end(true, soon), &args).unwrap();
        assert_eq!(release.order.how, "released by the guardian after the keeper of the command died");
        assert_eq!(Release::new(&without_keeper, &end(false, soon), &args), None, "no proof");
        args.quiet_time = Duration::from_secs(12);
        let release = Release::new(&leader, &end(true, soon), &args).unwrap();
        assert!(
            release.from > SystemClock::read().after(Duration::from_secs(11)) && release.until > release.from
        );
    }

    #[test]
    fn order_is_read_as_it_was_written() {
        let incarnation = Incarnation::from_bytes(std::array::from_fn(|place| 0xf0 | place as u8));
        let leading = RecordId { slot: 4, epoch: Epoch::new(1 << 60).unwrap(), incarnation };
        let order = ReleaseOrder {
            from: 7,
            leading,
            since_ns: u64::MAX,
            until_ns: 1,
            how: "released by the guardian".into(),
        };
        let text = serde_json::to_string(&order).unwrap();
        assert_eq!(serde_json::from_str::<ReleaseOrder>(&text).unwrap(), order);
        serde_json::from_str::<ReleaseOrder>(&text.replace(&format!("{}", 1_u64 << 60), "0")).unwrap_err();
    }
}
