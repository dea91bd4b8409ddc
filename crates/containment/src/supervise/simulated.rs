use super::{
    Controls, StopTimeouts, Supervision,
    keeper_handle::{KeeperHandle, KeeperProcess, Waiting},
    spawn::Starting,
};
use crate::{
    event::OnEvent,
    launch::HelperLines,
    link::LinkMessage,
    messages::{FromKeeper, ToKeeper},
    processes::ProcessEnd,
    supervise::keeper_handle::Helpers,
};
use rustix::{
    io::Errno,
    process::{Signal, getpid},
};
use std::{
    ffi::OsString,
    future::{pending, poll_fn},
    io,
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
};
use tokio::sync::{
    mpsc::{self, UnboundedReceiver, UnboundedSender},
    watch,
};
use vvm_clock::{Clock, Instant};

/// What a supervisor orders its keeper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeeperOrder {
    /// Signal the command.
    Signal(Signal),
    /// Send TERM to the processes that the command has left behind.
    TellRest,
    /// Set the kill deadline.
    Deadline(Option<Instant>),
    /// Kill everything.
    Kill,
    /// End: the supervisor kills the keeper itself.
    End,
}

/// A keeper that a simulation plays, with the processes of its command.
#[derive(Debug)]
pub struct SimulatedKeeper {
    orders: UnboundedReceiver<KeeperOrder>,
    messages: UnboundedSender<FromKeeper>,
    ends: watch::Sender<Option<ProcessEnd>>,
}

impl SimulatedKeeper {
    /// Returns a keeper whose command is executed, and its supervision.
    pub fn start(clock: Arc<dyn Clock>, timeouts: StopTimeouts, controls: Controls) -> (Self, Supervision) {
        let (keeper, supervision) = Self::begin(clock, timeouts, controls);
        keeper.says(FromKeeper::Executed);
        (keeper, supervision)
    }

    /// Returns a keeper whose command is not executed yet, and its supervision.
    pub fn begin(clock: Arc<dyn Clock>, timeouts: StopTimeouts, controls: Controls) -> (Self, Supervision) {
        let (orders, ordered) = mpsc::unbounded_channel();
        let (messages, received) = mpsc::unbounded_channel();
        let (ends, ended) = watch::channel(None);
        let near = Arc::new(SupervisorEndpoint { orders, messages: Mutex::new(received), ended });
        let on_event = OnEvent::new(|_| {});
        let helpers = Helpers::new(HelperLines::default(), Arc::clone(&near) as _, on_event.clone());
        let deadline = controls.deadline.clone();
        let at_first = *deadline.borrow();
        let keeper = KeeperHandle::new(near, Arc::clone(&helpers), on_event.clone(), deadline);
        let keeper_end = Self { orders: ordered, messages, ends };
        keeper_end.says(FromKeeper::Ready);
        keeper_end.in_force(at_first);
        let (command, process) = (OsString::new(), getpid());
        let starting = Starting { keeper, helpers, on_event, command, process };
        (keeper_end, Supervision::new(starting, clock, timeouts, controls))
    }

    /// Waits for an order. `None` once the supervision has ended or was dropped. Cancel safe.
    pub async fn order(&mut self) -> Option<KeeperOrder> {
        self.orders.recv().await
    }

    /// Reports that the command's own process has ended.
    pub fn command_ended(&self, how: ProcessEnd) {
        self.says(FromKeeper::Ended(how));
    }

    /// Confirms a deadline.
    pub fn in_force(&self, deadline: Option<Instant>) {
        self.says(FromKeeper::InForce(deadline));
    }

    /// Confirms the order to kill.
    pub fn kills(&self) {
        self.says(FromKeeper::Kills);
    }

    /// Ends because no process of the command is left.
    pub fn ends_without_processes(self) {
        self.says(FromKeeper::Gone);
        self.ends.send_replace(Some(ProcessEnd::Exited(0)));
    }

    /// Dies. Processes of the command may be left.
    pub fn dies(self) {
        self.ends.send_replace(Some(ProcessEnd::Signalled(Signal::KILL.as_raw())));
    }

    fn says(&self, message: FromKeeper) {
        let _ = self.messages.send(message);
    }
}

#[derive(Debug)]
struct SupervisorEndpoint {
    orders: UnboundedSender<KeeperOrder>,
    messages: Mutex<UnboundedReceiver<FromKeeper>>,
    ended: watch::Receiver<Option<ProcessEnd>>,
}

impl SupervisorEndpoint {
    fn with_messages<T>(&self, call: impl FnOnce(&mut UnboundedReceiver<FromKeeper>) -> T) -> T {
        call(&mut self.messages.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn orders(&self, order: KeeperOrder) -> Result<(), Errno> {
        self.orders.send(order).map_err(|_| Errno::PIPE)
    }
}

impl KeeperProcess for SupervisorEndpoint {
    fn send(&self, order: &ToKeeper) -> Result<(), Errno> {
        match order {
            ToKeeper::Signal(forwarded) => self.orders(KeeperOrder::Signal(forwarded.signal)),
            ToKeeper::TellRest => self.orders(KeeperOrder::TellRest),
            ToKeeper::Kill => self.orders(KeeperOrder::Kill),
            ToKeeper::Deadline(deadline) => self.orders(KeeperOrder::Deadline(*deadline)),
            ToKeeper::Helper(_) | ToKeeper::KillHelper(_) => Ok(()),
            ToKeeper::Begin { .. } | ToKeeper::TryOut => Ok(()),
        }
    }

    fn receive(&self) -> Option<LinkMessage<FromKeeper>> {
        let message = self.with_messages(UnboundedReceiver::try_recv).ok()?;
        Some(LinkMessage::Message(message, Vec::new()))
    }

    fn received(&self) -> Waiting<'_, io::Result<LinkMessage<FromKeeper>>> {
        Box::pin(poll_fn(|cx| match self.with_messages(|messages| messages.poll_recv(cx)) {
            Poll::Ready(Some(message)) => Poll::Ready(Ok(LinkMessage::Message(message, Vec::new()))),
            Poll::Ready(None) => Poll::Ready(Ok(LinkMessage::End)),
            Poll::Pending => Poll::Pending,
        }))
    }

    fn continues(&self) {}

    fn kill(&self) {
        let _ = self.orders(KeeperOrder::End);
    }

    fn ended(&self) -> Waiting<'_, ProcessEnd> {
        let mut ended = self.ended.clone();
        Box::pin(async move {
            let how = ended.wait_for(Option::is_some).await.ok().and_then(|how| *how);
            match how {
                Some(how) => how,
                None => pending().await,
            }
        })
    }
}
