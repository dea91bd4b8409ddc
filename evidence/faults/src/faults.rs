//! A fault run: contenders on real servers, one fault after another, and a ledger that finds two leaders at
//! once.

mod bed;
mod cassandra_bed;
mod contender;
mod dynamodb_bed;
mod fault;
mod happened;
mod ledger;
mod network;
mod report;
mod witness;

use crate::{Server, interruption::Interruption};
use bed::Bed;
use cassandra_bed::CassandraBed;
use contender::{Contender, Manner};
use dynamodb_bed::DynamoDbBed;
use fault::{Course, Fault};
use happened::Counts;
use ielections::{Timing, Ttl};
use ledger::Ledger;
use network::{Network, Weather};
use report::{Phase, Report};
use std::{num::NonZeroU32, sync::Arc, time::Duration};
use tokio::{runtime::Runtime, sync::watch, task::JoinSet};
use vvm_clock::{Instant, SystemClock};
use vvm_storage::ElectionsTtlStorage;

/// How long a whole run takes.
pub(crate) const WHOLE: Duration = Duration::from_secs(600);

/// How many ambiguous outcomes a whole run must have met.
const AMBIGUOUS: u64 = 1000;

/// Short enough for many leaderships, and half as long again as the shortest of the drivers.
const TTL: Ttl = match Ttl::new(Duration::from_secs(3)) {
    Ok(ttl) => ttl,
    Err(_) => panic!("three seconds are a TTL"),
};

const CONTENDERS: usize = 5;

const SLOTS: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

/// How long after a fault every slot has a leader again, at the latest: what an observer waits, and
/// connections that the client library opens anew after pauses of its own, on a machine that runs all the
/// servers.
const RECOVERY: Duration = Duration::from_secs(30);

/// A signal takes a moment to stop a process with hundreds of threads.
const STOPPING: Duration = Duration::from_millis(200);

/// What is asked of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// How long faults are injected.
    pub(crate) duration: Duration,
    /// Of what happens when.
    pub(crate) seed: u64,
    /// By how much the clock of a node of Cassandra is ahead of the others'.
    pub(crate) ahead: Duration,
}

/// Injects faults for as long as planned, and at least every kind once.
///
/// # Errors
/// What was violated, what did not happen though it must, and what could not be run.
pub(crate) fn run(server: Server, plan: Plan) -> Result<(), String> {
    let Plan { duration, seed, ahead } = plan;
    let text = |error: std::io::Error| error.to_string();
    let interruption = Interruption::listen().map_err(text)?;
    let mut bed: Box<dyn Bed> = match server {
        Server::Scylla => Box::new(CassandraBed::start(ahead)?),
        Server::Dynamodb => Box::new(DynamoDbBed::start()?),
    };
    println!("{}; seed {seed}, {CONTENDERS} contenders for {SLOTS} slots, TTL {TTL}", bed.name());
    let runtime = Runtime::new().map_err(text)?;
    let clock = SystemClock::start().map_err(text)?;
    let counts = Arc::new(Counts::default());
    let mut network = Network::new(CONTENDERS, bed.protocol(), Arc::clone(&counts), clock.clone());
    for contender in 0..CONTENDERS {
        for server in bed.servers() {
            let front = bed.front(contender, server);
            network
                .open(runtime.handle(), contender, front, server)
                .map_err(|error| format!("{front}: {error}"))?;
        }
    }
    let ledger = Arc::new(Ledger::default());
    let manner = watch::Sender::new(Manner::Patient);
    let contenders = enter(&*bed, &runtime, &clock, &ledger, &counts, &manner, seed)?;
    let mut course = Course::new(bed.faults(), seed);
    let mut run = Run {
        interruption: &interruption,
        ledger: &ledger,
        counts: &counts,
        network: &network,
        manner: &manner,
        bed: &mut *bed,
        began: SystemClock::read(),
        report: Report::default(),
    };
    let ran = run.play(&mut course, duration);
    network.set_all(Weather::CLEAR);
    manner.send_replace(Manner::Leaving);
    runtime.block_on(contenders.join_all());
    let Run { report, began, .. } = run;
    // The run's own end comes first: the rest follows from it.
    ran?;
    println!("{}", report.figures(&ledger, &counts, bed.must_happen(), began));
    ledger.is_clean()?;
    report::judge(&counts, bed.must_happen(), duration >= WHOLE)
}

