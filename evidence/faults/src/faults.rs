//! A fault run: candidates on real servers, and a log of leaderships that detects two leaders at once. Its faults are those
//! that no history of calls can judge: writes are lost in fail-overs and restores, or records are deleted by hand.

mod candidate;
mod event;
mod fault;
pub(crate) mod histories;
mod leadership_log;
mod network;
mod replicas;
mod servers;

use self::{
    replicas::Replicas,
    servers::{FaultyServers, Servers, Site},
};
use crate::Storage;
use ::servers::{mysql::MariaDb, owned, postgres::Postgres};
use candidate::Candidate;
use event::{Counts, Event};
use fault::{Deletion, Fault};
use ielections::Ttl;
use leadership_log::LeadershipLog;
use network::Network;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::{
    io,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{runtime::Runtime, sync::watch, task::JoinSet};
use vvm_clock::{Instant, SystemClock};
use vvm_storage::{ElectionsTtlStorage, SysVvmStorage};

/// So many that what happens by chance has happened: a run of as many without it has failed.
pub(crate) const DEFAULT_ROUNDS: u32 = 20;

/// Short enough for many leaderships, and 1.5 times the shortest TTL of the drivers.
const TTL: Ttl = match Ttl::new(Duration::from_secs(3)) {
    Ok(ttl) => ttl,
    Err(_) => panic!("three seconds are a TTL"),
};

const CANDIDATES: usize = 5;

const NAME: &str = "faults";

const SLOTS: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

/// The bound until every slot has a leader after a fault. It covers the observed TTL and the reconnection of
/// the client library, on a machine that also runs the servers.
const RECOVERY: Duration = Duration::from_secs(30);

pub(crate) fn run(storage: Storage, rounds: u32, seed: u64) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    let interruption = Interruption::listen().map_err(text)?;
    let mut servers = start(storage)?;
    let kinds = servers.site().faults.iter().copied().filter(|fault| fault.is_beyond_histories());
    let kinds: Vec<Fault> = kinds.collect();
    if kinds.is_empty() {
        return Err("its faults are those of recorded histories: --histories".into());
    }
    println!("{}; seed {seed}, {CANDIDATES} candidates for {SLOTS} slots, TTL {TTL}", servers.site().name);
    let runtime = Runtime::new().map_err(text)?;
    let counts = Arc::new(Counts::default());
    let leaderships = Arc::new(LeadershipLog::default());
    let stops = watch::Sender::new(false);
    let candidates = enter(servers.site(), &runtime, &counts, &leaderships, &stops, seed)?;
    let mut run = Run {
        interruption: &interruption,
        leaderships: &leaderships,
        counts: &counts,
        servers: &mut *servers,
        began: SystemClock::read(),
        recovered: Vec::new(),
    };
    let ran = run.inject_all(kinds, rounds, &mut fastrand::Rng::with_seed(seed));
    stops.send_replace(true);
    runtime.block_on(candidates.join_all());
    let Run { recovered, began, .. } = run;
    // An error of the run itself is the cause of later ones.
    ran?;
    println!("{}", leadership_log::figures(&recovered, &leaderships, &counts, began));
    leaderships.is_clean()?;
    if rounds < DEFAULT_ROUNDS { Ok(()) } else { leadership_log::judge(&counts) }
}

fn start(storage: Storage) -> Result<Box<dyn FaultyServers>, String> {
    Ok(match storage {
        Storage::Scylla => Box::new(Servers::cassandra()?),
        Storage::Dynamodb => Box::new(Servers::dynamodb()?),
        Storage::Etcd => Box::new(Servers::etcd()?),
        Storage::Kubernetes => Box::new(Servers::kubernetes()?),
        Storage::S3 => Box::new(Servers::s3()?),
        Storage::Postgres => Box::new(Replicas::<Postgres>::start()?),
        Storage::Mysql => Box::new(Replicas::<MariaDb>::start()?),
        Storage::Mem | Storage::Sqlite | Storage::Sled => return Err("it is no server".into()),
    })
}

fn network_of(
    site: &Site,
    clients: usize,
    runtime: &Runtime,
    counts: Arc<Counts>,
    clock: SystemClock,
) -> Result<Network, String> {
    let mut network = Network::new(clients, site.tls.clone(), counts, clock);
    for client in 0..clients {
        for (number, server) in site.addresses.iter().enumerate() {
            let proxy = site.proxy(client, number);
            let opened = network.open(runtime.handle(), client, proxy, *server);
            opened.map_err(|error| format!("{proxy}: {error}"))?;
        }
    }
    Ok(network)
}

