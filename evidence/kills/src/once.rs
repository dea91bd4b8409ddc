//! `cargo xtask once`: three machines start `vvm once` for one period after the other, and the one that runs the
//! command is killed at random moments. A machine starts again until its `vvm once` ends with 0. For each period:
//!
//! - the command succeeds, and never runs twice at once, by an exclusive lock;
//! - it runs again only after a run that was killed or failed, or whose `vvm` did not end with 0;
//! - it does not run after a `vvm once` for the period has ended with 0, and one that ends with 0 prints nothing;
//! - each run was counted as an attempt, and an attempt without a run comes from a `vvm` that did not end with 0.

use crate::safety::{
    self,
    processes::{Process, Target, Tree},
};
use fastrand::Rng;
use rustix::{
    fs::{FlockOperation, flock},
    process::Signal,
};
use std::{
    collections::BTreeMap,
    env,
    error::Error,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many periods.
    #[arg(long, default_value_t = 500)]
    periods: u32,
    /// The seed of the kills; random if not given.
    #[arg(long)]
    seed: Option<u64>,
    /// The TTL, in milliseconds.
    #[arg(long, default_value_t = 1000)]
    ttl_ms: u64,
}

const MACHINES: usize = 3;
/// More than the kills and failures of a period.
const ATTEMPTS: u32 = 20;
/// Kills within this time hit all parts of the first runs, and those of the runs that follow them.
const KILLS_WITHIN: Duration = Duration::from_millis(600);
/// Mark and release follow a success within this time.
const MARKED_WITHIN: Duration = Duration::from_millis(15);
const LONGEST_WORK: Duration = Duration::from_millis(150);
/// Between two looks at the processes.
const PACE: Duration = Duration::from_millis(1);
const LONGEST_PERIOD: Duration = Duration::from_secs(120);
pub(crate) const JOB_FAILED: u8 = 3;
/// The variable with the folder of the period; the command gets the rest from `vvm`.
const FOLDER: &str = "ONCE_FOLDER";

pub(crate) fn run(args: &Args) -> Result<bool, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}: {} periods, {MACHINES} machines, TTL {} ms", args.periods, args.ttl_ms);
    let (vvm, storage) = (safety::program()?, safety::Storage::on_file(folder.path()).url);
    let (mut rng, mut counts, mut violations) = (Rng::with_seed(seed), Counts::default(), Vec::new());
    for number in 1..=args.periods {
        let name = format!("p{number:05}");
        let folder = folder.path().join(&name);
        fs::create_dir(&folder)?;
        let (vvm, storage, ttl_ms) = (vvm.clone(), storage.clone(), args.ttl_ms);
        let mut period = Period {
            vvm,
            storage,
            ttl_ms,
            name,
            folder,
            ends: BTreeMap::new(),
            done_at: None,
            violations: Vec::new(),
        };
        let mut machines = [const { Machine::Starts(0) }; MACHINES];
        if let Err(error) = period.run(&mut machines, &mut rng, &mut counts) {
            period.violations.push(error.to_string());
        }
        machines.iter_mut().for_each(Machine::end);
        violations.extend(period.violations.iter().map(|what| format!("period {}: {what}", period.name)));
        if number % 50 == 0 {
            println!("{number} periods");
        }
    }
    let Counts { kills, runs, after_a_kill, after_a_failure, without_a_mark, attempts_without_a_run } =
        counts;
    println!(
        "{kills} kills; {runs} runs: {after_a_kill} followed a run that was killed, {after_a_failure} one that failed, \
         {without_a_mark} one whose vvm died after the success and before its mark; {attempts_without_a_run} attempts \
         were counted without a run"
    );
    violations.iter().for_each(|violation| println!("VIOLATION: {violation}"));
    println!("{} periods, {} violations", args.periods, violations.len());
    if !violations.is_empty() {
        println!("the logs are kept in {}", folder.keep().display());
    }
    // In a few periods, every kill may come too late.
    Ok(violations.is_empty() && (args.periods < 50 || after_a_kill > 0))
}

#[derive(Default)]
struct Counts {
    kills: u32,
    runs: usize,
    after_a_kill: u32,
    after_a_failure: u32,
    without_a_mark: u32,
    attempts_without_a_run: usize,
}

struct Start {
    /// Its holder, which the log of its command names.
    holder: String,
    child: Child,
    guardian: Option<Process>,
}

enum Machine {
    /// It starts, and has started so often before.
    Starts(u32),
    Runs(u32, Start),
    Done,
}

impl Machine {
    fn end(&mut self) {
        if let Self::Runs(_, start) = self {
            // It may have ended already.
            let _ = start.child.kill();
            let _ = start.child.wait();
        }
    }
}

#[derive(PartialEq, Eq, Debug)]
struct Run {
    attempt: u32,
    holder: String,
    is_alone: bool,
    began: Instant,
    succeeded: Option<bool>,
}

