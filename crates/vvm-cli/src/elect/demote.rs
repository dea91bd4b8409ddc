//! `vvm stage-demote`: the demoter, which waits for the death of its leader.

use super::{
    demotion::Demotion,
    to_demoter::{LENGTH, ToDemoter},
};
use crate::{announce, args::ElectArgs, contained::conclude};
use rustix::{
    io::Errno,
    net::{RecvFlags, SocketType, recv, sockopt::socket_type},
    stdio::stdin,
};
use std::process::ExitCode;
use vvm_containment::{Signals, StageError};

/// Runs the demoter of a `vvm elect`. Its standard input is the link.
pub(crate) fn main(args: &ElectArgs) -> ExitCode {
    if socket_type(stdin()) != Ok(SocketType::SEQPACKET) {
        return conclude(&StageError::NotAStage);
    }
    // A service manager signals every process of a unit. This one ends after its leader. The signals are
    // caught and not ignored, because hooks would inherit that.
    let caught = Signals::catch();
    let _ = rustix::thread::set_name(c"vvm-demote");
    announce::start_log(args.candidate.log_format);
    let mut demotion = Demotion::default();
    loop {
        let mut bytes = [0; LENGTH];
        match recv(stdin(), &mut bytes[..], RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            // The kernel closes the link when the last thread of the leader has ended. An orderly leader ends
            // this process before.
            Ok((0, _)) => break,
            Ok(_) => ToDemoter::of_bytes(&bytes).into_iter().for_each(|message| demotion.hear(message)),
            Err(errno) => return conclude(&StageError::System(errno.into())),
        }
    }
    demotion.act(args);
    drop(caught);
    ExitCode::SUCCESS
}
