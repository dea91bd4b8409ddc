//! `cargo xtask once`: three machines start `vvm once` for one period after the other, and the one that runs the
//! command is killed at random moments. A machine that was killed starts again. For each period:
//!
//! - the command succeeds, and each machine ends with status 0;
//! - it never runs twice at once, by an exclusive lock and by the times in its logs;
//! - it runs again only after a run that was killed or failed, or whose `vvm` did not end with 0;
//! - it does not run after a `vvm once` for the period has ended with 0;
//! - each run was counted as an attempt, and an attempt without a run comes from a `vvm` that did not end with 0;
//! - a start for a period that is done prints nothing. How long it takes is measured.

use crate::safety::{
    self, Storage,
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
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

/// The arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many periods.
    #[arg(long, default_value_t = 500)]
    periods: u32,
    /// The seed of the work and of the kills; random if not given.
    #[arg(long)]
    seed: Option<u64>,
    /// Start a PostgreSQL server, and use it as the storage instead of a SQLite file.
    #[arg(long)]
    postgres: bool,
    /// The TTL, in milliseconds; 1000 if not given, 2000 with `--postgres`.
    #[arg(long)]
    ttl_ms: Option<u64>,
}

const MACHINES: usize = 3;
/// Enough for every kill of a period.
const ATTEMPTS: u32 = 20;
/// At most so many kills hit a period.
const KILLS: u32 = 4;
/// The longest work of a command.
const LONGEST_WORK: Duration = Duration::from_millis(150);
/// A machine starts again within this time.
const LONGEST_RESTART: Duration = Duration::from_millis(300);
/// Between two looks at the processes.
const PACE: Duration = Duration::from_millis(1);
/// How long a period may take.
const LONGEST_PERIOD: Duration = Duration::from_secs(120);
/// The status of a command that fails.
const FAILED: i32 = 3;

/// The variable with the folder of the logs; the command gets the rest from `vvm`.
const LOGS: &str = "ONCE_LOGS";

/// Returns whether there were no violations.
pub(crate) fn run(args: &Args) -> Result<bool, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let vvm = safety::program()?;
    let storage =
        if args.postgres { Storage::on_postgres(&vvm, "once")? } else { Storage::on_file(folder.path()) };
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    let ttl = Duration::from_millis(args.ttl_ms.unwrap_or(storage.ttl_ms));
    println!("seed {seed}: {} periods, {MACHINES} machines, TTL {} ms", args.periods, ttl.as_millis());
    let setup = Setup { vvm, folder: folder.path().to_owned(), storage: storage.url.clone(), ttl };
    let (mut rng, mut total, began) = (Rng::with_seed(seed), Total::default(), SystemClock::read());
    for number in 1..=args.periods {
        let mut period = Period::new(&setup, number);
        if let Err(error) = period.run(&mut rng, &mut total) {
            period.violated(error.to_string());
        }
        period.end()?;
        total.violations.append(&mut period.violations);
        if number % 50 == 0 {
            println!("{number} periods, {} s", SystemClock::read().since(began).as_secs());
        }
    }
    println!("{total}");
    if !total.violations.is_empty() {
        println!("the logs are kept in {}", folder.keep().display());
    }
    // In a few periods, every kill may come too late.
    Ok(total.violations.is_empty() && (args.periods < 50 || !total.kills.is_empty()))
}

struct Setup {
    vvm: PathBuf,
    folder: PathBuf,
    storage: String,
    ttl: Duration,
}

/// Kills a target. Returns whether a process of it was there.
fn kill(tree: &Tree, target: Target) -> bool {
    tree.processes(target).into_iter().fold(false, |some, process| process.signal(Signal::KILL) | some)
}

/// A `vvm once` that runs.
struct Start {
    /// Its holder, which the log of its command names.
    holder: String,
    child: Child,
    process: Option<Process>,
}

