//! `cargo xtask test-drivers --histories`: random calls of several clients on each storage, under its faults and under
//! messages that are delayed, lost, repeated and cut. Their [history] is checked with porcupine: one order of all steps
//! must explain every answer. Not covered: `peek`, which may be stale; fail-overs that lose writes, and deletions by
//! hand, which no order of steps explains.

mod clients;
mod history;
#[cfg(test)]
mod planted;

use super::{
    Interruption,
    event::Counts,
    fault::Fault,
    network::{Conditions, LastNotApplied, Link, Network},
    servers::FaultyServers,
};
use crate::Storage;
use ::servers::{built::HISTORY_CHECKER, target};
use clients::{Client, NAME, Open, SLOTS};
use history::{History, Recorder};
use rusqlite::Connection;
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};
use tempfile::TempDir;
use tokio::{runtime::Runtime, sync::watch, task::JoinSet};
use vvm_clock::SystemClock;
use vvm_storage::{SysVvmStorage, mem::MemDatabase};

const CLIENTS: usize = 4;

/// How long connections are cut, where that is a part of another fault.
const CUT: Duration = Duration::from_millis(50);

pub(crate) fn run(storage: Storage, duration: Duration, seed: u64) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    let interruption = Interruption::listen().map_err(text)?;
    // It may take longer than the run.
    let checker = HISTORY_CHECKER.build().map_err(|error| error.to_string())?;
    let runtime = Runtime::new().map_err(text)?;
    let clock = SystemClock::start().map_err(text)?;
    let mut place = Place::start(storage, &runtime, &clock)?;
    println!("{}: seed {seed}, {CLIENTS} clients on {SLOTS} partitions", place.name);
    let history = History::new();
    let stops = watch::Sender::new(false);
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let client = Client {
            number,
            open: place.open(Some(number), &clock),
            history: Arc::clone(&history),
            clock: clock.clone(),
            not_applied: place.not_applied(number),
            stops: stops.subscribe(),
            rng: fastrand::Rng::with_seed(seed ^ number as u64),
        };
        clients.spawn_on(client.run(), runtime.handle());
    }
    let injected = place.inject_all(&history, &interruption, duration, &mut fastrand::Rng::with_seed(seed));
    stops.send_replace(true);
    runtime.block_on(clients.join_all());
    let injected = injected?;
    runtime.block_on(async {
        let storage = (place.open(None, &clock))().await.ok_or("the storage can't be opened at the end")?;
        let (history, clock) = (Arc::clone(&history), clock.clone());
        let last = Recorder { client: CLIENTS, storage, history, clock, not_applied: None };
        clients::read_all(&last).await;
        last.storage.close().await;
        Ok::<_, String>(())
    })?;
    let folder = target().join("histories");
    fs::create_dir_all(&folder).map_err(text)?;
    let path = folder.join(format!("{}.jsonl", storage.name()));
    history.write(&path).map_err(text)?;
    println!("{}: {} faults; {}", storage.name(), injected.values().sum::<usize>(), path.display());
    for ((call, answer), count) in history.answers() {
        println!("  {call:8} {answer:11} {count:8}");
    }
    for (fault, count) in injected {
        println!("  {count:6} {fault}");
    }
    for (what, count) in place.counts.all() {
        println!("  {count:6} {what}");
    }
    // Any order explains a history in which nothing was applied.
    let is_missing = |call: &&'static str| !history.answers().contains_key(&(*call, "applied"));
    if let Some(call) = ["claim", "renew", "release"].into_iter().find(is_missing) {
        return Err(format!("never happened, so nothing is shown: a {call} that was applied"));
    }
    let verdict = check(&checker, &path)?;
    print!("{}: {}", storage.name(), verdict.said);
    if verdict.is_linearizable { Ok(()) } else { Err(format!("see {}", path.display())) }
}

struct Verdict {
    is_linearizable: bool,
    said: String,
}

fn check(checker: &Path, history: &Path) -> Result<Verdict, String> {
    let output = Command::new(checker).arg(history).output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    Ok(Verdict { is_linearizable: output.status.success(), said })
}

struct Place {
    name: String,
    what: What,
    counts: Arc<Counts>,
    /// Behind what writes to it, so that it is removed after that.
    _folder: Option<TempDir>,
}

enum What {
    Mem(Arc<MemDatabase>),
    File(PathBuf),
    Folder(PathBuf),
    Servers(Box<dyn FaultyServers>, Network),
}

