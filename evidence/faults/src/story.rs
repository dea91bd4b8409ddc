//! `--story`: two processes take turns, and one of them crashes. Each step is checked. [`candidate`] has one
//! process, [`test_storage`] the storages.

mod candidate;
mod test_storage;

use crate::{Server, interruption::Interruption, place};
use candidate::{Candidate, Worker};
use std::{path::PathBuf, time::Duration};
use test_storage::TestStorage;
use vvm_clock::{Instant, SystemClock};

/// Long enough to distinguish a crash from a halt of this machine.
const TTL: Duration = Duration::from_secs(5);

/// How long a standby must wait beside a leader. A leader that did not renew would be lost by then.
const WAIT_BESIDE_LEADER: Duration = TTL.saturating_add(Duration::from_secs(1));

/// The bound of a fail-over after a crash: the observation of one TTL, and the time that the storage adds.
const FAIL_OVER: Duration = Duration::from_millis(TTL.as_millis() as u64 * 105 / 100 + 1000);

/// The shortest fail-over after a crash. A leader is lost 0.65 TTL after its last renewal, so at least the
/// rest of the TTL remains. A standby that leads sooner did not wait, or the record was released.
const AT_LEAST: Duration = Duration::from_millis(TTL.as_millis() as u64 * 35 / 100);

/// The bound of a hand-over or a first leadership. A process must start, open its storage and read it, beside
/// a server on the same machine.
const HAND_OVER: Duration = Duration::from_secs(20);

/// Runs the steps on SQLite and on each of `servers`.
///
/// # Errors
/// The first step that failed.
pub(crate) fn run(vvm: Option<PathBuf>, servers: &[Server]) -> Result<(), String> {
    let interruption = Interruption::listen().map_err(|error| error.to_string())?;
    let vvm = place::vvm(vvm).map_err(|error| error.to_string())?;
    for server in [None].into_iter().chain(servers.iter().copied().map(Some)) {
        let storage = TestStorage::start(server, &vvm)?;
        let story = Story { interruption: &interruption, storage, began: SystemClock::read(), last_epoch: 0 };
        story.run()?;
    }
    Ok(())
}

struct Story<'a> {
    interruption: &'a Interruption,
    storage: TestStorage,
    began: Instant,
    last_epoch: u64,
}

impl Story<'_> {
    fn run(mut self) -> Result<(), String> {
        println!("\nTwo processes on {}, TTL {} s", self.storage, TTL.as_secs());
        let mut first = self.start("first")?;
        let worker = self.wait_until_leads(&first, HAND_OVER)?;
        let mut second = self.start("second")?;
        self.check_waits(&second, worker)?;

        self.log("first gets TERM");
        first.stop()?;
        let worker = self.wait_until_succeeds(&second, worker, HAND_OVER)?;
        first = self.start("first")?;
        self.check_waits(&first, worker)?;

        self.log("second gets TERM");
        second.stop()?;
        let worker = self.wait_until_succeeds(&first, worker, HAND_OVER)?;
        second = self.start("second")?;
        self.check_waits(&second, worker)?;

        self.log("first is killed (SIGKILL), with all that it runs");
        let crashed = SystemClock::read();
        first.crash()?;
        self.wait_until_succeeds(&second, worker, FAIL_OVER)?;
        let gap = crashed.until(SystemClock::read());
        let seconds = |span: Duration| format!("{:.2} s", span.as_secs_f64());
        self.log(&format!("no leader for {}; {} are allowed", seconds(gap), seconds(FAIL_OVER)));
        if gap < AT_LEAST {
            return Err(format!("a crashed leader was replaced after only {}", seconds(gap)));
        }
        second.stop()?;
        self.log("second has stopped");
        Ok(())
    }

    fn start(&self, name: &'static str) -> Result<Candidate, String> {
        self.log(&format!("{name} is started"));
        Candidate::start(name, &self.storage, TTL)
    }

    /// Waits until a candidate leads a vacant slot.
    fn wait_until_leads(&mut self, candidate: &Candidate, within: Duration) -> Result<Worker, String> {
        let mut worker = None;
        self.interruption.wait_until(within, || {
            worker = candidate.worker()?;
            Ok(worker.is_some())
        })?;
        let worker = worker
            .ok_or_else(|| format!("{} does not lead after {within:?}. {candidate}", candidate.name))?;
        self.log(&format!("{} leads, epoch {}", candidate.name, worker.epoch));
        if worker.epoch <= self.last_epoch {
            return Err(format!("epoch {} follows epoch {}", worker.epoch, self.last_epoch));
        }
        self.last_epoch = worker.epoch;
        Ok(worker)
    }

    /// Waits until a candidate leads after another one, whose worker must have ended by then.
    fn wait_until_succeeds(
        &mut self,
        candidate: &Candidate,
        before: Worker,
        within: Duration,
    ) -> Result<Worker, String> {
        let worker = self.wait_until_leads(candidate, within)?;
        if before.is_alive() {
            return Err(format!(
                "the worker of epoch {} is alive while {} leads",
                before.epoch, candidate.name
            ));
        }
        Ok(worker)
    }

    /// Checks that a candidate waits for longer than a TTL while the other one leads.
    fn check_waits(&self, candidate: &Candidate, leader: Worker) -> Result<(), String> {
        if !self.interruption.wait_until(HAND_OVER, || candidate.waits())? {
            return Err(format!("{} does not wait after {HAND_OVER:?}. {candidate}", candidate.name));
        }
        self.interruption.pass(WAIT_BESIDE_LEADER, || {
            if candidate.worker()?.is_some() {
                return Err(format!("{} leads beside epoch {}", candidate.name, leader.epoch));
            }
            if !leader.is_alive() {
                return Err(format!("the worker of epoch {} has ended. {candidate}", leader.epoch));
            }
            Ok(())
        })?;
        self.log(&format!(
            "{} has waited for {WAIT_BESIDE_LEADER:?}: epoch {} still leads",
            candidate.name, leader.epoch
        ));
        Ok(())
    }

    fn log(&self, what: &str) {
        println!("{:6.2} s  {what}", self.began.until(SystemClock::read()).as_secs_f64());
    }
}