struct Period {
    vvm: PathBuf,
    storage: String,
    ttl_ms: u64,
    name: String,
    folder: PathBuf,
    /// The status of each start that has ended, by its holder; `None` if it was killed by a signal.
    ends: BTreeMap<String, Option<i32>>,
    /// When the first end with status 0 was seen.
    done_at: Option<Instant>,
    violations: Vec<String>,
}

impl Period {
    fn command(&self, machine: usize, holder: &str) -> io::Result<Command> {
        let mut line = Command::new(&self.vvm);
        line.args(["once", "--storage", &self.storage, "--name", "once", "--period", &self.name, "--quiet"])
            .args(["--attempts", &ATTEMPTS.to_string(), "--retry-after", "0", "--keep", "400"])
            .args(["--holder", holder, "--ttl", &format!("{}ms", self.ttl_ms), "--local-dir"])
            // Machines do not wake each other.
            .arg(self.folder.with_file_name(format!("machine-{machine}")))
            .args(["--containment", "guardian", "--"])
            .arg(env::current_exe()?)
            .arg("job")
            .env(FOLDER, &self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(line)
    }

    fn run(
        &mut self,
        machines: &mut [Machine],
        rng: &mut Rng,
        counts: &mut Counts,
    ) -> Result<(), Box<dyn Error>> {
        let began = SystemClock::read();
        let mut kills: Vec<Instant> =
            (0..rng.u32(..4)).map(|_| began.after(KILLS_WITHIN.mul_f64(rng.f64()))).collect();
        let mut after_success = rng.bool().then(|| MARKED_WITHIN.mul_f64(rng.f64()));
        while !machines.iter().all(|machine| matches!(machine, Machine::Done)) {
            let now = SystemClock::read();
            if now > began.after(LONGEST_PERIOD) {
                return Err(format!("it is not done after {} s", LONGEST_PERIOD.as_secs()).into());
            }
            for (number, machine) in machines.iter_mut().enumerate() {
                self.start_or_reap(number, machine)?;
            }
            if after_success.is_some() && self.runs()?.iter().any(|run| run.succeeded == Some(true)) {
                kills.extend(after_success.take().map(|delay| now.after(delay)));
            }
            for _ in kills.extract_if(.., |at| *at <= now) {
                counts.kills += u32::from(kill_one(machines, rng));
            }
            SystemClock::block_for(PACE);
        }
        self.judge(counts)?;
        self.start_after_the_end()
    }

    fn start_or_reap(&mut self, number: usize, machine: &mut Machine) -> io::Result<()> {
        match machine {
            Machine::Starts(starts) => {
                let holder = format!("{}-{number}-{starts}", self.name);
                let child = self.command(number, &holder)?.spawn()?;
                let guardian = Process::of(child.id() as i32);
                *machine = Machine::Runs(*starts + 1, Start { holder, child, guardian });
            }
            Machine::Runs(starts, start) => {
                if start.child.try_wait()?.is_none() {
                    return Ok(());
                }
                let next = Machine::Starts(*starts);
                let Machine::Runs(_, start) = std::mem::replace(machine, next) else { return Ok(()) };
                let output = start.child.wait_with_output()?;
                self.ends.insert(start.holder, output.status.code());
                if output.status.success() {
                    *machine = Machine::Done;
                    // Now, because on a busy machine a whole run may fit between an earlier reading and this end.
                    self.done_at.get_or_insert_with(SystemClock::read);
                    if !output.stdout.is_empty() || !output.stderr.is_empty() {
                        self.violations.push(format!("a quiet end with 0 printed {output:?}"));
                    }
                }
            }
            Machine::Done => {}
        }
        Ok(())
    }

    fn runs(&self) -> io::Result<Vec<Run>> {
        match fs::read_to_string(self.folder.join(LOG)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            log => Ok(parse(&log?)),
        }
    }

    fn judge(&mut self, counts: &mut Counts) -> Result<(), Box<dyn Error>> {
        let runs = self.runs()?;
        let mut found = Vec::new();
        if !runs.iter().any(|run| run.succeeded == Some(true)) {
            found.push("no command succeeded".to_owned());
        }
        for run in runs.iter().filter(|run| !run.is_alone) {
            found.push(format!("attempt {} ran beside another one, which held the lock", run.attempt));
        }
        for pair in runs.windows(2) {
            let [run, next] = pair else { continue };
            if next.attempt <= run.attempt {
                found.push(format!("attempt {} follows attempt {}", next.attempt, run.attempt));
            }
            let ended_with = self.ends.get(&run.holder).copied().flatten();
            if ended_with == Some(0) {
                found.push(format!("attempt {} follows one whose vvm ended with 0", next.attempt));
            }
            match run.succeeded {
                Some(true) => counts.without_a_mark += 1,
                Some(false) => counts.after_a_failure += 1,
                None => counts.after_a_kill += 1,
            }
        }
        if let (Some(done_at), Some(last)) = (self.done_at, runs.last())
            && last.began > done_at
        {
            found.push(format!("attempt {} began after the period was done", last.attempt));
        }
        let attempts = self.attempts()?;
        let is_unlucky = |status: &&Option<i32>| ![Some(0), Some(JOB_FAILED.into())].contains(status);
        let unlucky = self.ends.values().filter(is_unlucky).count();
        let without_a_run = attempts.saturating_sub(runs.len());
        if attempts < runs.len() || without_a_run > unlucky {
            let runs = runs.len();
            found.push(format!("{attempts} attempts were counted for {runs} runs and {unlucky} deaths"));
        }
        counts.runs += runs.len();
        counts.attempts_without_a_run += without_a_run;
        self.violations.extend(found);
        Ok(())
    }

    fn attempts(&self) -> Result<usize, Box<dyn Error>> {
        let mut history = Command::new(&self.vvm);
        history.args(["history", "--periods", "--json", "--storage", &self.storage, "--name", "once"]);
        let periods: serde_json::Value = serde_json::from_slice(&history.output()?.stdout)?;
        let mut periods = periods.as_array().into_iter().flatten();
        let own = periods.find(|period| period["period"] == self.name.as_str());
        let own = own.ok_or("it is not in the storage")?;
        if own["state"] != "done" {
            return Err(format!("the storage says {own}").into());
        }
        Ok(usize::try_from(own["attempts"].as_u64().unwrap_or_default())?)
    }

    fn start_after_the_end(&mut self) -> Result<(), Box<dyn Error>> {
        let runs = self.runs()?.len();
        let output = self.command(0, "late")?.output()?;
        if !output.status.success() || !output.stdout.is_empty() || !output.stderr.is_empty() {
            self.violations.push(format!("a start after the end: {output:?}"));
        }
        if self.runs()?.len() != runs {
            self.violations.push("a start after the end ran the command".into());
        }
        Ok(())
    }
}

/// Kills a part of the machine that runs the command, or of any machine that runs. Returns whether it was there.
fn kill_one(machines: &[Machine], rng: &mut Rng) -> bool {
    let guardians = machines.iter().filter_map(|machine| match machine {
        Machine::Runs(_, start) => start.guardian,
        Machine::Starts(_) | Machine::Done => None,
    });
    let mut trees: Vec<Tree> = guardians.map(Tree::of).collect();
    if trees.iter().any(|tree| tree.worker.is_some()) {
        trees.retain(|tree| tree.worker.is_some());
    }
    let targets = [
        Target::Guardian,
        Target::Host,
        Target::Keeper,
        Target::Worker,
        Target::GuardianAndHost,
        Target::All,
    ];
    let (Some(tree), Some(target)) = (rng.choice(trees), rng.choice(targets)) else { return false };
    tree.processes(target).into_iter().fold(false, |some, process| process.signal(Signal::KILL) | some)
}

/// The log of a period below its folder: each run adds a line at its begin, and one at its end.
const LOG: &str = "runs";

fn parse(log: &str) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for line in log.lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["begins", attempt, holder, is_alone, began] => {
                let (Ok(attempt), Ok(began)) = (attempt.parse(), began.parse()) else { continue };
                let (holder, is_alone) = (holder.to_owned(), is_alone == "true");
                runs.push(Run {
                    attempt,
                    holder,
                    is_alone,
                    began: Instant::from_nanos(began),
                    succeeded: None,
                });
            }
            ["ends", attempt, succeeded] => {
                let of = runs.iter_mut().rev().find(|run| run.attempt.to_string() == attempt);
                of.into_iter().for_each(|run| run.succeeded = Some(succeeded == "true"));
            }
            _ => {}
        }
    }
    runs
}

