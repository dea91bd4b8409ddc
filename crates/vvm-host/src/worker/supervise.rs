//! A worker from its start until the last process that it left behind is reaped (I6).
//!
//! Stopping is one course, whatever begins it: the command is told, has until the stop timeout or until shortly before
//! the kill deadline, whichever comes first, and what is left then is killed. What it leaves behind when it ends by
//! itself is told, and killed, in the same way.

use crate::{
    announce::say,
    processes::{Complaint, Ended, Family, Reap, Reaped, Sweep, group_of, reap, sweep},
    signals::asks_to_stop,
};
use clock::{Clock, Instant};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::{sync::Arc, time::Duration};
use tokio::sync::{Notify, broadcast, watch};
use tokio_util::sync::CancellationToken;

/// What a supervision is told from outside.
#[derive(Debug)]
pub(crate) struct Orders {
    /// A signal to pass on. `delivered`: the worker has it already.
    pub(crate) signals: broadcast::Receiver<Passed>,
    /// Stop.
    pub(crate) stop: CancellationToken,
    /// Stop waiting, and kill.
    pub(crate) kill: CancellationToken,
    /// The kill deadline, which moves with each renewal.
    pub(crate) deadline: watch::Receiver<Option<Instant>>,
    /// Rings after a child has ended.
    pub(crate) children: Arc<Notify>,
}

/// A signal on its way to the worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Passed {
    pub(crate) signal: Signal,
    /// The terminal has given it to the worker.
    pub(crate) delivered: bool,
}

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Between telling to stop and killing.
    pub(crate) stop_timeout: Duration,
    /// What killing and reaping may take: this long before the kill deadline, waiting ends.
    pub(crate) killing: Duration,
}

/// What became of a worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Supervised {
    /// How the command itself ended.
    pub(crate) ended: Option<Ended>,
    /// The signals that told it to stop.
    pub(crate) told: Vec<Signal>,
}

impl Supervised {
    /// The signal that the command died of, if it asks to stop and did not come through us: a terminal or a service
    /// manager has signalled everybody, and the command was faster than the news of it.
    pub(crate) fn stopped_unasked(&self) -> Option<Signal> {
        let Some(Ended::Signalled(number)) = self.ended else { return None };
        Signal::from_named_raw(number).filter(|signal| asks_to_stop(*signal) && !self.told.contains(signal))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Working,
    Stopping { until: Instant },
    Killing,
}

/// A worker under supervision.
#[derive(Debug)]
pub(crate) struct Supervision {
    worker: Pid,
    /// The group that the worker shares with the guardian; without, it leads one, all of which gets the signals.
    terminal_group: Option<Pid>,
    family: Family,
    clock: Arc<dyn Clock>,
    patience: Patience,
    orders: Orders,
    phase: Phase,
    complaint: Complaint,
    outcome: Supervised,
}

impl Supervision {
    /// Of the worker `worker`, a child of this process.
    pub(crate) fn new(
        worker: Pid,
        terminal_group: Option<Pid>,
        family: Family,
        clock: Arc<dyn Clock>,
        patience: Patience,
        orders: Orders,
    ) -> Self {
        let outcome = Supervised { ended: None, told: Vec::new() };
        let phase = Phase::Working;
        let complaint = Complaint::default();
        Self { worker, terminal_group, family, clock, patience, orders, phase, complaint, outcome }
    }

    /// Kills whatever has been started, without asking it to stop first.
    pub(crate) fn kill_at_once(mut self) -> Self {
        self.phase = Phase::Killing;
        self
    }

