//! Supervisors that are killed or hang, seen by their guardian. A program of its own, because it is guardian
//! and supervisor.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not a test without a harness")]

use rustix::process::{Signal, WaitOptions, getpid, kill_process, wait};
use std::{
    env,
    ffi::OsStr,
    fs, io,
    path::PathBuf,
    process::{Command, ExitCode},
    sync::Arc,
    thread,
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};
use vvm_containment::{
    Containment, Ended, Event, Family, GuardEnded, GuardReport, GuardedTrigger, Level, Note, Supervisor,
    Wanted, ends_by, guard, stage,
};
use vvm_deadman::{Subject, Trigger};

fn main() -> ExitCode {
    match stage::enter() {
        Ok(None) => {}
        Ok(Some(status)) => return status,
        Err(refusal) => panic!("{refusal}"),
    }
    match env::args().nth(1).as_deref() {
        Some("stage-killed") => note_and_die(),
        Some("stage-hanging") => finish_and_hang(),
        Some("stage-overdue") => outlive_a_deadline(),
        _ => {
            notes_of_a_killed_supervisor_arrive_and_its_end_is_proven();
            supervisor_that_outlives_its_deadline_is_killed();
            supervisor_that_hangs_in_the_kernel_is_left_behind();
        }
    }
    ExitCode::SUCCESS
}

fn guarded(arguments: &[&OsStr], on_report: impl FnMut(GuardReport)) -> GuardEnded {
    let containment = Containment::establish(Wanted::Exactly(Level::Guardian)).unwrap();
    guard(arguments.iter().map(Into::into).collect(), &[], containment, on_report).unwrap()
}

fn note_and_die() {
    let guardian = Supervisor::accept().unwrap().guardian;
    let name = fs::read_to_string("/proc/self/comm").unwrap();
    assert!(name.starts_with("guarding-"), "{name}");
    guardian.note(Note { kind: 7, words: [1, 2, 3, u64::MAX] });
    kill_process(getpid(), Signal::KILL).unwrap();
}

fn notes_of_a_killed_supervisor_arrive_and_its_end_is_proven() {
    let mut notes = Vec::new();
    let ended = guarded(&["stage-killed".as_ref()], |report| match report {
        GuardReport::Note(note) => notes.push(note),
        GuardReport::Event(event) => panic!("{event:?}"),
    });
    assert_eq!(ended.supervisor, Some(Ended::Signalled(Signal::KILL.as_raw())));
    assert!(ended.proven && !ended.deadline_passed);
    assert_eq!(notes, [Note { kind: 7, words: [1, 2, 3, u64::MAX] }]);
    println!("notes of a killed supervisor arrive and its end is proven");
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
    let trigger = GuardedTrigger::over(Arc::new(NoTrigger), Supervisor::accept().unwrap().guardian);
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
    assert_eq!(ended.supervisor, Some(Ended::Signalled(Signal::KILL.as_raw())));
    assert!(ended.proven && ended.deadline_passed);
    assert!(ended.deadline.is_some_and(|deadline| deadline <= ended.reaped_at));
    println!("a supervisor that outlives its deadline is killed");
}

/// The freezer of cgroup version 1: a frozen process can't be killed, like one that hangs in a system call.
fn freezer() -> Option<PathBuf> {
    // In a PID namespace of its own, each run is process 1.
    let now = SystemClock::read().as_nanos();
    let folder = PathBuf::from(format!("/sys/fs/cgroup/freezer/vvm-guarding-{}-{now}", getpid()));
    fs::create_dir(&folder).is_ok_and(|()| folder.join("freezer.state").exists()).then_some(folder)
}

/// How long a supervisor that has finished may take to end, and as long again after it is killed.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

#[allow(clippy::zombie_processes, reason = "a zombie is what is wanted")]
fn finish_and_hang() {
    let guardian = Supervisor::accept().unwrap().guardian;
    // A daemon, which the guardian must not leave behind, too.
    assert!(Command::new("sh").args(["-c", "sleep 1000 &"]).status().unwrap().success());
    // A child, which stays a zombie while its parent hangs.
    let _not_reaped = Command::new("sleep").arg("1000").spawn().unwrap();
    guardian.finished();
    let Some(folder) = env::args_os().nth(2).map(PathBuf::from) else { return };
    fs::write(folder.join("tasks"), getpid().to_string()).unwrap();
    fs::write(folder.join("freezer.state"), "FROZEN").unwrap();
}

fn supervisor_that_hangs_in_the_kernel_is_left_behind() {
    let ended = guarded(&["stage-hanging".as_ref()], |report| panic!("{report:?}"));
    assert_eq!((ended.supervisor, ended.proven), (Some(Ended::Exited(0)), true), "it did not hang");
    let Some(folder) = freezer() else {
        return println!("left behind: not tried, for want of root or the freezer of cgroup version 1");
    };
    let (mut left, began) = (None, SystemClock::read());
    let ended = guarded(&["stage-hanging".as_ref(), folder.as_os_str()], |report| match report {
        GuardReport::Event(Event::LeftBehind(process)) => left = Some(process),
        report => panic!("{report:?}"),
    });
    let family = Family::of_this_process().unwrap();
    let mut others = family.descendants();
    others.retain(|member| !ends_by(&family.pin(*member).unwrap(), Instant::ORIGIN));
    // Before anything is asserted: a frozen process outlives a test that fails.
    fs::write(folder.join("freezer.state"), "THAWED").unwrap();
    assert_eq!(others.iter().map(|member| Some(member.pid)).collect::<Vec<_>>(), [left]);
    assert_eq!((ended.supervisor, ended.proven), (None, false));
    assert!(ended.reaped_at.since(began) >= 2 * ENDS_WITHIN, "it had too little time to end");
    // The supervisor, and its child after it.
    while wait(WaitOptions::empty()).is_ok() {}
    fs::remove_dir(folder).unwrap();
    println!("a supervisor that hangs in the kernel is left behind");
}
