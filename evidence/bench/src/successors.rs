//! Pairs of hosts on PostgreSQL in trouble, a leader and the successor that it has named: `bench successors`. Each host is
//! a machine as in [`lost_machines`](crate::lost_machines). Each trial prints a line. Violations are:
//!
//! - two workers at once, by a lock that each holds and by their own logs, or an epoch that does not rise;
//! - a lost leadership where the design promises none;
//! - a worker that lives longer than 0.8 of the support period after its leader was cut off from successor and storage;
//! - a pair that does not lead again.

mod pair;
mod relay;

use crate::{
    process::{ProcessTree, init_storage},
    report::Failure,
};
use clap::ValueEnum;
use fastrand::Rng;
use pair::{
    Pair,
    Way::{ToPeer, ToStorage},
};
pub(crate) use pair::{Side, work};
use rustix::process::Signal;
use servers::postgres::Postgres;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Mutex,
    thread,
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only these.
    trials: Vec<Trial>,
    /// The support period, in seconds.
    #[arg(long, default_value_t = 5)]
    support: u64,
    /// So many rounds of each.
    #[arg(long)]
    rounds: Option<usize>,
    /// How long chaos, an outage and a measurement of the cost last, instead of 10, 3 and 1 minutes.
    #[arg(long)]
    seconds: Option<u64>,
    /// Random if not given.
    #[arg(long)]
    seed: Option<u64>,
}

/// The long ones first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
enum Trial {
    /// Datagrams lost, late, doubled and reordered, links that come and go, machines that are lost.
    Chaos,
    /// The storage stands still: the leader stays.
    Outage,
    /// Datagrams and CPU, with a successor and without.
    Cost,
    /// The standby is restarted, stands still, is killed or cut off, at random: the leader stays.
    Restarts,
    /// All links of both are down for 0.3 support periods.
    #[value(name = "blips-03")]
    Blips03,
    /// The same for 0.6.
    #[value(name = "blips-06")]
    Blips06,
    /// The same for 1.
    #[value(name = "blips-10")]
    Blips10,
    /// The successor is killed while the storage is down.
    BothLost,
    /// Of the leader, with a successor and without, as the three that follow.
    Stop,
    StepDown,
    Pause,
    RollOut,
}

#[derive(Default)]
struct Found {
    rounds: usize,
    /// In seconds, by what they measure.
    samples: BTreeMap<String, Vec<f64>>,
    counts: BTreeMap<String, usize>,
    violations: Vec<String>,
}

/// So many at once: they mostly wait.
const PAIRS: u8 = 6;

/// By which a worker may outlive 0.8 P on a busy machine.
const LATE: Duration = Duration::from_millis(50);

/// The TTL of an outage, and the longest that the storage takes.
const LONG_TTL: Duration = Duration::from_secs(300);

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}; {PAIRS} pairs at once, support period {} s", args.support);
    let server = Postgres::start(&servers::target(), &[], &[])?;
    init_storage(&url_of(&server))?;
    let chosen = if args.trials.is_empty() { Trial::value_variants() } else { &args.trials };
    let mut parts = VecDeque::new();
    for trial in chosen {
        let (rounds, in_a_row) = trial.rounds();
        let rounds = args.rounds.unwrap_or(rounds);
        for from in (0..rounds).step_by(in_a_row) {
            let part = (*trial, true, in_a_row.min(rounds - from));
            parts.push_back(part);
            if trial.compares() {
                parts.push_back((part.0, false, part.2));
            }
        }
    }
    let parts = Mutex::new(parts);
    let take = || parts.lock().ok()?.pop_front();
    let mut all = BTreeMap::<Trial, Found>::new();
    let found: Vec<_> = thread::scope(|scope| {
        let try_out = |number: u8| {
            let mut rng = Rng::with_seed(seed.wrapping_add(number.into()));
            let mut found = Vec::new();
            while let Some((trial, is_named, rounds)) = take() {
                let mut own = Found::default();
                if let Err(why) = own.try_out(args, (trial, is_named, rounds), number, &server, &mut rng) {
                    own.violations.push(why.to_string());
                }
                own.violations.iter().for_each(|what| println!("VIOLATION: {trial:?}: {what}"));
                found.push((trial, own));
            }
            found
        };
        let threads: Vec<_> = (0..PAIRS).map(|number| scope.spawn(move || try_out(number))).collect();
        threads.into_iter().flat_map(|thread| thread.join()).flatten().collect()
    });
    found.into_iter().for_each(|(trial, found)| all.entry(trial).or_default().add(found));
    let violations: usize = all.values().map(|found| found.violations.len()).sum();
    all.into_iter().for_each(|(trial, found)| println!("{trial:?}: {}", found.line()));
    if violations == 0 { Ok(()) } else { Err(format!("{violations} violations").into()) }
}

