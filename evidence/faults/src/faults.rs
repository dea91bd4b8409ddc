//! A fault run: candidates on real servers, one fault after another, and a log of leaderships that detects
//! two leaders at once.

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
use candidate::{Candidate, Pace};
use event::{Counts, Event};
use fault::{Deletion, Fault, Schedule};
use ielections::{Timing, Ttl};
use leadership_log::LeadershipLog;
use network::{Conditions, Network};
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

/// The default duration of a run.
pub(crate) const DEFAULT_DURATION: Duration = Duration::from_secs(600);

/// How often faults that work by chance are repeated at most. What has not happened then is an error.
const TURNS: usize = 8;

/// The least number of ambiguous answers in a run of the default duration.
const AMBIGUOUS: u64 = 1000;

/// Short enough for many leaderships, and 1.5 times the shortest TTL of the drivers.
const TTL: Ttl = match Ttl::new(Duration::from_secs(3)) {
    Ok(ttl) => ttl,
    Err(_) => panic!("three seconds are a TTL"),
};

const CANDIDATES: usize = 5;

/// The name that the candidates are candidates for.
const NAME: &str = "faults";

const SLOTS: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

/// The bound until every slot has a leader after a fault. It covers the observed TTL and the reconnection of
/// the client library, on a machine that also runs the servers.
const RECOVERY: Duration = Duration::from_secs(30);

/// How long a signal takes to stop a process with hundreds of threads.
const STOPPING: Duration = Duration::from_millis(200);

/// The settings of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The duration of the faults.
    pub(crate) duration: Duration,
    /// The seed of the faults.
    pub(crate) seed: u64,
    /// Instead of all other faults: so many fail-overs of each kind.
    pub(crate) fail_overs: Option<u32>,
}

/// Injects faults for the planned duration, and every kind at least once.
///
/// # Errors
/// Violations, required events that did not happen, and failures of the run itself.
pub(crate) fn run(storage: Storage, plan: Plan) -> Result<(), String> {
    let Plan { duration, seed, fail_overs } = plan;
    let text = |error: io::Error| error.to_string();
    let interruption = Interruption::listen().map_err(text)?;
    let mut servers = start(storage)?;
    println!("{}; seed {seed}, {CANDIDATES} candidates for {SLOTS} slots, TTL {TTL}", servers.site().name);
    let runtime = Runtime::new().map_err(text)?;
    let clock = SystemClock::start().map_err(text)?;
    let counts = Arc::new(Counts::default());
    let network = network_of(servers.site(), CANDIDATES, &runtime, Arc::clone(&counts), clock)?;
    let leaderships = Arc::new(LeadershipLog::default());
    let pace = watch::Sender::new(Pace::Normal);
    let candidates = enter(servers.site(), &runtime, &network, &leaderships, &pace, seed)?;
    let mut schedule = Schedule::new(servers.site().faults, seed);
    let mut run = Run {
        interruption: &interruption,
        leaderships: &leaderships,
        counts: &counts,
        network: &network,
        pace: &pace,
        servers: &mut *servers,
        began: SystemClock::read(),
        recovered: Vec::new(),
    };
    let ran = match fail_overs {
        Some(times) => run.fail_over(times, &mut schedule.rng),
        None => run.inject_all(&mut schedule, duration),
    };
    network.set_all(Conditions::NORMAL);
    pace.send_replace(Pace::Stopping);
    runtime.block_on(candidates.join_all());
    let Run { recovered, began, .. } = run;
    // An error of the run itself is the cause of later ones.
    ran?;
    println!("{}", leadership_log::figures(&recovered, &leaderships, &counts, began));
    leaderships.is_clean()?;
    if fail_overs.is_some() {
        return Ok(());
    }
    leadership_log::judge(&counts, servers.site().required, duration >= DEFAULT_DURATION)
}

/// Starts the servers of a storage.
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

/// Starts a proxy between each of so many clients and each server.
fn network_of(
    site: &Site,
    clients: usize,
    runtime: &Runtime,
    counts: Arc<Counts>,
    clock: SystemClock,
) -> Result<Network, String> {
    let mut network = Network::new(clients, site.protocol.clone(), counts, clock);
    for client in 0..clients {
        for (number, server) in site.addresses.iter().enumerate() {
            let proxy = site.proxy(client, number);
            let opened = network.open(runtime.handle(), client, proxy, *server);
            opened.map_err(|error| format!("{proxy}: {error}"))?;
        }
    }
    Ok(network)
}

/// Opens a storage, which it `makes` before, and settles a name, as each host does. So a handle knows that a record that is
/// missing later was deleted.
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
    network: &Network,
    leaderships: &Arc<LeadershipLog>,
    pace: &watch::Sender<Pace>,
    seed: u64,
) -> Result<JoinSet<()>, String> {
    let open = |candidate: Option<usize>| {
        let url = site.url(candidate);
        runtime.block_on(opened(&url, candidate.is_none(), &network.clock, (NAME, SLOTS)))
    };
    let direct = open(None)?;
    let mut candidates = JoinSet::new();
    for number in 0..CANDIDATES {
        let candidate = Candidate {
            number,
            storage: open(Some(number))?,
            direct: Arc::clone(&direct),
            leaderships: Arc::clone(leaderships),
            counts: Arc::clone(&network.counts),
            clock: network.clock.clone(),
            pace: pace.subscribe(),
            rng: fastrand::Rng::with_seed(seed ^ number as u64),
            write: network.write_of(number),
        };
        candidates.spawn_on(candidate.run(), runtime.handle());
    }
    Ok(candidates)
}

