//! The worker of the demo: writes down that it is at work, until it is told to stop or is killed.

use super::{
    args::DemoWorkerArgs,
    heartbeat::{Log, REST, Word},
};
use crate::{
    announce::say,
    cli::exit,
    signals::{Signals, asks_to_stop},
};
use ielections::Epoch;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{env, io, process::ExitCode};

/// Why there is no work.
#[derive(Debug, thiserror::Error)]
enum WorkError {
    #[error("this command is for the workers of `vvm demo`: it needs VVM_LEADER_EPOCH")]
    NoEpoch,
    #[error("the worker of `vvm demo` can't write its log: {0}")]
    Log(#[from] io::Error),
}

/// Works.
pub(crate) fn main(worker: &DemoWorkerArgs) -> ExitCode {
    match work(worker) {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            say!("{refusal}");
            match refusal {
                WorkError::NoEpoch => exit::MISUSE.into(),
                WorkError::Log(_) => exit::SYSTEM.into(),
            }
        }
    }
}

fn work(worker: &DemoWorkerArgs) -> Result<(), WorkError> {
    let epoch = env::var("VVM_LEADER_EPOCH").ok().and_then(|epoch| epoch.parse().ok());
    let epoch = epoch.and_then(|epoch| Epoch::new(epoch).ok()).ok_or(WorkError::NoEpoch)?;
    let mut log = Log::open(&worker.log, epoch)?;
    // Before anything else is done: whoever acts before it writes could overlap unseen.
    log.write(Word::Begin)?;
    let mut signals = Signals::catch()?;
    let rest = Timespec { tv_sec: 0, tv_nsec: REST.subsec_nanos().into() };
    while !signals.pending().into_iter().flatten().any(|caught| asks_to_stop(caught.signal)) {
        log.write(Word::Beat)?;
        // Interrupted is as good as rested.
        let _ = poll(&mut [PollFd::new(&signals, PollFlags::IN)], Some(&rest));
    }
    log.write(Word::End)?;
    Ok(())
}