fn url_of(server: &Postgres) -> String {
    format!("{}?sslmode=disable&max_ttl={}s", server.url("postgres"), LONG_TTL.as_secs())
}

fn block_until(at: Instant) {
    SystemClock::block_for(SystemClock::read().until(at));
}

impl Trial {
    /// Its rounds, and how many a pair makes in a row.
    fn rounds(self) -> (usize, usize) {
        match self {
            Self::Chaos => (PAIRS.into(), 1),
            Self::Outage => (3, 1),
            Self::Cost => (1, 1),
            Self::Restarts => (200, 9),
            Self::Blips03 | Self::Blips06 | Self::Blips10 => (100, 9),
            Self::BothLost => (20, 4),
            Self::Stop | Self::StepDown | Self::Pause | Self::RollOut => (50, 10),
        }
    }

    /// Whether it is made without a successor, too.
    fn compares(self) -> bool {
        matches!(self, Self::Cost | Self::Stop | Self::StepDown | Self::Pause | Self::RollOut)
    }

    /// The trial itself judges a loss after 0.3 P.
    fn may_lose(self) -> bool {
        matches!(self, Self::Chaos | Self::Blips03 | Self::Blips06 | Self::Blips10 | Self::BothLost)
    }
}

impl Found {
    fn try_out(
        &mut self,
        args: &Args,
        (trial, is_named, rounds): (Trial, bool, usize),
        number: u8,
        shared: &Postgres,
        rng: &mut Rng,
    ) -> Result<(), Failure> {
        let support = Duration::from_secs(args.support);
        let (mut own, mut ttl) = (None, support * 4);
        if trial == Trial::Outage {
            let server = Postgres::start(&servers::target(), &[], &[])?;
            init_storage(&url_of(&server))?;
            (own, ttl) = (Some(server), LONG_TTL);
        }
        let server = own.as_ref().unwrap_or(shared);
        let storage = (url_of(server), server.address());
        let mut pair = Pair::start(number, storage, (ttl, support), is_named, trial == Trial::Chaos)?;
        for _ in 0..rounds {
            let leader = pair.ready()?;
            // Somewhere between two pings.
            SystemClock::block_for(support.mul_f64(rng.f64() / 8.0));
            match trial {
                Trial::Chaos => self.chaos(&mut pair, args.seconds.unwrap_or(600), rng)?,
                Trial::Outage => {
                    let server = own.as_mut().ok_or("a server of its own is missing")?;
                    server.stop()?;
                    SystemClock::block_for(Duration::from_secs(args.seconds.unwrap_or(180)));
                    server.go_on()?;
                }
                Trial::Cost => self.cost(&pair, leader.0, args.seconds.unwrap_or(60))?,
                Trial::Restarts => self.restart(&mut pair, leader, rng)?,
                Trial::Blips03 => self.blip(&mut pair, leader, 3)?,
                Trial::Blips06 => self.blip(&mut pair, leader, 6)?,
                Trial::Blips10 => self.blip(&mut pair, leader, 10)?,
                Trial::BothLost => self.lose_both(&mut pair, leader, rng)?,
                Trial::Stop | Trial::StepDown | Trial::Pause | Trial::RollOut => {
                    self.hand_over(trial, &mut pair, leader)?;
                }
            }
            self.rounds += 1;
        }
        pair.ready()?;
        if is_named {
            self.count("namings", pair.said("successor named"));
        }
        for why in std::mem::take(&mut pair.losses) {
            if !trial.may_lose() {
                self.violations.push(format!("lost: {why}"));
            }
            self.count(&format!("lost ({why})"), 1);
        }
        self.violations.extend(pair.end()?);
        Ok(())
    }