/// One machine.
struct Machine {
    number: usize,
    starts: u32,
    running: Option<Start>,
    /// When it starts again; `None` if it has ended with 0, or runs.
    restart_at: Option<Instant>,
}

/// When a kill is due.
#[derive(Clone, Copy)]
enum Due {
    At(Instant),
    /// Shortly after the next success in a log: around the mark and the release.
    AfterSuccess(Duration),
}

/// One period.
struct Period<'setup> {
    setup: &'setup Setup,
    name: String,
    machines: Vec<Machine>,
    /// How each start that has ended did so, by its holder; none if it was killed by a signal.
    ends: BTreeMap<String, Option<i32>>,
    /// When the first end with status 0 was seen.
    done_at: Option<Instant>,
    violations: Vec<String>,
}

/// One run of the command, from its log.
#[derive(Clone, Debug)]
struct Run {
    attempt: u32,
    holder: String,
    alone: bool,
    began: Instant,
    /// The last moment at which it was seen to work.
    last: Instant,
    succeeded: bool,
    failed: bool,
}

#[derive(Default)]
struct Total {
    periods: u32,
    runs: u32,
    after_a_kill: u32,
    after_a_failure: u32,
    success_without_a_mark: u32,
    counted_without_a_run: u32,
    kills: BTreeMap<Target, u32>,
    other_ends: BTreeMap<i32, u32>,
    losers: Vec<Duration>,
    violations: Vec<String>,
}

impl<'setup> Period<'setup> {
    fn new(setup: &'setup Setup, number: u32) -> Self {
        let machine =
            |number| Machine { number, starts: 0, running: None, restart_at: Some(Instant::ORIGIN) };
        Self {
            setup,
            name: format!("p{number:05}"),
            machines: (0..MACHINES).map(machine).collect(),
            ends: BTreeMap::new(),
            done_at: None,
            violations: Vec::new(),
        }
    }

    fn violated(&mut self, what: String) {
        self.violations.push(format!("period {}: {what}", self.name));
    }

    fn logs(&self) -> PathBuf {
        self.setup.folder.join(&self.name)
    }

    /// A `vvm once` of a machine.
    fn command(&self, machine: usize, holder: &str) -> io::Result<Command> {
        let Setup { vvm, folder, storage, ttl } = self.setup;
        let mut line = Command::new(vvm);
        line.args(["once", "--storage", storage, "--name", "once", "--period", &self.name, "--quiet"])
            .args(["--attempts", &ATTEMPTS.to_string(), "--retry-after", "0", "--keep", "400"])
            .args(["--holder", holder, "--ttl", &format!("{}ms", ttl.as_millis()), "--local-dir"])
            // Machines do not wake each other.
            .arg(folder.join(format!("machine-{machine}")))
            .args(["--containment", "guardian", "--"])
            .arg(env::current_exe()?)
            .arg("job")
            .env(LOGS, self.logs())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(line)
    }

    /// Runs it to its end, and judges it.
    fn run(&mut self, rng: &mut Rng, total: &mut Total) -> Result<(), Box<dyn Error>> {
        fs::create_dir(self.logs())?;
        let began = SystemClock::read();
        let mut kills = (0..rng.u32(..=KILLS))
            .map(|_| match rng.u32(..3) {
                0 => Due::AfterSuccess(Duration::from_micros(rng.u64(..15_000))),
                _ => Due::At(began.after(Duration::from_millis(rng.u64(..600)))),
            })
            .collect::<Vec<_>>();
        let mut seen_successes = 0;
        while self.machines.iter().any(|machine| machine.running.is_some() || machine.restart_at.is_some()) {
            let now = SystemClock::read();
            if now > began.after(LONGEST_PERIOD) {
                return Err(format!("it is not done after {} s", LONGEST_PERIOD.as_secs()).into());
            }
            self.start_and_reap(now, rng)?;
            let successes = self.read()?.iter().filter(|run| run.succeeded).count();
            if successes > seen_successes {
                seen_successes = successes;
                if let Some(due) = kills.iter_mut().find(|due| matches!(due, Due::AfterSuccess(_)))
                    && let Due::AfterSuccess(delay) = *due
                {
                    *due = Due::At(now.after(delay));
                }
            }
            let is_due = |due: &Due| matches!(due, Due::At(at) if *at <= now);
            for _ in kills.extract_if(.., |due| is_due(due)) {
                if let Some(target) = self.kill(rng) {
                    *total.kills.entry(target).or_default() += 1;
                }
            }
            SystemClock::block_for(PACE);
        }
        self.judge(total)?;
        self.lose(total)
    }