/// Opens a storage, after it `makes` it, and settles a name, as hosts do: then a record that is missing was deleted.
async fn opened(
    url: &str,
    makes: bool,
    clock: &SystemClock,
    (name, slots): (&str, NonZeroU32),
) -> Result<Arc<dyn SysVvmStorage>, String> {
    let open = async || {
        if makes {
            vvm_storage::init_storage(url).await?;
        }
        vvm_storage::open(url, Arc::new(clock.clone())).await
    };
    // A server that has just started may take too long.
    let mut attempts = 1..5;
    let storage = loop {
        match open().await {
            Err(error) if error.is_passing() && attempts.next().is_some() => {}
            done => break done.map_err(|error| error.to_string())?,
        }
    };
    let elections = ElectionsTtlStorage::new(Arc::clone(&storage));
    let settled = elections.settle_slot_count(&name.into(), slots).await;
    settled.map(|()| storage).map_err(|error| error.to_string())
}

fn enter(
    site: &Site,
    runtime: &Runtime,
    counts: &Arc<Counts>,
    leaderships: &Arc<LeadershipLog>,
    stops: &watch::Sender<bool>,
    seed: u64,
) -> Result<JoinSet<()>, String> {
    let clock = SystemClock::start().map_err(|error| error.to_string())?;
    let url = site.url(None);
    let open = |makes: bool| runtime.block_on(opened(&url, makes, &clock, (NAME, SLOTS)));
    let direct = open(true)?;
    let mut candidates = JoinSet::new();
    for number in 0..CANDIDATES {
        let candidate = Candidate {
            number,
            storage: open(false)?,
            direct: Arc::clone(&direct),
            leaderships: Arc::clone(leaderships),
            counts: Arc::clone(counts),
            clock: clock.clone(),
            stops: stops.subscribe(),
            rng: fastrand::Rng::with_seed(seed ^ number as u64),
        };
        candidates.spawn_on(candidate.run(), runtime.handle());
    }
    Ok(candidates)
}

struct Run<'a> {
    interruption: &'a Interruption,
    leaderships: &'a LeadershipLog,
    counts: &'a Counts,
    servers: &'a mut dyn FaultyServers,
    began: Instant,
    /// Each fault, and how long after it every slot had a leader.
    recovered: Vec<(String, Duration)>,
}

impl Run<'_> {
    /// Alternates faults and pauses, each kind once in a round.
    fn inject_all(
        &mut self,
        mut kinds: Vec<Fault>,
        rounds: u32,
        rng: &mut fastrand::Rng,
    ) -> Result<(), String> {
        self.watch(TTL.get() * 2)?;
        for _ in 0..rounds {
            rng.shuffle(&mut kinds);
            for &fault in &kinds {
                self.inject(fault, rng)?;
                self.watch(TTL.get().mul_f64(1.0 + rng.f64()))?;
            }
        }
        Ok(())
    }

    fn inject(&mut self, fault: Fault, rng: &mut fastrand::Rng) -> Result<(), String> {
        let lasts = fault.lasts(rng);
        let from = SystemClock::read();
        let deletion = fault.deletion(rng);
        deletion.map_or(Ok(()), |what| self.delete(what))?;
        self.servers.inject(fault, rng)?;
        let at = self.began.until(from).as_secs_f64();
        println!("{at:7.2} s  {fault} for {:.2} s", lasts.as_secs_f64());
        self.watch(lasts)?;
        deletion.map_or(Ok(()), |what| self.delete(what))?;
        self.servers.repair()?;
        self.wait_for_recovery(fault.to_string())
    }

    fn delete(&self, what: Deletion) -> Result<(), String> {
        self.leaderships.deletes(what, || self.servers.delete(what))?;
        self.counts.add(Event::Deleted);
        Ok(())
    }

    fn wait_for_recovery(&mut self, name: String) -> Result<(), String> {
        let repaired = SystemClock::read();
        let mut recovered = None;
        self.interruption.wait_until(RECOVERY, || {
            self.leaderships.look(SystemClock::read());
            self.leaderships.is_clean()?;
            recovered = self.leaderships.recovered(repaired);
            Ok(recovered.is_some())
        })?;
        let recovered =
            recovered.ok_or_else(|| format!("after {name} a slot had no leader for {RECOVERY:?}"))?;
        self.recovered.push((name, recovered));
        Ok(())
    }

    fn watch(&self, lasts: Duration) -> Result<(), String> {
        self.interruption.pass(lasts, || {
            self.leaderships.look(SystemClock::read());
            self.leaderships.is_clean()
        })
    }
}

/// SIGINT and SIGTERM, which are checked between steps, so that servers, folders and children are removed in order.
#[derive(Clone, Debug)]
struct Interruption(Arc<AtomicBool>);

impl Interruption {
    fn listen() -> io::Result<Self> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
        }
        Ok(Self(interrupted))
    }

    fn wait_until(
        &self,
        limit: Duration,
        mut holds: impl FnMut() -> Result<bool, String>,
    ) -> Result<bool, String> {
        owned::wait_until(limit, || {
            if self.0.load(Ordering::Relaxed) {
                return Err("interrupted".to_owned());
            }
            holds()
        })
    }

    fn pass(&self, span: Duration, mut holds: impl FnMut() -> Result<(), String>) -> Result<(), String> {
        self.wait_until(span, || holds().map(|()| false)).map(drop)
    }
}