    /// Supervises until no descendant of this process is left.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropped, it leaves processes behind that nobody stops.
    pub(crate) async fn run(mut self) -> Supervised {
        while !self.collect() {
            let wake_at = self.wake_at();
            tokio::select! {
                biased;
                () = self.orders.children.notified() => {}
                () = self.orders.kill.cancelled(), if self.phase != Phase::Killing => self.phase = Phase::Killing,
                // A lagging receiver has missed signals, which then merge, as pending signals do.
                Ok(passed) = self.orders.signals.recv() => self.pass_on(passed),
                () = self.orders.stop.cancelled(), if self.phase == Phase::Working => self.stop(),
                Ok(()) = self.orders.deadline.changed() => {}
                () = self.clock.sleep_until(wake_at), if self.phase != Phase::Killing => self.phase = Phase::Killing,
            }
        }
        self.outcome
    }

    /// Reaps whoever has ended; when killing, kills whoever hasn't. Whether nobody is left.
    fn collect(&mut self) -> bool {
        if self.phase == Phase::Killing {
            let mut reaped = Vec::new();
            let state = sweep(&self.family, |one| reaped.push(one));
            reaped.into_iter().for_each(|one| self.note(one));
            return match state {
                Sweep::Clear => true,
                Sweep::Waiting { out_of_reach } => {
                    self.complaint.about(&out_of_reach);
                    false
                }
            };
        }
        let worked = self.outcome.ended.is_none();
        loop {
            match reap() {
                Reap::One(one) => self.note(one),
                Reap::Childless => return true,
                Reap::NoneYet => break,
            }
        }
        if worked && self.outcome.ended.is_some() {
            self.stop_leftovers();
        }
        false
    }

    fn note(&mut self, reaped: Reaped) {
        if reaped.pid == self.worker {
            self.outcome.ended = Some(reaped.ended);
        }
    }

    /// When waiting ends. Shortly before the kill deadline in any case: nothing of the worker may see it, or the
    /// deadman would end the host, too, and with it the news of how the worker ended.
    fn wake_at(&mut self) -> Instant {
        let deadline = self.orders.deadline.borrow_and_update().unwrap_or(Instant::NEVER);
        let before_deadline = deadline.before(self.patience.killing);
        match self.phase {
            Phase::Stopping { until } => until.min(before_deadline),
            Phase::Working | Phase::Killing => before_deadline,
        }
    }

    fn pass_on(&mut self, Passed { signal, delivered }: Passed) {
        // A terminal signals a group, which the worker may have left.
        let heard =
            delivered && self.terminal_group.is_some_and(|group| group_of(self.worker) == Some(group));
        if !heard {
            self.signal_worker(signal);
        }
        if asks_to_stop(signal) {
            self.outcome.told.push(signal);
        }
    }

    fn stop(&mut self) {
        self.begin_stopping();
        // Whoever asked for the stop by a signal has had it passed on already.
        if self.outcome.told.is_empty() {
            self.pass_on(Passed { signal: Signal::TERM, delivered: false });
        }
        // A stopped process hears no TERM before it continues.
        self.signal_worker(Signal::CONT);
    }

    /// The command has ended; what it left behind is told to, now that it has become ours.
    fn stop_leftovers(&mut self) {
        if self.phase == Phase::Working {
            self.begin_stopping();
        }
        for member in self.family.descendants() {
            for signal in [Signal::TERM, Signal::CONT] {
                // Gone, or out of reach, which the killing will tell.
                let _ = self.family.signal(member, signal);
            }
        }
    }

    fn begin_stopping(&mut self) {
        self.phase = Phase::Stopping { until: self.clock.now().after(self.patience.stop_timeout) };
    }

    /// Until it is reaped the worker keeps its number, so nobody else can be meant by it.
    fn signal_worker(&self, signal: Signal) {
        if self.outcome.ended.is_some() {
            return;
        }
        let sent = match self.terminal_group {
            Some(_) => kill_process(self.worker, signal),
            None => kill_process_group(self.worker, signal),
        };
        if let Err(refusal) = sent {
            let name = signal_hook::low_level::signal_name(signal.as_raw()).unwrap_or("a signal");
            say!("{name} can't be passed on to process {}: {refusal}", self.worker);
        }
    }
}
