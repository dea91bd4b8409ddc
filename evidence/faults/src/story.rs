//! The story of two processes: who leads, who waits, and who takes over when the other is stopped or crashes.
//!
//! What lives here: the plot, and what must hold at each turn of it. What doesn't: one process
//! ([`candidate`]), and the storages that it is played on ([`stage`]).

mod candidate;
mod stage;

use crate::{Server, interruption::Interruption, place};
use candidate::{Candidate, Worker};
use stage::Stage;
use std::{path::PathBuf, time::Duration};
use vvm_clock::{Instant, SystemClock};

/// Long enough for a crash to be told from a pause of this machine.
const TTL: Duration = Duration::from_secs(5);

/// A standby has watched for so long that it knows how old the record is, and a leader that did not renew has
/// lost.
const WATCHED: Duration = TTL.saturating_add(Duration::from_secs(1));

/// How soon a crash must be over: the observation of one TTL, and what the storage may add.
const FAIL_OVER: Duration = Duration::from_millis(TTL.as_millis() as u64 * 105 / 100 + 1000);

/// A leader renews every quarter of a TTL, and is none any more when it has not for 0.65 of it. A standby
/// that leads sooner than the rest of a TTL after a crash was handed the record, or did not wait.
const AT_LEAST: Duration = Duration::from_millis(TTL.as_millis() as u64 * 35 / 100);

/// A process starts, opens its storage and looks; a hand-over is seen at the next look, a second later. A
/// machine that runs a server of three nodes beside it takes its time.
const PROMPT: Duration = Duration::from_secs(20);

/// Plays it on SQLite and on each of `servers`.
///
/// # Errors
/// What went otherwise.
pub(crate) fn play(vvm: Option<PathBuf>, servers: &[Server]) -> Result<(), String> {
    let interruption = Interruption::listen().map_err(|error| error.to_string())?;
    let vvm = place::vvm(vvm).map_err(|error| error.to_string())?;
    for server in [None].into_iter().chain(servers.iter().copied().map(Some)) {
        let stage = Stage::set(server, &vvm)?;
        let play = Play { interruption: &interruption, stage, began: SystemClock::read(), last_epoch: 0 };
        play.run()?;
    }
    Ok(())
}

struct Play<'a> {
    interruption: &'a Interruption,
    stage: Stage,
    began: Instant,
    last_epoch: u64,
}

impl Play<'_> {
    fn run(mut self) -> Result<(), String> {
        println!("\nTwo processes on {}, TTL {} s", self.stage, TTL.as_secs());
        let mut first = self.enter("first")?;
        let worker = self.leads(&first, PROMPT)?;
        let mut second = self.enter("second")?;
        self.watches(&second, worker)?;

        self.says("first is told to stop");
        first.stop()?;
        let worker = self.succeeds(&second, worker, PROMPT)?;
        first = self.enter("first")?;
        self.watches(&first, worker)?;

        self.says("second is told to stop");
        second.stop()?;
        let worker = self.succeeds(&first, worker, PROMPT)?;
        second = self.enter("second")?;
        self.watches(&second, worker)?;

        self.says("first is killed (SIGKILL), with all that it runs");
        let crashed = SystemClock::read();
        first.crash()?;
        self.succeeds(&second, worker, FAIL_OVER)?;
        let gap = crashed.until(SystemClock::read());
        let seconds = |span: Duration| format!("{:.2} s", span.as_secs_f64());
        self.says(&format!("no leader for {}; {} are allowed", seconds(gap), seconds(FAIL_OVER)));
        if gap < AT_LEAST {
            return Err(format!("a crashed leader's record stood for {} only", seconds(gap)));
        }
        second.stop()?;
        self.says("second has stopped: the end");
        Ok(())
    }

    fn enter(&self, name: &'static str) -> Result<Candidate, String> {
        self.says(&format!("{name} is started"));
        Candidate::start(name, &self.stage, TTL)
    }

    /// Waits until a candidate leads a vacant slot.
    fn leads(&mut self, candidate: &Candidate, within: Duration) -> Result<Worker, String> {
        let mut worker = None;
        self.interruption.wait_until(within, || {
            worker = candidate.worker()?;
            Ok(worker.is_some())
        })?;
        let worker = worker
            .ok_or_else(|| format!("{} does not lead after {within:?}. {candidate}", candidate.name))?;
        self.says(&format!("{} leads, epoch {}", candidate.name, worker.epoch));
        if worker.epoch <= self.last_epoch {
            return Err(format!("epoch {} follows epoch {}", worker.epoch, self.last_epoch));
        }
        self.last_epoch = worker.epoch;
        Ok(worker)
    }

    /// Waits until a candidate leads after another one, whose worker must have ended by then.
    fn succeeds(
        &mut self,
        candidate: &Candidate,
        before: Worker,
        within: Duration,
    ) -> Result<Worker, String> {
        let worker = self.leads(candidate, within)?;
        if before.is_alive() {
            return Err(format!(
                "the worker of epoch {} is alive while {} leads",
                before.epoch, candidate.name
            ));
        }
        Ok(worker)
    }

    /// Has a candidate wait for longer than a TTL while the other one leads.
    fn watches(&self, candidate: &Candidate, leader: Worker) -> Result<(), String> {
        if !self.interruption.wait_until(PROMPT, || candidate.waits())? {
            return Err(format!("{} does not wait after {PROMPT:?}. {candidate}", candidate.name));
        }
        self.interruption.pass(WATCHED, || {
            if candidate.worker()?.is_some() {
                return Err(format!("{} leads beside epoch {}", candidate.name, leader.epoch));
            }
            if !leader.is_alive() {
                return Err(format!("the worker of epoch {} has ended. {candidate}", leader.epoch));
            }
            Ok(())
        })?;
        self.says(&format!(
            "{} has waited for {WATCHED:?}: epoch {} still leads",
            candidate.name, leader.epoch
        ));
        Ok(())
    }

    fn says(&self, what: &str) {
        println!("{:6.2} s  {what}", self.began.until(SystemClock::read()).as_secs_f64());
    }
}
