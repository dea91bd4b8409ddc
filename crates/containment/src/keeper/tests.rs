//! The order of a keeper's messages.

use super::*;
use crate::processes::{Ended, Family};
use rustix::process::{WaitId, WaitIdOptions, waitid};

/// A shim sends its refusal and ends at any moment, also between two looks of the keeper.
#[test]
fn last_message_of_a_shim_is_sent_before_the_end_of_its_command() {
    let ((link, supervisor), (to_shim, shim)) = (link::pair().unwrap(), link::pair().unwrap());
    let (supervisor, shim) = (Link::<ToKeeper, FromKeeper>::over(supervisor), Link::over(shim));
    // Stands for the process of the command.
    let command = Pid::INIT;
    let mut keeper = Keeper {
        link: &link,
        rules: KeeperRules::new(Duration::ZERO),
        guardian: open("/dev/null", OFlags::RDONLY, Mode::empty()).unwrap(),
        lines: &HelperLines::default(),
        containment: Containment::by_family(Family::of_this_process().unwrap()),
        timer: None,
        command: Some(ChildHandle { pid: command, group: Group::Own }),
        shim: Some(to_shim),
        helpers: Vec::new(),
        out_of_reach_report: OutOfReachReport::default(),
    };
    Link::<FromShim, ToShim>::send(&shim, &FromShim { errno: Errno::NOENT.raw_os_error() }).unwrap();
    keeper.note(Reaped { pid: command, ended: Ended::Exited(126) });
    let Some(Received::Message(first, _)) = supervisor.receive() else { panic!("no message") };
    assert_eq!(first, FromKeeper::NotExecuted(Errno::NOENT));
    let Some(Received::Message(second, _)) = supervisor.receive() else { panic!("one message") };
    assert_eq!(second, FromKeeper::Ended(Ended::Exited(126)));
}

#[test]
fn process_that_has_ended_has_no_name() {
    let mut process = Command::new("sleep").arg("1000").spawn().unwrap();
    let family = Family::of_this_process().unwrap();
    let member =
        family.descendants().into_iter().find(|member| member.pid == Pid::from_child(&process)).unwrap();
    assert!(name_of(&member).is_some_and(|name| name.starts_with(b"sleep\0")));
    process.kill().unwrap();
    // It stays a zombie, because it is not reaped.
    waitid(WaitId::Pid(member.pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
    assert_eq!(name_of(&member), None);
    process.wait().unwrap();
}
