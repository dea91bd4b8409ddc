//! One engine per `Elections`: a task that drives all its campaigns, leases and releases. This file has the
//! handle through which `Elections` sends commands to it.
//!
//! One task, not one per leadership (I11): 100,000 leaderships are a slab, a timer queue and at most
//! `max_in_flight` calls. One task owns all state, so there are no locks and no lock order.

mod actor;
mod actors;
mod call;
mod calls;
mod campaigning;
mod command;
mod leading;
mod partition;
mod releasing;
mod task;
mod timers;

use crate::{AcquireError, Candidacy, EngineSettings, Env, Key, Leadership, TtlStorage};
use command::Command;
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use tokio::sync::{
    mpsc::{self, UnboundedSender},
    oneshot,
};

/// Starts an engine as a task of `env`.
pub(crate) fn start<K: Key>(
    storage: Arc<dyn TtlStorage<K>>,
    env: Env,
    settings: EngineSettings,
) -> EngineHandle<K> {
    let (commands, received) = mpsc::unbounded_channel();
    let spawn = Arc::clone(&env.spawn);
    let commands = Arc::new(commands);
    let hinted = Arc::new(AtomicBool::new(false));
    let engine = actors::Engine::new(storage, call::call, env, settings, Arc::downgrade(&commands));
    let task = task::EngineTask::new(engine, received, Arc::clone(&hinted));
    spawn.spawn("elections", Box::pin(task));
    EngineHandle { commands, next_ticket: AtomicU64::new(0), hinted }
}

pub(crate) struct EngineHandle<K> {
    commands: Arc<UnboundedSender<Command<K>>>,
    next_ticket: AtomicU64,
    /// A hint is in the channel already.
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
        // A task that ends without an answer was dropped with its runtime, which is closing, too.
        let (key, grant) = answer.unwrap_or(Err(AcquireError::Closing))?;
        grant.accept().map(|leadership| (key, leadership))
    }

    /// Sends a hint. At most one is in the channel, however often this is called.
    pub(crate) fn look_now(&self) {
        if !self.hinted.swap(true, Ordering::AcqRel) {
            // A task that has ended has no campaigns.
            drop(self.commands.send(Command::LookNow));
        }
    }

    pub(crate) async fn cleanup(&self) {
        let (done, closed) = oneshot::channel();
        if self.commands.send(Command::Cleanup { done }).is_ok() {
            // The task drops the sender when it has ended (I9), so an error is the expected answer.
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
            // A task that has ended has no campaign to withdraw.
            drop(self.commands.send(Command::Withdraw { ticket: self.ticket }));
        }
    }
}
