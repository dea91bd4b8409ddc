//! Starts a tokio runtime of one thread. And the signals that a `vvm` without a command catches.

use crate::exit;
use rustix::{
    io::Errno,
    process::{Pid, Signal, getpid},
};
use std::{
    future::pending,
    io,
    os::fd::OwnedFd,
    panic::{self, AssertUnwindSafe},
    time::Duration,
};
use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{SignalKind, signal},
};
pub(crate) use vvm_containment::{ReceivedSignal, Signals, asks_to_stop};
use vvm_containment::{SignalMeaning, meaning};

/// The descriptors of a runtime: epoll, its waker, and with signals two sockets and a copy of one.
const DESCRIPTORS: usize = 8;

/// Tokio itself panics if the system refuses the sockets for signals, or the first thread of its pool, which finds the
/// addresses of servers. While the pool has a thread, a call waits for it, so it keeps one.
pub(crate) fn start() -> io::Result<Runtime> {
    let room: Result<Vec<OwnedFd>, _> =
        (0..DESCRIPTORS).map(|_| rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 0)).collect();
    drop(room?);
    let runtime = Builder::new_current_thread().enable_all().thread_keep_alive(Duration::MAX).build()?;
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let thread = panic::catch_unwind(AssertUnwindSafe(|| runtime.spawn_blocking(|| ())));
    panic::set_hook(hook);
    runtime.block_on(thread.map_err(|_| Errno::AGAIN)?).map_err(io::Error::other)?;
    Ok(runtime)
}

/// Runs this on a new runtime. Does not wait for a look-up of a name, which may hang.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> io::Result<T> {
    let runtime = start()?;
    let done = runtime.block_on(future);
    runtime.shutdown_background();
    Ok(done)
}

/// The kernel gives process 1 of a container no default action: without this, neither TERM nor INT would end it.
pub(crate) async fn stop_of_process_1() -> io::Result<u8> {
    if getpid() != Pid::INIT {
        pending::<()>().await;
    }
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let signal = tokio::select! {
        biased;
        _ = term.recv() => Signal::TERM,
        _ = int.recv() => Signal::INT,
    };
    Ok(exit::by_signal(signal.as_raw()))
}

/// Whether `signal` ends a `vvm` that has no command to forward it to.
pub(crate) fn ends_a_candidate(signal: Signal) -> bool {
    matches!(meaning(signal), Some(SignalMeaning::Stop | SignalMeaning::CommandOrEnd))
}