    fn start_and_reap(&mut self, now: Instant, rng: &mut Rng) -> Result<(), Box<dyn Error>> {
        for at in 0..self.machines.len() {
            let Machine { number, starts, .. } = self.machines[at];
            if self.machines[at].restart_at.is_some_and(|due| due <= now) {
                let holder = format!("{}-{number}-{starts}", self.name);
                let child = self.command(number, &holder)?.spawn()?;
                let process = Process::of(child.id() as i32);
                let machine = &mut self.machines[at];
                (machine.running, machine.restart_at) = (Some(Start { holder, child, process }), None);
                machine.starts += 1;
            }
            let Some(start) = &mut self.machines[at].running else { continue };
            if start.child.try_wait()?.is_none() {
                continue;
            }
            let Some(start) = self.machines[at].running.take() else { continue };
            let output = start.child.wait_with_output()?;
            self.ends.insert(start.holder, output.status.code());
            if output.status.success() {
                // Not `now`: on a busy machine a whole run may fit between that reading and this end.
                self.done_at.get_or_insert_with(SystemClock::read);
                if !output.stdout.is_empty() || !output.stderr.is_empty() {
                    let said = String::from_utf8_lossy(&output.stderr).into_owned();
                    self.violated(format!("a quiet end with 0 printed {said:?}"));
                }
            } else {
                let pause = LONGEST_RESTART.mul_f64(rng.f64());
                self.machines[at].restart_at = Some(now.after(pause));
            }
        }
        Ok(())
    }

    /// Kills a part of the machine that runs the command, or of any machine that runs.
    fn kill(&self, rng: &mut Rng) -> Option<Target> {
        let running =
            self.machines.iter().filter_map(|machine| machine.running.as_ref()?.process).map(Tree::of);
        let mut trees: Vec<Tree> = running.collect();
        if trees.iter().any(|tree| tree.worker.is_some()) {
            trees.retain(|tree| tree.worker.is_some());
        }
        let tree = rng.choice(trees)?;
        let targets = [
            Target::Guardian,
            Target::Host,
            Target::Host,
            Target::Keeper,
            Target::Worker,
            Target::GuardianAndHost,
            Target::All,
        ];
        let target = rng.choice(targets)?;
        kill(&tree, target).then_some(target)
    }

