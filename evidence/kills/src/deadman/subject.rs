//! The process of a trial: arms its deadman, enters its state, prints its deadline in nanoseconds on the
//! machine's clock, and waits.
//!
//! Each thread of a spinning process writes the time at which it last ran to a file, as a sign of life. The
//! end of a process depends on the scheduler, which must run each of its threads once more. Safety depends on
//! the last instruction of its threads.

use super::State;
use std::{
    convert::Infallible,
    error::Error,
    fs::{self, File},
    future, hint, io,
    num::NonZero,
    os::unix::fs::FileExt,
    path::Path,
    sync::{Arc, Barrier},
    thread,
    time::Duration,
};
use tokio::runtime::{Builder, Runtime};
use vvm_clock::{Instant, SystemClock};
use vvm_deadman::{Deadman, Subject, SystemOptions};

/// Returns only after an error. `signs` is for a state that leaves signs of life.
pub(crate) fn run(
    state: State,
    deadline_in: Duration,
    signs: Option<File>,
) -> Result<Infallible, Box<dyn Error>> {
    let deadman = Deadman::system(SystemOptions::default())?;
    let deadline = deadman.now().after(deadline_in);
    let subject = Subject { key: "trial".into(), holder: "kills".into(), epoch: 1 };
    // Owned until the end, and never disarmed.
    let _armed = deadman.arm(subject, deadline)?;
    let ready = || println!("{}", deadline.as_nanos());
    match state {
        State::Idle | State::Stopped => ready(),
        State::Spinning => {
            let signs = Arc::new(signs.ok_or("a process that spins needs a file for its signs of life")?);
            let spin = move |thread| {
                let error = leave_signs(&signs, thread);
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

/// The rounds between two signs: about 0.1 ms.
const ROUNDS: usize = 50_000;

const SIZE: usize = size_of::<u64>();

/// Spins, and writes signs to `file` at the place of thread `index`. Returns only after an error.
pub(crate) fn leave_signs(file: &File, index: usize) -> io::Error {
    loop {
        for _ in 0..ROUNDS {
            hint::spin_loop();
        }
        let now = SystemClock::read().as_nanos().to_le_bytes();
        if let Err(error) = file.write_all_at(&now, (index * SIZE) as u64) {
            return error;
        }
    }
}

/// Returns the last sign of all threads, if there is one.
pub(crate) fn last_sign(path: &Path) -> io::Result<Option<Instant>> {
    let signs = fs::read(path)?;
    let (signs, _) = signs.as_chunks::<SIZE>();
    Ok(signs.iter().map(|sign| Instant::from_nanos(u64::from_le_bytes(*sign))).max())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_sign_is_the_latest_of_all_threads() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(last_sign(file.path()).unwrap(), None);
        for (index, sign) in [7_u64, 9, 8].into_iter().enumerate() {
            file.as_file().write_all_at(&sign.to_le_bytes(), (index * SIZE) as u64).unwrap();
        }
        assert_eq!(last_sign(file.path()).unwrap(), Some(Instant::from_nanos(9)));
    }
}