struct Run<'a> {
    interruption: &'a Interruption,
    leaderships: &'a LeadershipLog,
    counts: &'a Counts,
    network: &'a Network,
    pace: &'a watch::Sender<Pace>,
    servers: &'a mut dyn FaultyServers,
    began: Instant,
    /// Each fault, and how long after it every slot had a leader.
    recovered: Vec<(String, Duration)>,
}

impl Run<'_> {
    /// Alternates faults and pauses for two thirds of the time. Then forges answers to fast leaders, until
    /// all required events have happened.
    fn inject_all(&mut self, schedule: &mut Schedule, duration: Duration) -> Result<(), String> {
        let forging = duration / 3;
        let faults_until = self.began.after(duration - forging);
        self.watch(TTL.get() * 2, Instant::NEVER)?;
        while SystemClock::read() < faults_until || !schedule.is_complete_round() {
            let Some(fault) = schedule.next() else { break };
            self.inject(fault, &mut schedule.rng)?;
            let pause = TTL.get().mul_f64(1.0 + schedule.rng.f64());
            self.watch(pause, Instant::NEVER)?;
        }
        // Each kind of answer is drawn by chance, and a leader whose messages are held back may have none to
        // write: a short run may need another turn.
        for _ in 0..TURNS {
            if self.counts.of(Event::WriteDelivered) == 0 {
                self.inject(Fault::Silent, &mut schedule.rng)?;
            }
            self.forge_answers(forging)?;
            if leadership_log::judge(self.counts, self.servers.site().required, false).is_ok() {
                break;
            }
        }
        Ok(())
    }

    /// Alternates fail-overs of each kind and pauses.
    fn fail_over(&mut self, times: u32, rng: &mut fastrand::Rng) -> Result<(), String> {
        let kinds = self.servers.site().faults.iter().copied().filter(|fault| fault.changes_history());
        let kinds: Vec<Fault> = kinds.collect();
        if kinds.is_empty() {
            return Err("these servers have no standby".into());
        }
        for _ in 0..times {
            for &fault in &kinds {
                self.watch(TTL.get().mul_f64(1.0 + rng.f64()), Instant::NEVER)?;
                self.inject(fault, rng)?;
            }
        }
        Ok(())
    }

    fn inject(&mut self, fault: Fault, rng: &mut fastrand::Rng) -> Result<(), String> {
        let lasts = fault.lasts(rng);
        let from = SystemClock::read();
        let deletion = fault.deletion(rng);
        deletion.map_or(Ok(()), |what| self.delete(what))?;
        match fault.conditions() {
            Some((conditions, true)) => {
                let leading = self.leaderships.look(from);
                let one = rng.choice(leading).unwrap_or(rng.usize(..CANDIDATES));
                self.network.set(one, conditions);
            }
            Some((conditions, false)) => self.network.set_all(conditions),
            None => self.servers.inject(fault, rng)?.into_iter().for_each(|event| self.counts.add(event)),
        }
        println!("{:7.2} s  {fault} for {:.2} s", self.at(from), lasts.as_secs_f64());
        let deadline = match fault {
            // A confirmed renewal was sent before the servers stopped.
            Fault::StopMost => Timing::of(TTL).kill_at(SystemClock::read()).after(STOPPING),
            _ => Instant::NEVER,
        };
        self.watch(lasts, deadline)?;
        deletion.map_or(Ok(()), |what| self.delete(what))?;
        self.network.set_all(Conditions::NORMAL);
        self.servers.repair()?;
        self.wait_for_recovery(fault.to_string())
    }

    fn delete(&self, what: Deletion) -> Result<(), String> {
        self.leaderships.deletes(what, || self.servers.delete(what))?;
        self.counts.add(Event::Deleted);
        Ok(())
    }

    /// Waits until every slot has a leader again after the servers answer.
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

    fn forge_answers(&mut self, lasts: Duration) -> Result<(), String> {
        let from = SystemClock::read();
        println!("{:7.2} s  many forged answers for {:.2} s", self.at(from), lasts.as_secs_f64());
        self.pace.send_replace(Pace::Fast);
        self.network.set_all(Conditions::forging(0.6));
        self.watch(lasts, Instant::NEVER)?;
        self.network.set_all(Conditions::NORMAL);
        self.pace.send_replace(Pace::Normal);
        self.wait_for_recovery("many forged answers".into())?;
        self.watch(TTL.get() * 2, Instant::NEVER)
    }

    /// Checks the log for `lasts`. After `none_from`, no candidate may lead.
    fn watch(&self, lasts: Duration, none_from: Instant) -> Result<(), String> {
        self.interruption.pass(lasts, || {
            let now = SystemClock::read();
            let leading = self.leaderships.look(now);
            if now > none_from
                && let Some(candidate) = leading.first()
            {
                self.leaderships.violates(format!("candidate {candidate} leads without a quorum"));
            }
            self.leaderships.is_clean()
        })
    }

    fn at(&self, now: Instant) -> f64 {
        self.began.until(now).as_secs_f64()
    }
}

/// SIGINT and SIGTERM, which are checked between steps, so that servers, folders and children are removed in
/// order.
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

    /// Waits until `holds` returns `true`, at most `limit`. Returns whether it did.
    ///
    /// # Errors
    /// If interrupted, and errors of `holds`.
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

    /// Waits for `span`, while `holds` succeeds.
    ///
    /// # Errors
    /// If interrupted, and errors of `holds`.
    fn pass(&self, span: Duration, mut holds: impl FnMut() -> Result<(), String>) -> Result<(), String> {
        self.wait_until(span, || holds().map(|()| false)).map(drop)
    }
}
