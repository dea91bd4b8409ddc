//! `cargo xtask resume`: three `resumable-copy` processes share a copy, and their leader is killed at random
//! moments. The result must be the same as that of a copy without kills: each step counted exactly once.

use fastrand::Rng;
use ielections::{ReadError, TtlStorage as _};
use resumable_copy::{Plan, Progress, step};
use std::{
    env,
    error::Error,
    fs, io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};
use vvm_clock::{Clock, SystemClock};
use vvm_storage::{ElectionKey, ElectionsTtlStorage, SlotNumber};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many leaders are killed in all. Copies follow one another until it is reached.
    #[arg(long, default_value_t = 1_000)]
    kills: u64,
    /// The seed of the files and of the moments of the kills; random if not given.
    #[arg(long)]
    seed: Option<u64>,
    /// The TTL of the leaderships, in milliseconds: the shortest that SQLite takes if not given.
    #[arg(long, default_value_t = 500)]
    ttl_ms: u64,
}

/// How many processes share a copy.
const COUNT: usize = 3;
const NAME: &str = "copy";
/// How many bytes a step copies, and the pause after it: of many steps, so that kills hit all parts of one.
const PIECE: usize = 4 << 10;
const PAUSE: Duration = Duration::from_millis(2);
/// A leader is killed within this time.
const LONGEST_LEADERSHIP: Duration = Duration::from_millis(400);
const LONGEST_COPY: Duration = Duration::from_secs(300);
/// Between two looks at processes and storage.
const PACE: Duration = Duration::from_millis(5);
/// How many files, and the longest in bytes: about four thousand steps, and files of one piece and of many.
const FILES: usize = 200;
const LONGEST: usize = 160 << 10;

pub(crate) fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(kill_leaders(args))
}

async fn kill_leaders(args: &Args) -> Result<(), Box<dyn Error>> {
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}: {COUNT} processes, TTL {} ms; kills {} leaders", args.ttl_ms, args.kills);
    let mut rng = Rng::with_seed(seed);
    let (mut kills, mut copies, mut steps) = (0, 0, 0);
    while kills < args.kills {
        let place = tempfile::tempdir()?;
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        fill(&from, &mut rng)?;
        let plan = Plan::of(&from)?;
        let mut copiers = Copiers::start(place.path(), args.ttl_ms).await?;
        let done = copiers.kill_until_done(args.kills - kills, &mut rng).await;
        copiers.stop();
        let done = done?;
        let begin = Progress::begin(from.canonicalize()?, to.clone(), &plan);
        let expected = step::undisturbed(&plan, begin, PIECE)?;
        if (done.steps, done.bytes, &done.digest) != (expected.steps, expected.bytes, &expected.digest) {
            let kept = place.keep();
            return Err(format!(
                "the copy in {} differs from one without kills\nexpected {expected:?}\nfound    {done:?}",
                kept.display()
            )
            .into());
        }
        for file in &plan.files {
            if fs::read(from.join(&file.name))? != fs::read(to.join(&file.name))? {
                return Err(format!("the copy of {} differs", file.name.display()).into());
            }
        }
        kills += copiers.kills;
        copies += 1;
        steps += done.steps;
        println!("copy {copies}: {} steps, each once; {kills} leaders killed", done.steps);
    }
    println!("{copies} copies, {steps} steps, {kills} leaders killed: each step counted exactly once");
    Ok(())
}

struct Copiers {
    storage: ElectionsTtlStorage,
    clock: Arc<dyn Clock>,
    folder: PathBuf,
    ttl_ms: u64,
    processes: Vec<Child>,
    kills: u64,
    epoch: u64,
}