/// The command: works for a while, and fails now and then. Returns whether it succeeded.
pub(crate) fn job() -> Result<bool, Box<dyn Error>> {
    let folder = PathBuf::from(env::var(FOLDER)?);
    let lock = File::create(folder.join("lock"))?;
    let is_alone = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
    let (attempt, holder) = (env::var("VVM_LEADER_ATTEMPT")?, env::var("VVM_LEADER_HOLDER")?);
    add_line(&folder, &format!("begins {attempt} {holder} {is_alone} {}", SystemClock::read().as_nanos()))?;
    SystemClock::block_for(LONGEST_WORK.mul_f64(fastrand::f64()));
    let succeeds = fastrand::u32(..10) > 0;
    add_line(&folder, &format!("ends {attempt} {succeeds}"))?;
    Ok(succeeds)
}

/// In one write, which a kill does not cut.
fn add_line(folder: &Path, line: &str) -> io::Result<()> {
    let mut log = File::options().create(true).append(true).open(folder.join(LOG))?;
    log.write_all(format!("{line}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_that_was_killed_has_no_end() {
        let run = |attempt, is_alone, succeeded| {
            let began = Instant::from_nanos(1000);
            Run { attempt, holder: format!("p1-{attempt}"), is_alone, began, succeeded }
        };
        let log = "begins 2 p1-2 true 1000\nbegins 3 p1-3 false 1000\nends 3 false\nbegins 5 p1-5 true 1000\nends 5 true\n";
        assert_eq!(parse(log), [run(2, true, None), run(3, false, Some(false)), run(5, true, Some(true))]);
    }
}
