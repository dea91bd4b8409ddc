//! The check finds bugs planted in front of a storage in memory. Without Go there is no checker, and the cases say so.

use super::{
    check,
    clients::{self, Client},
    history::{History, Recorder},
};
use async_trait::async_trait;
use ielections::{ReadError, Slot, WriteError};
use servers::{built::HISTORY_CHECKER, owned::StartError};
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{sync::watch, task::JoinSet};
use vvm_clock::{Clock as _, SystemClock};
use vvm_storage::{Partition, Step, StepOutcome, SysVvmStorage, mem::MemDatabase, testing::Layer};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Bug {
    None,
    /// A strict read shows what stood at the read before it.
    StaleRead,
    /// A write is applied, and answered with "not applied".
    ReportedNotApplied,
    /// A renewal that was answered is applied once more, whatever stands meanwhile.
    RepeatedLate,
}

/// How often a bug shows: every so many calls that it concerns.
const EVERY: u64 = 20;

#[derive(Debug)]
struct Planted {
    bug: Bug,
    storage: Arc<dyn SysVvmStorage>,
    calls: AtomicU64,
    seen: AtomicU64,
    read: Mutex<HashMap<Partition, Slot>>,
    /// The last renewal of each partition that was applied.
    renewed: Mutex<HashMap<Partition, Step>>,
}

impl Planted {
    fn shows(&self) -> bool {
        self.calls.fetch_add(1, Ordering::Relaxed) % EVERY == EVERY - 1
    }

    fn was_seen(&self) {
        self.seen.fetch_add(1, Ordering::Relaxed);
    }
}

#[async_trait]
impl Layer for Planted {
    fn beneath(&self) -> &dyn SysVvmStorage {
        &*self.storage
    }

    /// All clients share the storage, and a client that closes its handle must not end the calls of the others.
    async fn close(&self) {}

    async fn commit(&self, at: Partition, step: Step) -> Result<StepOutcome, WriteError> {
        let done = self.storage.commit(at.clone(), step.clone()).await?;
        match (self.bug, &step) {
            (Bug::ReportedNotApplied, _) if done == StepOutcome::Applied && self.shows() => {
                self.was_seen();
                return Err(WriteError::NotApplied("planted".into()));
            }
            (Bug::RepeatedLate, Step::Renew { to, .. }) if done == StepOutcome::Applied => {
                self.renewed.lock().unwrap().insert(at, Step::Renew { from: to.clone(), to: to.clone() });
            }
            // The next leader has claimed, and now the renewal of the former one lands.
            (Bug::RepeatedLate, Step::Claim { to: stands, .. })
                if done == StepOutcome::Applied && self.shows() =>
            {
                let late = self.renewed.lock().unwrap().remove(&at);
                if let Some(Step::Renew { to, .. }) = late {
                    let landed = self.storage.commit(at, Step::Renew { from: stands.clone(), to }).await?;
                    if landed == StepOutcome::Applied {
                        self.was_seen();
                    }
                }
            }
            _ => {}
        }
        Ok(done)
    }

    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        let slot = self.storage.read(at.clone()).await?;
        let before = self.read.lock().unwrap().insert(at, slot.clone());
        match before {
            Some(before) if self.bug == Bug::StaleRead && before != slot && self.shows() => {
                self.was_seen();
                Ok(before)
            }
            _ => Ok(slot),
        }
    }
}

/// Records until the bug could be seen several times, and returns what the checker says.
async fn verdict(bug: Bug, checker: PathBuf) -> super::Verdict {
    let clock = SystemClock::start().unwrap();
    let database = MemDatabase::new(Arc::new(clock.clone()));
    let storage = Arc::new(Planted {
        bug,
        storage: database.open(),
        calls: AtomicU64::new(0),
        seen: AtomicU64::new(0),
        read: Mutex::default(),
        renewed: Mutex::default(),
    });
    let history = History::new();
    let stops = watch::Sender::new(false);
    let mut running = JoinSet::new();
    for number in 0..3 {
        let storage = Arc::clone(&storage);
        let client = Client {
            number,
            open: Box::new(move || {
                let opened = Arc::clone(&storage).into_storage();
                Box::pin(async move { Some(opened) })
            }),
            history: Arc::clone(&history),
            clock: clock.clone(),
            not_applied: None,
            stops: stops.subscribe(),
            rng: fastrand::Rng::with_seed(number as u64),
        };
        running.spawn(client.run());
    }
    let answers = || history.answers().values().sum::<u64>();
    // As long as that, how many calls a second there are and which ones they are is a matter of the machine.
    let enough = || match bug {
        Bug::None => answers() >= 3000,
        _ => storage.seen.load(Ordering::Relaxed) >= 10,
    };
    while !enough() {
        clock.sleep(Duration::from_millis(10)).await;
    }
    stops.send_replace(true);
    running.join_all().await;
    let (storage, history) = (database.open(), Arc::clone(&history));
    let last = Recorder { client: 3, storage, history, clock, not_applied: None };
    clients::read_all(&last).await;
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("history.jsonl");
    last.history.write(&path).unwrap();
    check(&checker, &path).unwrap()
}

#[tokio::test]
async fn planted_bugs_are_reported_and_nothing_else() {
    let checker = match HISTORY_CHECKER.build() {
        Ok(checker) => checker,
        Err(StartError::Missing { program, .. }) => {
            println!("left out: the check of histories needs {program}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    for bug in [Bug::None, Bug::StaleRead, Bug::ReportedNotApplied, Bug::RepeatedLate] {
        let found = verdict(bug, checker.clone()).await;
        assert_eq!(found.is_linearizable, bug == Bug::None, "{bug:?}: {}", found.said);
        assert!(
            found.said.contains("linearizable") || found.said.contains("NOT LINEARIZABLE"),
            "{}",
            found.said
        );
    }
}
