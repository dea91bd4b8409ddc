//! Supervisors that are killed or hang, seen by their guardian. A program of its own, because it is guardian
//! and supervisor.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not a test without a harness")]

use rustix::process::{Signal, WaitOptions, getpid, kill_process, wait};
use std::{env, ffi::OsStr, fs, path::PathBuf, process::ExitCode};
use vvm_containment::{
    Containment, Deposit, Ended, Event, GuardEnded, GuardReport, Level, Supervisor, Wanted, guard, stage,
};

fn main() -> ExitCode {
    match stage::enter() {
        Ok(None) => {}
        Ok(Some(status)) => return status,
        Err(refusal) => panic!("{refusal}"),
    }
    match env::args().nth(1).as_deref() {
        Some("stage-depositor") => deposit_and_die(),
        Some("stage-hanging") => finish_and_hang(),
        _ => {
            deposits_of_a_killed_supervisor_are_returned();
            supervisor_that_hangs_in_the_kernel_is_left_behind();
        }
    }
    ExitCode::SUCCESS
}

fn guarded(arguments: &[&OsStr], on_report: impl FnMut(GuardReport)) -> GuardEnded {
    let containment = Containment::establish(Wanted::Exactly(Level::Guardian)).unwrap();
    guard(arguments.iter().map(Into::into).collect(), &[], containment, on_report).unwrap()
}

/// Longer than a pipe's buffer and a socket's message.
fn long_content() -> Vec<u8> {
    (0..300_000_u32).flat_map(u32::to_le_bytes).collect()
}

fn deposit_and_die() {
    let guardian = Supervisor::accept().unwrap().guardian;
    let name = fs::read_to_string("/proc/self/comm").unwrap();
    assert!(name.starts_with("guarding-"), "{name}");
    for (number, content) in [(1, b"replaced".to_vec()), (2, b"withdrawn".to_vec()), (7, long_content())] {
        guardian.deposit(number, &Deposit::new(&content).unwrap()).unwrap();
    }
    guardian.deposit(1, &Deposit::new(b"last").unwrap()).unwrap();
    guardian.withdraw(2).unwrap();
    kill_process(getpid(), Signal::KILL).unwrap();
}

fn deposits_of_a_killed_supervisor_are_returned() {
    let ended = guarded(&["stage-depositor".as_ref()], |report| panic!("{report:?}"));
    assert_eq!(ended.supervisor, Some(Ended::Signalled(Signal::KILL.as_raw())));
    assert!(ended.proven);
    let found = ended.deposits.iter().map(|deposit| deposit.read().unwrap()).collect::<Vec<_>>();
    assert_eq!(found, [b"last".to_vec(), long_content()]);
    for deposit in &ended.deposits {
        assert_eq!(rustix::io::pwrite(deposit, b"x", 0), Err(rustix::io::Errno::PERM), "it is sealed");
    }
    println!("deposits of a killed supervisor are returned");
}

/// The freezer of cgroup version 1: a frozen process can't be killed, like one that hangs in a system call.
fn freezer() -> Option<PathBuf> {
    let folder = PathBuf::from(format!("/sys/fs/cgroup/freezer/vvm-guarding-{}", getpid()));
    fs::create_dir(&folder).is_ok_and(|()| folder.join("freezer.state").exists()).then_some(folder)
}

fn finish_and_hang() {
    let guardian = Supervisor::accept().unwrap().guardian;
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
    let mut left = None;
    let ended = guarded(&["stage-hanging".as_ref(), folder.as_os_str()], |report| match report {
        GuardReport::Event(Event::LeftBehind(process)) => left = Some(process),
        report => panic!("{report:?}"),
    });
    assert!(left.is_some());
    assert_eq!((ended.supervisor, ended.proven), (None, false));
    fs::write(folder.join("freezer.state"), "THAWED").unwrap();
    wait(WaitOptions::empty()).unwrap();
    fs::remove_dir(folder).unwrap();
    println!("a supervisor that hangs in the kernel is left behind");
}