impl Place {
    fn start(storage: Storage, runtime: &Runtime, clock: &SystemClock) -> Result<Self, String> {
        let counts = Arc::new(Counts::default());
        let folder = || TempDir::with_prefix("histories").map_err(|error| error.to_string());
        let place = match storage {
            Storage::Mem => {
                let what = What::Mem(MemDatabase::new(Arc::new(clock.clone())));
                return Ok(Self { name: "memory".into(), what, counts, _folder: None });
            }
            Storage::Sqlite => {
                let folder = folder()?;
                let what = What::File(folder.path().join("histories.db"));
                Self { name: "SQLite".into(), what, counts, _folder: Some(folder) }
            }
            Storage::Sled => {
                let folder = folder()?;
                let what = What::Folder(folder.path().join("histories"));
                Self { name: "sled".into(), what, counts, _folder: Some(folder) }
            }
            _ => {
                let servers = super::start(storage)?;
                let counted = Arc::clone(&counts);
                let network = super::network_of(servers.site(), CLIENTS, runtime, counted, clock.clone())?;
                let name = servers.site().name.clone();
                Self { name, what: What::Servers(servers, network), counts, _folder: None }
            }
        };
        let url = place.url(None).unwrap_or_default();
        runtime.block_on(async {
            let storage = super::opened(&url, true, clock, (NAME, SLOTS)).await;
            let storage = storage.map_err(|error| format!("{} can't be prepared: {error}", place.name))?;
            storage.close().await;
            Ok::<_, String>(place)
        })
    }

    fn url(&self, client: Option<usize>) -> Option<String> {
        match &self.what {
            What::Servers(servers, _) => Some(servers.site().url(client)),
            What::File(path) => Some(format!("sqlite:{}", path.display())),
            What::Folder(path) => Some(format!("sled:{}", path.display())),
            What::Mem(_) => None,
        }
    }

    fn open(&self, client: Option<usize>, clock: &SystemClock) -> Open {
        let clock = clock.clone();
        match &self.what {
            What::Mem(database) => {
                let database = Arc::clone(database);
                Box::new(move || {
                    let opened: Arc<dyn SysVvmStorage> = database.open();
                    Box::pin(async move { Some(opened) })
                })
            }
            What::File(_) | What::Folder(_) | What::Servers(..) => {
                let url = self.url(client).unwrap_or_default();
                Box::new(move || {
                    let (url, clock) = (url.clone(), clock.clone());
                    Box::pin(async move { vvm_storage::open(&url, Arc::new(clock)).await.ok() })
                })
            }
        }
    }

    fn not_applied(&self, client: usize) -> Option<Arc<LastNotApplied>> {
        match &self.what {
            What::Servers(_, network) => Some(network.not_applied(client)),
            _ => None,
        }
    }

    /// Alternates faults and pauses. Returns how many faults of each kind there were.
    fn inject_all(
        &mut self,
        history: &History,
        interruption: &Interruption,
        duration: Duration,
        rng: &mut fastrand::Rng,
    ) -> Result<BTreeMap<String, usize>, String> {
        let until = SystemClock::read().after(duration);
        let passes = |from: f64, to: f64, rng: &mut fastrand::Rng| {
            let span = Duration::from_secs_f64(from + (to - from) * rng.f64());
            interruption.pass(span, || Ok(()))
        };
        let mut injected = BTreeMap::<String, usize>::new();
        let mut ahead: Vec<Option<Fault>> = Vec::new();
        while SystemClock::read() < until {
            passes(0.2, 1.2, rng)?;
            match &mut self.what {
                // Calls are dropped and handles closed all the time, which is all that can happen here.
                What::Mem(_) | What::Folder(_) => continue,
                What::File(path) => {
                    let lock = Connection::open(path).map_err(|error| error.to_string())?;
                    let locked = lock.execute_batch("BEGIN IMMEDIATE");
                    // Longer than the driver waits, now and then.
                    passes(0.05, 2.5, rng)?;
                    *injected.entry("file locked".into()).or_default() += usize::from(locked.is_ok());
                }
                What::Servers(servers, network) => {
                    if ahead.is_empty() {
                        let all = Fault::OF_NETWORKS.into_iter().chain(servers.site().faults.iter().copied());
                        let kept = all.filter(|fault| fault.keeps_history()).map(Some);
                        // `None` is the repetition.
                        ahead = kept.chain([None]).collect();
                        rng.shuffle(&mut ahead);
                    }
                    let Some(fault) = ahead.pop() else { continue };
                    match fault {
                        None => {
                            network.set_all(Conditions::link(Link::Cut));
                            interruption.pass(CUT, || Ok(()))?;
                            network.set_all(Conditions::repeating(Link::Open));
                            passes(0.1, 1.5, rng)?;
                            network.set_all(Conditions::repeating(Link::Cut));
                            interruption.pass(CUT, || Ok(()))?;
                        }
                        Some(fault) => {
                            match fault.conditions() {
                                Some((conditions, true)) => network.set(rng.usize(..CLIENTS), conditions),
                                Some((conditions, false)) => network.set_all(conditions),
                                None => {
                                    let from = SystemClock::read();
                                    servers.inject(fault, rng)?;
                                    if fault == Fault::FailOver {
                                        history.failed_over(from);
                                    }
                                }
                            }
                            passes(0.3, 2.5, rng)?;
                        }
                    }
                    network.set_all(Conditions::NORMAL);
                    servers.repair()?;
                    let kind = fault.map_or("messages repeated".into(), |fault| fault.to_string());
                    *injected.entry(kind).or_default() += 1;
                }
            }
        }
        Ok(injected)
    }
}