    /// Reads the logs. A run that was killed before its first line has none.
    fn read(&self) -> io::Result<Vec<Run>> {
        let mut runs = Vec::new();
        for entry in fs::read_dir(self.logs())? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("run-")) {
                runs.extend(parse(&fs::read_to_string(path)?));
            }
        }
        runs.sort_by_key(|run| run.began);
        Ok(runs)
    }

    /// Judges the runs of the command.
    fn judge(&mut self, total: &mut Total) -> Result<(), Box<dyn Error>> {
        let runs = self.read()?;
        total.periods += 1;
        total.runs += runs.len() as u32;
        for status in self.ends.values().copied().flatten().filter(|status| ![0, FAILED].contains(status)) {
            *total.other_ends.entry(status).or_default() += 1;
        }
        let mut found = Vec::new();
        if !runs.iter().any(|run| run.succeeded) {
            found.push("no command succeeded".to_owned());
        }
        for run in runs.iter().filter(|run| !run.alone) {
            found.push(format!("attempt {} ran beside another one, which held the lock", run.attempt));
        }
        for pair in runs.windows(2) {
            let [run, next] = pair else { continue };
            if next.began < run.last {
                found.push(format!("attempts {} and {} overlap", run.attempt, next.attempt));
            }
            if next.attempt <= run.attempt {
                found.push(format!("attempt {} follows attempt {}", next.attempt, run.attempt));
            }
            let ended_with = self.ends.get(&run.holder).copied().flatten();
            match (run.succeeded, run.failed) {
                (true, _) if ended_with == Some(0) => {
                    found.push(format!("attempt {} follows one whose vvm ended with 0", next.attempt));
                }
                (true, _) => total.success_without_a_mark += 1,
                (false, true) => total.after_a_failure += 1,
                (false, false) if ended_with == Some(0) => {
                    found.push(format!("attempt {} had no end, and its vvm ended with 0", run.attempt));
                }
                (false, false) => total.after_a_kill += 1,
            }
        }
        if let (Some(done_at), Some(last)) = (self.done_at, runs.last())
            && last.began > done_at
        {
            found.push(format!("attempt {} began after the period was done", last.attempt));
        }
        let attempts = self.attempts()?;
        let unlucky = self.ends.values().filter(|status| ![Some(0), Some(FAILED)].contains(status)).count();
        let without_a_run = attempts.saturating_sub(runs.len() as u32);
        total.counted_without_a_run += without_a_run;
        if attempts < runs.len() as u32 || without_a_run as usize > unlucky {
            let runs = runs.len();
            found.push(format!("{attempts} attempts were counted for {runs} runs and {unlucky} deaths"));
        }
        found.into_iter().for_each(|what| self.violated(what));
        Ok(())
    }

    /// Returns the number of attempts that the storage has, once it says that the period is done.
    fn attempts(&self) -> Result<u32, Box<dyn Error>> {
        let Setup { vvm, storage, .. } = self.setup;
        let mut history = Command::new(vvm);
        history.args(["history", "--periods", "--json", "--storage", storage, "--name", "once"]);
        let periods: serde_json::Value = serde_json::from_slice(&history.output()?.stdout)?;
        let mut periods = periods.as_array().into_iter().flatten();
        let own = periods
            .find(|period| period["period"] == self.name.as_str())
            .ok_or("it is not in the storage")?;
        if own["state"] != "done" {
            return Err(format!("the storage says {own}").into());
        }
        Ok(u32::try_from(own["attempts"].as_u64().unwrap_or_default())?)
    }

    /// Starts it once more, and measures how long that takes.
    fn lose(&mut self, total: &mut Total) -> Result<(), Box<dyn Error>> {
        let runs = self.read()?.len();
        let began = SystemClock::read();
        let output = self.command(0, "loser")?.output()?;
        total.losers.push(SystemClock::read().since(began));
        if !output.status.success() || !output.stdout.is_empty() || !output.stderr.is_empty() {
            self.violated(format!("a start after the end: {output:?}"));
        }
        if self.read()?.len() != runs {
            self.violated("a start after the end ran the command".into());
        }
        Ok(())
    }

    /// Kills what is left, after a failure.
    fn end(&mut self) -> io::Result<()> {
        for start in self.machines.iter_mut().filter_map(|machine| machine.running.as_mut()) {
            // It may have ended already.
            let _ = start.child.kill();
            start.child.wait()?;
        }
        Ok(())
    }
}