fn enter(
    bed: &dyn Bed,
    runtime: &Runtime,
    clock: &SystemClock,
    ledger: &Arc<Ledger>,
    counts: &Arc<Counts>,
    manner: &watch::Sender<Manner>,
    seed: u64,
) -> Result<JoinSet<()>, String> {
    let open = |contender| {
        let url = bed.url(contender);
        let open = async || {
            if contender.is_none() {
                vvm_storage::init_storage(&url).await?;
            }
            vvm_storage::open(&url, Arc::new(clock.clone())).await
        };
        // A server that has only just begun may take too long.
        let mut attempts = 1..5;
        let opened = runtime.block_on(async {
            loop {
                match open().await {
                    Err(error) if error.is_passing() && attempts.next().is_some() => {}
                    done => return done,
                }
            }
        });
        opened.map(ElectionsTtlStorage::new).map_err(|error| error.to_string())
    };
    let direct = open(None)?;
    let mut contenders = JoinSet::new();
    for number in 0..CONTENDERS {
        let contender = Contender {
            number,
            storage: open(Some(number))?,
            direct: direct.clone(),
            ledger: Arc::clone(ledger),
            counts: Arc::clone(counts),
            clock: clock.clone(),
            manner: manner.subscribe(),
            dice: fastrand::Rng::with_seed(seed ^ number as u64),
        };
        contenders.spawn_on(contender.live(), runtime.handle());
    }
    Ok(contenders)
}

struct Run<'a> {
    interruption: &'a Interruption,
    ledger: &'a Ledger,
    counts: &'a Counts,
    network: &'a Network,
    manner: &'a watch::Sender<Manner>,
    bed: &'a mut dyn Bed,
    began: Instant,
    report: Report,
}

impl Run<'_> {
    /// Faults and calm in turns for two thirds of the time, then ambiguous answers and hasty leaders.
    fn play(&mut self, course: &mut Course, duration: Duration) -> Result<(), String> {
        let storm = duration / 3;
        let faults_until = self.began.after(duration - storm);
        self.pass("calm", TTL.get() * 2)?;
        while SystemClock::read() < faults_until || !course.is_round() {
            let Some(fault) = course.next() else { break };
            self.meet(fault, &mut course.dice)?;
            let calm = TTL.get().mul_f64(1.0 + course.dice.f64());
            self.pass("calm", calm)?;
        }
        self.storm(storm)
    }

    fn meet(&mut self, fault: Fault, dice: &mut fastrand::Rng) -> Result<(), String> {
        let lasts = fault.lasts(dice);
        let from = SystemClock::read();
        match fault.weather() {
            Some((weather, true)) => {
                let leading = self.ledger.look(from);
                let one = dice.choice(leading).unwrap_or(dice.usize(..CONTENDERS));
                self.network.set(one, weather);
            }
            Some((weather, false)) => self.network.set_all(weather),
            None => self.bed.inject(fault, dice)?.into_iter().for_each(|happened| self.counts.add(happened)),
        }
        println!("{:7.2} s  {fault} for {:.2} s", self.at(from), lasts.as_secs_f64());
        let deadline = match fault {
            // Whatever was confirmed was sent before.
            Fault::StopMost => Timing::of(TTL).kill_at(SystemClock::read()).after(STOPPING),
            _ => Instant::NEVER,
        };
        self.watch(lasts, deadline)?;
        let until = SystemClock::read();
        self.network.set_all(Weather::CLEAR);
        self.bed.mend()?;
        self.recovers(fault.to_string(), from, until)
    }

    /// Every slot gets a leader again once the servers answer.
    fn recovers(&mut self, name: String, from: Instant, until: Instant) -> Result<(), String> {
        let mended = SystemClock::read();
        let mut recovered = None;
        self.interruption.wait_until(RECOVERY, || {
            self.ledger.look(SystemClock::read());
            self.ledger.is_clean()?;
            recovered = self.ledger.recovered(mended);
            Ok(recovered.is_some())
        })?;
        if recovered.is_none() {
            return Err(format!("after {name} a slot had no leader for {RECOVERY:?}"));
        }
        self.report.phases.push(Phase { name, from, until, recovered });
        Ok(())
    }

    fn storm(&mut self, lasts: Duration) -> Result<(), String> {
        let from = SystemClock::read();
        println!("{:7.2} s  storm of forged answers for {:.2} s", self.at(from), lasts.as_secs_f64());
        self.manner.send_replace(Manner::Hasty);
        self.network.set_all(Weather::forging(0.6));
        self.watch(lasts, Instant::NEVER)?;
        let until = SystemClock::read();
        self.network.set_all(Weather::CLEAR);
        self.manner.send_replace(Manner::Patient);
        self.recovers("storm".into(), from, until)?;
        self.pass("calm", TTL.get() * 2)
    }

    fn pass(&mut self, name: &str, lasts: Duration) -> Result<(), String> {
        let from = SystemClock::read();
        self.watch(lasts, Instant::NEVER)?;
        let until = SystemClock::read();
        self.report.phases.push(Phase { name: name.into(), from, until, recovered: None });
        Ok(())
    }

    /// Checks at every step. After `none_from`, no contender may lead.
    fn watch(&self, lasts: Duration, none_from: Instant) -> Result<(), String> {
        self.interruption.pass(lasts, || {
            let now = SystemClock::read();
            let leading = self.ledger.look(now);
            if now > none_from
                && let Some(contender) = leading.first()
            {
                self.ledger.violates(format!("contender {contender} leads although no quorum is left"));
            }
            self.ledger.is_clean()
        })
    }

    fn at(&self, now: Instant) -> f64 {
        self.began.until(now).as_secs_f64()
    }
}
