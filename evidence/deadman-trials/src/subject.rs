//! The process of a trial: arms its deadman, enters its state, prints its deadline in nanoseconds on the
//! machine's clock, and waits.

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

/// Returns only after an error. `signs` is for a state that leaves signs of life.
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
                eprintln!("a sign of life could not be written: {error}");
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

/// Returns a runtime whose threads all run `work`.
fn occupied(work: impl Fn(usize) + Clone + Send + 'static) -> io::Result<Runtime> {
    let threads = thread::available_parallelism()?;
    let runtime = runtime(threads)?;
    let all_there = Arc::new(Barrier::new(threads.get() + 1));
    for thread in 0..threads.get() {
        let (all_there, work) = (Arc::clone(&all_there), work.clone());
        // Never joined: the process dies first.
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

/// Reads from standard input, to which the parent never writes.
fn block() {
    let mut byte = [0];
    while rustix::io::read(rustix::stdio::stdin(), &mut byte).is_err() {}
}

/// A storage call without an answer.
async fn unanswered() {
    future::pending().await
}

fn park() -> ! {
    loop {
        thread::park();
    }
}