    fn chaos(&mut self, pair: &mut Pair, seconds: u64, rng: &mut Rng) -> Result<(), Failure> {
        let ends_at = SystemClock::read().after(Duration::from_secs(seconds));
        while SystemClock::read() < ends_at {
            if rng.u8(..8) == 0 {
                self.count("machines lost", 1);
                pair.end_host(rng.usize(..2), Signal::KILL)?;
            } else {
                self.count("partitions", 1);
                let ways = [&[ToPeer][..], &[ToStorage], &[ToPeer, ToStorage]][rng.usize(..3)];
                let sides = [&[0][..], &[1], &[0, 1]][rng.usize(..3)];
                sides.iter().try_for_each(|side| pair.cut(*side, ways))?;
                SystemClock::block_for(pair.support.mul_f64(2.0 * rng.f64()));
                sides.iter().try_for_each(|side| pair.heal(*side, ways))?;
            }
            SystemClock::block_for(pair.support.mul_f64(4.0 * rng.f64()));
            pair.revive()?;
        }
        self.count("leaderships", pair.spans()?.len());
        Ok(())
    }

    fn cost(&mut self, pair: &Pair, leader: Side, seconds: u64) -> Result<(), Failure> {
        let used = || {
            let cpu = |side| ProcessTree::of(pair.process(side)).used().map(|used| used.cpu.as_secs_f64());
            let datagrams = pair.machines[leader].metric("vvm_successor_datagrams_total{")?;
            Ok::<_, Failure>([cpu(leader)?, cpu(1 - leader)?, datagrams as f64])
        };
        let before = used()?;
        SystemClock::block_for(Duration::from_secs(seconds));
        let after = used()?;
        let with = if pair.is_named { "with a successor" } else { "without" };
        for (index, what) in ["CPU of the leader", "CPU of the standby", "datagrams"].iter().enumerate() {
            let each = (after[index] - before[index]) / seconds as f64;
            self.samples.entry(format!("{what} a second {with}")).or_default().push(each);
        }
        Ok(())
    }

    fn restart(&mut self, pair: &mut Pair, leader: (Side, u64), rng: &mut Rng) -> Result<(), Failure> {
        let (support, standby) = (pair.support, 1 - leader.0);
        let lasts = support.mul_f64(3.0 * rng.f64());
        match rng.u8(..4) {
            0 => pair.end_host(standby, Signal::TERM)?,
            1 => pair.end_host(standby, Signal::KILL)?,
            2 => pair.stand_still(standby, lasts),
            _ => {
                let ways = if rng.bool() { &[ToPeer][..] } else { &[ToPeer, ToStorage] };
                pair.cut(standby, ways)?;
                SystemClock::block_for(lasts);
                pair.heal(standby, ways)?;
            }
        }
        let healed_at = SystemClock::read();
        if rng.u8(..4) > 0 {
            pair.ready()?;
            self.sample("named again", healed_at, SystemClock::read());
        } else {
            // The next event comes before the next naming.
            pair.revive()?;
            SystemClock::block_for(support.mul_f64(rng.f64()));
        }
        Ok(())
    }

    fn blip(&mut self, pair: &mut Pair, (leader, epoch): (Side, u64), tenths: u32) -> Result<(), Failure> {
        let begins_at = SystemClock::read();
        pair.cut(leader, &[ToPeer, ToStorage])?;
        let cut_at = SystemClock::read();
        pair.cut(1 - leader, &[ToStorage])?;
        block_until(begins_at.after(pair.support * tenths / 10));
        // On a busy machine, the leader may have withdrawn its word between both.
        if begins_at.until(cut_at) < pair.support / 8 {
            self.ends_in_time(pair, epoch, cut_at)?;
        } else {
            self.count("cut too slowly", 1);
        }
        pair.heal(leader, &[ToPeer, ToStorage])?;
        pair.heal(1 - leader, &[ToStorage])?;
        let lasted = begins_at.until(SystemClock::read());
        // Two blips without a ping between them would be one.
        SystemClock::block_for(pair.support / 2);
        if pair.ready()?.1 == epoch {
            self.count("stayed", 1);
            return Ok(());
        }
        // 0.1 P for two pings, and what is under way.
        if tenths == 3 && lasted < pair.support * 4 / 10 {
            self.violations.push(format!("lost after {lasted:?}"));
        }
        self.sample("cut, if lost", begins_at, begins_at.after(lasted));
        self.is_followed(pair, epoch, cut_at)
    }

