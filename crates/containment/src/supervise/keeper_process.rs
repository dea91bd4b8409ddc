//! [`KeeperProcess`]: how a supervisor reaches its keeper: through a child process and the link to it.

use crate::{
    keeper::message::{FromKeeper, ToKeeper},
    link::{Link, Received},
    processes::Ended,
    readable::Readable,
};
use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use std::{
    fmt, io,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::process::ExitStatusExt as _,
    },
    pin::Pin,
    process::{Child, ExitStatus},
    sync::{Arc, Mutex, PoisonError},
};

/// A future of [`KeeperProcess`]. May be dropped and called again at will.
pub(crate) type Waiting<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A keeper that was started.
pub(crate) trait KeeperProcess: fmt::Debug + Send + Sync {
    /// Sends an order. Never blocks.
    ///
    /// # Errors
    /// As [`Link::send`].
    fn send(&self, order: &ToKeeper) -> Result<(), Errno>;

    /// Returns the next message, if there is one. Never blocks.
    fn receive(&self) -> Option<Received<FromKeeper>>;

    /// Waits for the next message.
    fn received(&self) -> Waiting<'_, io::Result<Received<FromKeeper>>>;

    /// Continues a keeper that is stopped.
    fn continues(&self);

    /// Kills the keeper itself. It may have ended already.
    fn kill(&self);

    /// Waits for the end of the keeper, and reaps it.
    fn ended(&self) -> Waiting<'_, Ended>;
}

/// A keeper that is a child of this process.
#[derive(Debug)]
pub(crate) struct ChildKeeper {
    child: Mutex<Child>,
    process: Arc<OwnedFd>,
    ends: Readable,
    link: Link<ToKeeper, FromKeeper>,
    readable: Readable,
}

impl ChildKeeper {
    /// Returns the keeper `child`, to which nothing was sent yet.
    ///
    /// # Errors
    /// If the process is out of descriptors. The keeper has ended then, and is reaped.
    pub(crate) fn of(
        mut child: Child,
        link: Link<ToKeeper, FromKeeper>,
        readable: Readable,
    ) -> io::Result<Self> {
        let opened = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).map_err(io::Error::from);
        match opened.and_then(|process| Ok((Readable::of(&process)?, Arc::new(process)))) {
            Ok((ends, process)) => Ok(Self { child: Mutex::new(child), process, ends, link, readable }),
            Err(refusal) => {
                // It has started nothing, and may be gone already.
                let _ = child.kill();
                let _ = child.wait();
                Err(refusal)
            }
        }
    }

    /// Returns a descriptor of its process.
    pub(crate) fn process(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.process)
    }

    /// Sends the first order.
    pub(crate) fn begin(&self, begin: &ToKeeper, descriptors: &[BorrowedFd<'_>]) {
        // If it has ended already, it is found when it is reaped.
        let _ = self.link.send_with(begin, descriptors);
    }

    /// A poisoned lock is taken: no code panics while it holds the lock.
    fn with_child<T>(&self, call: impl FnOnce(&mut Child) -> T) -> T {
        call(&mut self.child.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl KeeperProcess for ChildKeeper {
    fn send(&self, order: &ToKeeper) -> Result<(), Errno> {
        self.link.send(order)
    }

    fn receive(&self) -> Option<Received<FromKeeper>> {
        self.link.receive()
    }

    fn received(&self) -> Waiting<'_, io::Result<Received<FromKeeper>>> {
        Box::pin(self.readable.find(|| self.link.receive()))
    }

    fn continues(&self) {
        let _ = pidfd_send_signal(&*self.process, Signal::CONT);
    }

    fn kill(&self) {
        let _ = self.with_child(Child::kill);
    }

    fn ended(&self) -> Waiting<'_, Ended> {
        Box::pin(async {
            // Only this child is reaped.
            let reap = || self.with_child(|child| child.try_wait().transpose());
            let status = self.ends.find(reap).await;
            ended(status.and_then(|status| status).ok())
        })
    }
}

/// Returns how the keeper ended. Without a status, because other code has reaped it, that is a failure.
fn ended(status: Option<ExitStatus>) -> Ended {
    let signal = status.and_then(|status| status.signal());
    signal.map_or_else(
        || Ended::Exited(status.and_then(|status| u8::try_from(status.code()?).ok()).unwrap_or(u8::MAX)),
        Ended::Signalled,
    )
}
