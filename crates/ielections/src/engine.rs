//! One engine per `Elections`: a task that drives every campaign, lease and release of it.
//!
//! What lives here: the handles through which the rest of the crate talks to that task. The task itself is in
//! [`task`], the storage calls (and the one function that may drop a write half-way) in [`call`].
//!
//! One task and not one per leadership (I11): 100,000 leaderships are a slab, a timer queue and at most
//! `max_in_flight` calls. One owner of all state: no lock, and no order of locks to get wrong.

mod actor;
pub(crate) mod call;
mod campaigning;
mod leading;
mod releasing;
mod task;
mod timers;

use crate::{
    AcquireError, Candidacy, EngineSettings, Env, Epoch, Incarnation, Key, Leadership, ReleaseOutcome, Slot,
    Standing, TtlStorage,
};
use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use tokio::sync::{
    mpsc::{self, UnboundedSender},
    oneshot,
};

/// What the handles ask of the task. The channel has no bound; what fills it has: one command for each
/// campaign begun or withdrawn and for each leadership given back or deposed, and one for all hints that were
/// not heard yet.
pub(crate) enum Command<K> {
    Campaign { ticket: u64, candidacy: Candidacy<K>, reply: oneshot::Sender<Answer<K>> },
    Withdraw { ticket: u64 },
    LookNow,
    HandBack { lease: usize, reply: oneshot::Sender<ReleaseOutcome> },
    Dropped { lease: usize },
    Shown { lease: usize, epoch: Epoch, incarnation: Incarnation, slot: Slot },
    Cleanup { done: oneshot::Sender<()> },
}

pub(crate) type Answer<K> = Result<(K, Grant), AcquireError>;

/// Starts an engine as a task of `env`'s.
pub(crate) fn start<K: Key>(
    storage: Arc<dyn TtlStorage<K>>,
    env: Env,
    settings: EngineSettings,
) -> EngineHandle<K> {
    let (commands, inbox) = mpsc::unbounded_channel();
    let spawn = Arc::clone(&env.spawn);
    let commands = Arc::new(commands);
    let hinted = Arc::new(AtomicBool::new(false));
    let engine = task::Engine::new(
        storage,
        call::call,
        env,
        settings,
        task::Inbox { commands: inbox, hinted: Arc::clone(&hinted) },
        Arc::downgrade(&commands),
    );
    spawn.spawn("elections", Box::pin(engine));
    EngineHandle { commands, next_ticket: AtomicU64::new(0), hinted }
}

pub(crate) struct EngineHandle<K> {
    commands: Arc<UnboundedSender<Command<K>>>,
    next_ticket: AtomicU64,
    /// A hint is on its way already.
    hinted: Arc<AtomicBool>,
}

impl<K: Key> EngineHandle<K> {
    /// Cancel safe: dropping the future withdraws the campaign.
    pub(crate) async fn campaign(&self, candidacy: Candidacy<K>) -> Result<(K, Leadership), AcquireError> {
        let ticket = self.next_ticket.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        if self.commands.send(Command::Campaign { ticket, candidacy, reply }).is_err() {
            return Err(AcquireError::Closing);
        }
        let mut withdrawal = Withdrawal { commands: &self.commands, ticket, pending: true };
        let answer = answer.await;
        withdrawal.pending = false;
        // A task that is gone without an answer was dropped with its runtime: that is closing, too.
        let (key, grant) = answer.unwrap_or(Err(AcquireError::Closing))?;
        grant.accept().map(|leadership| (key, leadership))
    }

    /// However often: one command at most is on its way.
    pub(crate) fn look_now(&self) {
        if !self.hinted.swap(true, Ordering::AcqRel) {
            // A task that is gone has no campaigns.
            drop(self.commands.send(Command::LookNow));
        }
    }

    pub(crate) async fn cleanup(&self) {
        let (done, closed) = oneshot::channel();
        if self.commands.send(Command::Cleanup { done }).is_ok() {
            // The task drops the sender with itself: an error is the news that it has ended (I9).
            drop(closed.await);
        }
    }
}

impl<K> fmt::Debug for EngineHandle<K> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "EngineHandle(closed: {})", self.commands.is_closed())
    }
}

/// Withdraws the campaign of an `acquire` that is dropped.
struct Withdrawal<'engine, K> {
    commands: &'engine UnboundedSender<Command<K>>,
    ticket: u64,
    pending: bool,
}

impl<K> Drop for Withdrawal<'_, K> {
    fn drop(&mut self) {
        if self.pending {
            // A task that is gone has nothing left to withdraw.
            drop(self.commands.send(Command::Withdraw { ticket: self.ticket }));
        }
    }
}

/// A leadership on its way to its owner. Dropped on the way (the `acquire` was dropped after it was
/// answered), it is handed back: no work can have started under it.
#[derive(Debug)]
pub(crate) struct Grant(Option<Hold>);

impl Grant {
    fn accept(mut self) -> Result<Leadership, AcquireError> {
        self.0.take().map(Leadership::new).ok_or(AcquireError::Closing)
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if let Some(hold) = self.0.take() {
            drop(hold.hand_back());
        }
    }
}

/// One held lease, as its owner sees it.
#[derive(Debug)]
pub(crate) struct Hold {
    standing: Standing,
    lease: usize,
    /// `None` once it was handed back.
    engine: Option<Arc<dyn WayBack>>,
}

/// The way back to the engine, one for all leases, without its key type.
trait WayBack: Send + Sync + fmt::Debug {
    fn hand_back(&self, lease: usize, reply: oneshot::Sender<ReleaseOutcome>);
    fn dropped(&self, lease: usize);
}

impl<K: Key> WayBack for UnboundedSender<Command<K>> {
    fn hand_back(&self, lease: usize, reply: oneshot::Sender<ReleaseOutcome>) {
        // Without a task the reply is dropped, which the waiting side reads as "still armed".
        drop(self.send(Command::HandBack { lease, reply }));
    }

    fn dropped(&self, lease: usize) {
        drop(self.send(Command::Dropped { lease }));
    }
}

/// The way by which the documents of one lease report what they saw in its slot. Keeps no engine running.
pub(crate) struct Reports<K> {
    lease: usize,
    commands: Weak<UnboundedSender<Command<K>>>,
}

impl<K> Reports<K> {
    pub(crate) fn shown(&self, epoch: Epoch, incarnation: Incarnation, slot: Slot) {
        if let Some(commands) = self.commands.upgrade() {
            // A task that is gone has lost the lease already.
            drop(commands.send(Command::Shown { lease: self.lease, epoch, incarnation, slot }));
        }
    }
}

impl Hold {
    fn new<K: Key>(standing: Standing, lease: usize, engine: Arc<UnboundedSender<Command<K>>>) -> Self {
        Self { standing, lease, engine: Some(engine) }
    }

    pub(crate) fn standing(&self) -> &Standing {
        &self.standing
    }

    pub(crate) fn hand_back(mut self) -> impl Future<Output = ReleaseOutcome> + Send + use<> {
        let (reply, handback) = oneshot::channel();
        if let Some(engine) = self.engine.take() {
            engine.hand_back(self.lease, reply);
        }
        async move { handback.await.unwrap_or(ReleaseOutcome::StillArmed) }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.take() {
            engine.dropped(self.lease);
        }
    }
}