fn parse(log: &str) -> Option<Run> {
    let mut lines = log.lines();
    let mut head = lines.next()?.split(' ');
    let (attempt, holder) = (head.next()?.parse().ok()?, head.next()?.to_owned());
    let alone = head.next()? == "alone";
    let began = Instant::from_nanos(head.next()?.parse().ok()?);
    let (mut last, mut succeeded, mut failed) = (began, false, false);
    for line in lines {
        match line {
            "succeeded" => succeeded = true,
            "failed" => failed = true,
            // A kill may cut off the last line, which leaves a smaller number.
            beat => last = last.max(beat.parse().map_or(last, Instant::from_nanos)),
        }
    }
    Some(Run { attempt, holder, alone, began, last, succeeded, failed })
}

/// The command: works for a while, and fails now and then. Returns whether it succeeded.
pub(crate) fn job() -> Result<bool, Box<dyn Error>> {
    let folder = PathBuf::from(env::var(LOGS)?);
    let lock = File::create(folder.join("lock"))?;
    let alone = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
    let (attempt, holder) = (env::var("VVM_LEADER_ATTEMPT")?, env::var("VVM_LEADER_HOLDER")?);
    let mut log = log_of(&folder, &attempt, &holder)?;
    let alone = if alone { "alone" } else { "OVERLAP" };
    writeln!(log, "{attempt} {holder} {alone} {}", SystemClock::read().as_nanos())?;
    let ends_at = SystemClock::read().after(LONGEST_WORK.mul_f64(fastrand::f64()));
    while SystemClock::read() < ends_at {
        SystemClock::block_for(Duration::from_millis(5));
        writeln!(log, "{}", SystemClock::read().as_nanos())?;
    }
    let succeeds = fastrand::u32(..10) > 0;
    writeln!(log, "{}", if succeeds { "succeeded" } else { "failed" })?;
    Ok(succeeds)
}

/// The status of a command that did not succeed.
pub(crate) const JOB_FAILED: u8 = FAILED as u8;

fn log_of(folder: &Path, attempt: &str, holder: &str) -> io::Result<File> {
    OpenOptions::new().create_new(true).append(true).open(folder.join(format!("run-{attempt}-{holder}")))
}

impl fmt::Display for Total {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kills = self.kills.iter().map(|(target, count)| format!("{target} {count}")).collect::<Vec<_>>();
        let others = self.other_ends.iter().map(|(status, count)| format!("{status}: {count}"));
        writeln!(
            out,
            "{} kills: {}; statuses other than 0 and {FAILED}: {}",
            self.kills.values().sum::<u32>(),
            kills.join(", "),
            others.collect::<Vec<_>>().join(", ")
        )?;
        writeln!(
            out,
            "{} periods done, {} runs of the command; {} followed a run that was killed, {} one that failed, {} one \
             that had succeeded, but whose vvm died before the mark; {} attempts were counted without a run",
            self.periods,
            self.runs,
            self.after_a_kill,
            self.after_a_failure,
            self.success_without_a_mark,
            self.counted_without_a_run
        )?;
        let mut losers = self.losers.clone();
        losers.sort();
        if let (Some(median), Some(most)) = (losers.get(losers.len() / 2), losers.last()) {
            let millis = |took: &Duration| took.as_secs_f64() * 1e3;
            writeln!(
                out,
                "{} starts after the end: status 0, no output, {:.0} ms (median), at most {:.0} ms",
                losers.len(),
                millis(median),
                millis(most)
            )?;
        }
        self.violations.iter().try_for_each(|violation| writeln!(out, "VIOLATION: {violation}"))?;
        write!(out, "{} violations", self.violations.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_of_a_run_that_was_killed_has_neither_end() {
        let run = parse("2 p1-0-1 alone 1000\n2000\n3000\n40").unwrap();
        assert_eq!((run.attempt, run.holder.as_str(), run.alone), (2, "p1-0-1", true));
        assert_eq!((run.began, run.last), (Instant::from_nanos(1000), Instant::from_nanos(3000)));
        assert!(!run.succeeded && !run.failed);
        assert!(
            parse("2 p1-0-1 OVERLAP 1000\n2000\nsucceeded\n").is_some_and(|run| run.succeeded && !run.alone)
        );
    }
}
