//! Supervisors that are killed or hang, seen by their guardian, and a namespace whose maker is killed. A program of its
//! own, because it is guardian and supervisor.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not a test without a harness")]

use rustix::{
    net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
        sendmsg, socketpair,
    },
    process::{Pid, PidfdFlags, Signal, WaitOptions, getpid, getppid, kill_process, pidfd_open, wait},
};
use std::{
    env,
    ffi::OsStr,
    fs,
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::{
        fd::AsFd as _,
        unix::{ffi::OsStrExt as _, net::UnixDatagram, process::CommandExt as _},
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};
use vvm_containment::{
    Containment, Family, GuardEnded, GuardReport, GuardedTrigger, Level, OWN_BINARY, ProcessEnd,
    RequestedLevel, SupervisionEvent, Supervisor, ends_by, guard, stage,
};
use vvm_deadman::{SECOND_LAYER_BEHIND, Subject, Trigger};

fn main() -> ExitCode {
    match stage::enter() {
        Ok(None) => {}
        Ok(Some(status)) => return status,
        Err(refusal) => panic!("{refusal}"),
    }
    match env::args_os().nth(1).as_deref().and_then(OsStr::to_str) {
        Some("named-otherwise") => supervisor_that_outlives_its_deadline_is_killed(),
        Some("stage-hanging") => finish_and_hang(),
        Some("stage-overdue") => outlive_a_deadline(),
        Some("stage-moving") => move_the_deadline_of_a_stopped_guardian(),
        _ => {
            supervisor_that_outlives_its_deadline_is_killed();
            program_whose_name_is_no_text_starts_its_stages();
            guardian_that_was_stopped_heeds_the_last_deadline();
            supervisor_that_hangs_in_the_kernel_is_left_behind();
            process_1_whose_maker_is_killed_before_it_is_ready_starts_nothing();
        }
    }
    ExitCode::SUCCESS
}

fn guarded(arguments: &[&OsStr], on_report: impl FnMut(GuardReport)) -> GuardEnded {
    let containment = Containment::establish(RequestedLevel::Exactly(Level::Guardian)).unwrap();
    guard(arguments.iter().map(Into::into).collect(), &[], containment, on_report).unwrap()
}

/// A trigger that kills nothing: the process hangs, and its own timers with it.
#[derive(Debug)]
struct NoTrigger;

impl Trigger for NoTrigger {
    fn set_earliest(&self, _: Option<(Instant, &Subject)>) -> io::Result<()> {
        Ok(())
    }

    fn now(&self) -> Instant {
        SystemClock::read()
    }
}

fn outlive_a_deadline() {
    let supervisor = Supervisor::accept().unwrap();
    let name = fs::read_to_string("/proc/self/comm").unwrap();
    assert!(name.starts_with("guarding-"), "{name}");
    let trigger = GuardedTrigger::over(Arc::new(NoTrigger), supervisor.guardian);
    let subject = Subject { key: "payroll".into(), holder: "here".into(), epoch: 1 };
    let deadline = trigger.now().after(Duration::from_millis(50));
    trigger.set_earliest(Some((deadline, &subject))).unwrap();
    loop {
        thread::park();
    }
}

/// Shows I4.
fn supervisor_that_outlives_its_deadline_is_killed() {
    let ended = guarded(&["stage-overdue".as_ref()], |report| panic!("{report:?}"));
    assert_eq!(ended.supervisor, Some(ProcessEnd::Signalled(Signal::KILL.as_raw())));
    assert!(ended.proven && ended.deadline_passed);
    assert!(ended.deadline.is_some_and(|deadline| deadline <= ended.reaped_at));
    println!("a supervisor that outlives its deadline is killed");
}

fn program_whose_name_is_no_text_starts_its_stages() {
    let name = OsStr::from_bytes(b"guarding-\xff");
    let status = Command::new(OWN_BINARY).arg0(name).arg("named-otherwise").status().unwrap();
    assert!(status.success(), "{status}");
    println!("a program whose name is no text starts its stages");
}

fn move_the_deadline_of_a_stopped_guardian() {
    let (guardian, process) = (Supervisor::accept().unwrap().guardian, getppid().unwrap());
    let confirmed = || {
        while guardian.receive().is_none() {
            SystemClock::block_for(Duration::from_millis(1));
        }
    };
    let trigger = GuardedTrigger::over(Arc::new(NoTrigger), guardian.clone());
    let subject = Subject { key: "payroll".into(), holder: "here".into(), epoch: 1 };
    // Far enough for a busy machine to stop the guardian before.
    let deadline = trigger.now().after(Duration::from_secs(8));
    trigger.set_earliest(Some((deadline, &subject))).unwrap();
    confirmed();
    kill_process(process, Signal::STOP).unwrap();
    trigger.set_earliest(Some((deadline.after(Duration::from_secs(3600)), &subject))).unwrap();
    // Its timer expires meanwhile.
    SystemClock::block_for(trigger.now().until(deadline.after(4 * SECOND_LAYER_BEHIND)));
    kill_process(process, Signal::CONT).unwrap();
    confirmed();
    trigger.set_earliest(None).unwrap();
    guardian.finished();
}

fn guardian_that_was_stopped_heeds_the_last_deadline() {
    let ended = guarded(&["stage-moving".as_ref()], |report| panic!("{report:?}"));
    assert_eq!((ended.supervisor, ended.deadline_passed), (Some(ProcessEnd::Exited(0)), false));
    println!("a guardian that was stopped heeds the last deadline");
}

/// The freezer of cgroup version 1: a frozen process can't be killed, like one that hangs in a system call.
fn freezer() -> Option<PathBuf> {
    // In a PID namespace of its own, each run is process 1.
    let now = SystemClock::read().as_nanos();
    let folder = PathBuf::from(format!("/sys/fs/cgroup/freezer/vvm-guarding-{}-{now}", getpid()));
    fs::create_dir(&folder).is_ok_and(|()| folder.join("freezer.state").exists()).then_some(folder)
}

fn set(freezer: &Path, state: &str) {
    fs::write(freezer.join("freezer.state"), state).unwrap();
}

const ENDS_WITHIN: Duration = Duration::from_secs(2);

#[allow(clippy::zombie_processes, reason = "a zombie is what is wanted")]
fn finish_and_hang() {
    let guardian = Supervisor::accept().unwrap().guardian;
    let folders = env::args_os().skip(2).map(PathBuf::from).collect::<Vec<_>>();
    // A daemon, which the guardian must not leave behind, too.
    let mut daemon = Command::new("sh");
    daemon.args(["-c", "for tasks; do echo $$ > \"$tasks\"; done; sleep 1000 &", "sh"]);
    daemon.args(folders.iter().skip(1).map(|folder| folder.join("tasks")));
    assert!(daemon.status().unwrap().success());
    // A child, which stays a zombie while its parent hangs.
    let _not_reaped = Command::new("sleep").arg("1000").spawn().unwrap();
    guardian.finished();
    let [own, of_daemon] = &folders[..] else { return };
    set(of_daemon, "FROZEN");
    fs::write(own.join("tasks"), getpid().to_string()).unwrap();
    set(own, "FROZEN");
}

fn supervisor_that_hangs_in_the_kernel_is_left_behind() {
    let ended = guarded(&["stage-hanging".as_ref()], |report| panic!("{report:?}"));
    assert_eq!((ended.supervisor, ended.proven), (Some(ProcessEnd::Exited(0)), true), "it did not hang");
    let (Some(own), Some(of_daemon)) = (freezer(), freezer()) else {
        return println!("not tested: a hanging supervisor needs root and the freezer of cgroup version 1");
    };
    let (mut left, began) = (None, SystemClock::read());
    // The daemon hangs for longer than the supervisor may.
    let thaws_at = began.after(3 * ENDS_WITHIN);
    let ended = thread::scope(|scope| {
        scope.spawn(|| {
            SystemClock::block_for(SystemClock::read().until(thaws_at));
            set(&of_daemon, "THAWED");
        });
        let arguments = ["stage-hanging".as_ref(), own.as_os_str(), of_daemon.as_os_str()];
        guarded(&arguments, |report| match report {
            GuardReport::Event(SupervisionEvent::LeftBehind(process)) => left = Some(process),
            report => panic!("{report:?}"),
        })
    });
    let family = Family::of_this_process().unwrap();
    let mut others = family.descendants();
    others.retain(|member| !ends_by(&family.pin(*member).unwrap(), Instant::ORIGIN));
    // Before anything is asserted: a frozen process outlives a test that fails.
    set(&own, "THAWED");
    assert_eq!(others.iter().map(|member| Some(member.pid)).collect::<Vec<_>>(), [left]);
    assert_eq!((ended.supervisor, ended.proven), (None, false));
    assert!(ended.reaped_at >= thaws_at, "another process still hung");
    // The supervisor, and its child after it.
    while wait(WaitOptions::empty()).is_ok() {}
    [own, of_daemon].iter().for_each(|folder| fs::remove_dir(folder).unwrap());
    println!("a supervisor that hangs in the kernel is left behind");
}

/// The supervisor takes the end of the maker without `Ready` for the proof that nothing runs. Shows I6.
fn process_1_whose_maker_is_killed_before_it_is_ready_starts_nothing() {
    const VERSION: u8 = 4;
    const BEGIN: u8 = 48;
    const READY: u8 = 64;
    let folder = env::temp_dir().join(format!("maker-{}-{}", getpid(), SystemClock::read().as_nanos()));
    for is_killed in [false, true] {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let script = format!("mkdir '{}'", folder.display());
        let mut maker = Command::new(OWN_BINARY)
            .args(["stage-namespace", "--", "sh", "-c", &script])
            .stdin(Stdio::from(far))
            .process_group(0)
            .spawn()
            .unwrap();
        let number = Pid::from_child(&maker);
        let process = pidfd_open(number, PidfdFlags::empty()).unwrap();
        while Family::of_this_process().unwrap().children_of(number).is_empty() {
            if ends_by(&process, Instant::ORIGIN) {
                maker.wait().unwrap();
                println!("not tested: this machine does not allow PID namespaces");
                return;
            }
            thread::yield_now();
        }
        if is_killed {
            maker.kill().unwrap();
            maker.wait().unwrap();
        }
        let mut begin = [0; 40];
        begin[..2].copy_from_slice(&[VERSION, BEGIN]);
        let input = fs::File::open("/dev/null").unwrap();
        let guardian = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        let descriptors = [input.as_fd(), guardian.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
        sendmsg(&near, &[IoSlice::new(&begin)], &mut ancillary, SendFlags::NOSIGNAL).unwrap();
        let (link, mut frame) = (UnixDatagram::from(near), [0; 40]);
        let mut was_ready = false;
        link.set_nonblocking(false).unwrap();
        while link.recv(&mut frame).is_ok_and(|length| length > 0) {
            was_ready |= frame[1] == READY;
        }
        assert_eq!((was_ready, folder.exists()), (!is_killed, !is_killed));
        let _ = (maker.wait(), fs::remove_dir(&folder));
    }
    println!("process 1 whose maker is killed before it is ready starts nothing");
}