impl Copiers {
    async fn start(folder: &Path, ttl_ms: u64) -> Result<Self, Box<dyn Error>> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start()?);
        let storage = vvm_storage::open(&url(folder), Arc::clone(&clock)).await?;
        let (storage, folder) = (ElectionsTtlStorage::new(storage), folder.to_owned());
        let mut copiers = Self { storage, clock, folder, ttl_ms, processes: Vec::new(), kills: 0, epoch: 0 };
        for _ in 0..COUNT {
            copiers.start_one()?;
        }
        Ok(copiers)
    }

    fn start_one(&mut self) -> io::Result<()> {
        let mut process = Command::new(env::current_exe()?.with_file_name("resumable-copy"));
        process.args(["--storage", &url(&self.folder), "--name", NAME]);
        process.arg("--from").arg(self.folder.join("from")).arg("--to").arg(self.folder.join("to"));
        process.args(["--piece", &PIECE.to_string(), "--pause-ms", &PAUSE.as_millis().to_string()]);
        process.args(["--ttl-ms", &self.ttl_ms.to_string()]);
        process.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.processes.push(process.spawn()?);
        Ok(())
    }

    /// Kills at most `most` leaders, one after the other, until a process has finished the copy. Returns its output.
    async fn kill_until_done(&mut self, most: u64, rng: &mut Rng) -> Result<Progress, Box<dyn Error>> {
        let mut give_up_at = SystemClock::read().after(LONGEST_COPY);
        loop {
            let life = LONGEST_LEADERSHIP.mul_f64(rng.f64());
            let leader = loop {
                if let Some(done) = self.ended()? {
                    return Ok(done);
                }
                if SystemClock::read() >= give_up_at {
                    return Err(format!("the copy did not end within {} s", LONGEST_COPY.as_secs()).into());
                }
                match self.new_leader().await? {
                    Some(leader) if self.kills < most => break leader,
                    _ => self.clock.sleep(PACE).await,
                }
            };
            self.clock.sleep(life).await;
            if self.kill(leader)? {
                self.start_one()?;
                give_up_at = SystemClock::read().after(LONGEST_COPY);
            }
        }
    }

    /// Returns the process id of a leader whose epoch was not seen before.
    async fn new_leader(&mut self) -> Result<Option<u32>, Box<dyn Error>> {
        let slot =
            match self.storage.get(&ElectionKey { cluster: NAME.into(), slot: SlotNumber::FIRST }).await {
                Ok(slot) => slot,
                Err(ReadError::Unavailable(_)) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
        let Some(entry) = slot.entry().filter(|entry| entry.epoch.get() > self.epoch) else {
            return Ok(None);
        };
        self.epoch = entry.epoch.get();
        // The default holder of a `Host` is HOSTNAME:PID.
        let holder = entry.holder.as_str();
        let process = holder.rsplit_once(':').and_then(|(_, number)| number.parse().ok());
        process.map(Some).ok_or_else(|| format!("the holder {holder} does not end with a process id").into())
    }

    fn kill(&mut self, process: u32) -> io::Result<bool> {
        let Some(at) = self.processes.iter().position(|copier| copier.id() == process) else {
            return Ok(false);
        };
        if self.processes[at].try_wait()?.is_some() {
            // It finished, or its deadman ended it: `ended` finds it.
            return Ok(false);
        }
        self.processes[at].kill()?;
        self.processes.swap_remove(at).wait()?;
        self.kills += 1;
        Ok(true)
    }

    /// Returns what a process printed that has finished the copy. A process that ended before, because it
    /// lost its leadership on a slow machine, is replaced.
    fn ended(&mut self) -> Result<Option<Progress>, Box<dyn Error>> {
        for at in 0..self.processes.len() {
            let Some(status) = self.processes[at].try_wait()? else { continue };
            let finished = self.processes.swap_remove(at).wait_with_output()?;
            if status.success() {
                return Ok(Some(serde_json::from_slice(&finished.stdout)?));
            }
            println!("a process ended with {status}: {}", String::from_utf8_lossy(&finished.stderr).trim());
            self.start_one()?;
            return Ok(None);
        }
        Ok(None)
    }

    fn stop(&mut self) {
        for process in &mut self.processes {
            // It may have ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn url(folder: &Path) -> String {
    format!("sqlite:{}?allow=overlay", folder.join("copy.db").display())
}

fn fill(folder: &Path, rng: &mut Rng) -> Result<(), Box<dyn Error>> {
    for number in 0..FILES {
        let inside = folder.join(format!("folder-{}", number % 7));
        fs::create_dir_all(&inside)?;
        let mut bytes = vec![0; rng.usize(..LONGEST)];
        rng.fill(&mut bytes);
        fs::write(inside.join(format!("file-{number}")), bytes)?;
    }
    Ok(())
}