    fn lose_both(&mut self, pair: &mut Pair, leader: (Side, u64), rng: &mut Rng) -> Result<(), Failure> {
        [0, 1].iter().try_for_each(|side| pair.cut(*side, &[ToStorage]))?;
        SystemClock::block_for(pair.support.mul_f64(rng.f64()));
        let cut_at = SystemClock::read();
        pair.end_host(1 - leader.0, Signal::KILL)?;
        block_until(cut_at.after(pair.support));
        self.ends_in_time(pair, leader.1, cut_at)?;
        [0, 1].iter().try_for_each(|side| pair.heal(*side, &[ToStorage]))?;
        pair.ready()?;
        self.is_followed(pair, leader.1, cut_at)
    }

    /// The worker of `epoch` has ended by 0.8 P after its leader was cut off.
    fn ends_in_time(&mut self, pair: &Pair, epoch: u64, cut_at: Instant) -> Result<(), Failure> {
        let lived = cut_at.until(pair.spans()?.pop().ok_or("no log of a worker")?.last);
        if lived > pair.support * 4 / 5 + LATE {
            self.violations.push(format!("epoch {epoch} worked for {lived:?} after it was cut off"));
        }
        Ok(())
    }

    fn is_followed(&mut self, pair: &Pair, epoch: u64, cut_at: Instant) -> Result<(), Failure> {
        let mut spans = pair.spans()?.into_iter().skip_while(|span| span.epoch != epoch);
        let (old, next) = spans.next().zip(spans.next()).ok_or("the leader was not followed")?;
        self.sample("old command lived", cut_at, old.last);
        self.sample("next command", cut_at, next.first);
        Ok(())
    }

    fn hand_over(
        &mut self,
        trial: Trial,
        pair: &mut Pair,
        (leader, epoch): (Side, u64),
    ) -> Result<(), Failure> {
        if trial == Trial::RollOut {
            pair.end_host(1 - leader, Signal::TERM)?;
            pair.ready()?;
        }
        let asked_at = SystemClock::read();
        match trial {
            Trial::StepDown => pair.operate("step-down")?,
            Trial::Pause => pair.operate("pause")?,
            _ => pair.signal(leader, Signal::TERM)?,
        }
        let with = if pair.is_named { "with a successor" } else { "without" };
        if trial == Trial::Pause {
            self.sample(&format!("paused {with}"), asked_at, SystemClock::read());
            pair.operate("resume")?;
        }
        let next = pair.next_after(epoch)?;
        if trial != Trial::Pause {
            self.sample(&format!("next command {with}"), asked_at, next.first);
        }
        if let Trial::Stop | Trial::RollOut = trial {
            pair.ends(leader)?;
        }
        Ok(())
    }

    fn sample(&mut self, what: &str, from: Instant, until: Instant) {
        self.samples.entry(what.into()).or_default().push(from.until(until).as_secs_f64());
    }

    fn count(&mut self, what: &str, count: usize) {
        *self.counts.entry(what.into()).or_default() += count;
    }

    fn add(&mut self, other: Self) {
        self.rounds += other.rounds;
        for (what, samples) in other.samples {
            self.samples.entry(what).or_default().extend(samples);
        }
        other.counts.into_iter().for_each(|(what, count)| self.count(&what, count));
        self.violations.extend(other.violations);
    }

    fn line(mut self) -> String {
        let mut line = format!("{} rounds", self.rounds);
        for (what, samples) in &mut self.samples {
            samples.sort_by(f64::total_cmp);
            let (median, most) = (samples[samples.len() / 2], samples[samples.len() - 1]);
            line += &format!("; {what} {median:.3}, at most {most:.3} ({})", samples.len());
        }
        self.counts.iter().for_each(|(what, count)| line += &format!("; {count} {what}"));
        line + &format!("; {} violations", self.violations.len())
    }
}
