//! The process of a trial: arms its deadman, gets into its state, says so, and waits.
//!
//! What it says is one line: the deadline, in nanoseconds on the machine's clock.

use crate::{signs, state::State};
use std::{
    convert::Infallible,
    error::Error,
    fs::File,
    future, io,
    num::NonZero,
    sync::{Arc, Barrier},
    thread,
    time::Duration,
};
use tokio::runtime::{Builder, Runtime};
use vvm_deadman::{Deadman, Subject, SystemOptions};

/// Returns only when something went wrong before the deadline. `signs` is for a state that leaves signs of
/// life.
pub(crate) fn run(
    state: State,
    deadline_in: Duration,
    signs: Option<File>,
) -> Result<Infallible, Box<dyn Error>> {
    let deadman = Deadman::system(SystemOptions::default())?;
    let deadline = deadman.now().after(deadline_in);
    let subject = Subject { key: "trial".into(), holder: "deadman-trials".into(), epoch: 1 };
    // Owned until the end, and never disarmed.
    let _armed = deadman.arm(subject, deadline)?;
    let ready = || println!("{}", deadline.as_nanos());
    match state {
        State::Idle | State::Stopped => ready(),
        State::Spinning => {
            let signs = Arc::new(signs.ok_or("a process that spins needs a file for its signs of life")?);
            let spin = move |thread| {
                let error = signs::leave(&signs, thread);
                eprintln!("no sign of life could be left: {error}");
            };
            let _runtime = occupied(spin)?;
            ready();
            park();
        }
        State::Blocked => {
            let _runtime = occupied(|_| block())?;
            ready();
            block();
        }
        State::StorageHung => {
            let runtime = runtime(NonZero::<usize>::MIN)?;
            let renewal = runtime.spawn(unanswered());
            ready();
            runtime.block_on(renewal)?;
        }
    }
    park()
}

/// A runtime each of whose threads does `work`, and has begun to.
fn occupied(work: impl Fn(usize) + Clone + Send + 'static) -> io::Result<Runtime> {
    let threads = thread::available_parallelism()?;
    let runtime = runtime(threads)?;
    let all_there = Arc::new(Barrier::new(threads.get() + 1));
    for thread in 0..threads.get() {
        let (all_there, work) = (Arc::clone(&all_there), work.clone());
        // Never joined: the process ends first, which is the point.
        drop(runtime.spawn(async move {
            all_there.wait();
            work(thread);
        }));
    }
    all_there.wait();
    Ok(runtime)
}

fn runtime(threads: NonZero<usize>) -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(threads.get()).build()
}

/// A read from standard input, on the other end of which nobody ever writes.
fn block() {
    let mut byte = [0];
    while rustix::io::read(rustix::stdio::stdin(), &mut byte).is_err() {}
}

/// What a storage call looks like whose answer never comes.
async fn unanswered() {
    future::pending().await
}

fn park() -> ! {
    loop {
        thread::park();
    }
}
