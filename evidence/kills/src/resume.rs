//! `cargo xtask resume`: three `resumable-copy` processes share a copy, and their leader is killed at random
//! moments. The result must be the same as that of a copy without kills: each step counted exactly once.

use fastrand::Rng;
use ielections::{ReadError, Slot, TtlStorage as _};
use resumable_copy::{Plan, Progress, step};
use std::{
    collections::BTreeMap,
    env,
    error::Error,
    ffi::OsString,
    fs, io,
    num::NonZeroU32,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    slice,
    sync::Arc,
    time::Duration,
};
use vvm_clock::{Clock, SystemClock};
use vvm_storage::{ElectionKey, ElectionsTtlStorage, SlotNumber};

/// The arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many leaders are killed in all. Copies follow one another until it is reached.
    #[arg(long, default_value_t = 1_000)]
    kills: u64,
    /// The seed of the files and of the moments of the kills; random if not given.
    #[arg(long)]
    seed: Option<u64>,
    /// Start a cluster of so many nodes of Apache Cassandra, and use it as the storage instead of SQLite files.
    #[arg(long, value_name = "NODES")]
    cassandra: Option<std::num::NonZeroU8>,
    /// The TTL of the leaderships, in milliseconds; 500 if not given, 3000 with `--cassandra`.
    #[arg(long)]
    ttl_ms: Option<u64>,
}

/// How many bytes a step copies, and the pause after it. A leadership has many steps, so that kills hit all
/// parts of a step.
const PIECE: usize = 4 << 10;
const PAUSE: Duration = Duration::from_millis(2);
/// A leader is killed within this time.
const LONGEST_LEADERSHIP: Duration = Duration::from_millis(400);
/// The shortest TTL that SQLite takes.
const TTL_MS: u64 = 500;
/// Longer, because three nodes and three processes share a machine.
const TTL_ON_CASSANDRA_MS: u64 = 3000;
/// How long a copy may take after its last kill.
const LONGEST_COPY: Duration = Duration::from_secs(300);

/// Kills until the promised number is reached.
pub(crate) fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if let Some(nodes) = args.cassandra {
        let cluster = servers::cassandra::Cassandra::start(nodes.get(), &servers::target())?;
        let url = cluster.url("resumption");
        runtime.block_on(vvm_storage::init_storage(&url))?;
        return runtime.block_on(kill_leaders(args, Some(&url), TTL_ON_CASSANDRA_MS));
    }
    runtime.block_on(kill_leaders(args, None, TTL_MS))
}

/// On a storage, or on a file for each copy.
async fn kill_leaders(args: &Args, storage: Option<&str>, ttl_ms: u64) -> Result<(), Box<dyn Error>> {
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    let ttl_ms = args.ttl_ms.unwrap_or(ttl_ms);
    println!("seed {seed}: three processes, TTL {ttl_ms} ms; kills {} leaders", args.kills);
    let mut rng = Rng::with_seed(seed);
    let (mut kills, mut copies, mut steps) = (0, 0, 0);
    let began = SystemClock::read();
    while kills < args.kills {
        let place = tempfile::tempdir()?;
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        fill(&from, &mut rng)?;
        let own = || format!("sqlite:{}?allow=overlay", place.path().join("copy.db").display());
        let url = storage.map_or_else(own, str::to_owned);
        let name = format!("copy-{seed}-{copies}");
        let plan = Plan::of(&from)?;
        let mut copiers = Copiers::start(url, ttl_ms, &name, &from, &to).await?;
        // If a leader is killed between the rename of a file and its document, its successor makes that one
        // file again.
        let (mut before, mut again) = (BTreeMap::new(), 0);
        let done = copiers
            .kill_until_done(args.kills - kills, &mut rng, || {
                let made = complete(&plan, &to);
                again += before.iter().filter(|(file, inode)| made.get(file) != Some(inode)).count() as u64;
                before = made;
            })
            .await;
        let killed = copiers.kills;
        copiers.stop();
        let done = done?;
        if again > killed {
            return Err(format!("{again} files were made again after {killed} kills").into());
        }
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
        check_equal(&plan, &from, &to)?;
        kills += killed;
        copies += 1;
        steps += done.steps;
        let took = SystemClock::read().since(began).as_secs();
        println!("copy {copies}: {} steps, each once; {kills} leaders killed; {took} s", done.steps);
    }
    println!("{copies} copies, {steps} steps, {kills} leaders killed: each step counted exactly once");
    Ok(())
}

/// How many processes share a copy.
const COUNT: usize = 3;
/// Between two looks at processes and storage.
const PACE: Duration = Duration::from_millis(5);

/// The processes, and a connection of our own to their storage.
struct Copiers {
    storage: ElectionsTtlStorage,
    clock: Arc<dyn Clock>,
    key: ElectionKey,
    program: PathBuf,
    arguments: Vec<OsString>,
    processes: Vec<Child>,
    /// How many leaders were killed.
    kills: u64,
    /// The last epoch that was seen.
    epoch: u64,
}

impl Copiers {
    /// Starts them.
    async fn start(
        url: String,
        ttl_ms: u64,
        name: &str,
        from: &Path,
        to: &Path,
    ) -> Result<Self, Box<dyn Error>> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start()?);
        let storage = ElectionsTtlStorage::new(vvm_storage::open(&url, Arc::clone(&clock)).await?);
        let arguments = [
            ["--storage".into(), url.into()],
            ["--from".into(), from.into()],
            ["--to".into(), to.into()],
            ["--name".into(), name.into()],
            ["--piece".into(), PIECE.to_string().into()],
            ["--pause-ms".into(), PAUSE.as_millis().to_string().into()],
            ["--ttl-ms".into(), ttl_ms.to_string().into()],
        ];
        let mut copiers = Self {
            storage,
            clock,
            key: ElectionKey { cluster: name.into(), slot: SlotNumber::new(NonZeroU32::MIN) },
            program: env::current_exe()?.with_file_name("resumable-copy"),
            arguments: arguments.concat(),
            processes: Vec::new(),
            kills: 0,
            epoch: 0,
        };
        for _ in 0..COUNT {
            copiers.start_one()?;
        }
        Ok(copiers)
    }

    /// Kills at most `most` leaders, one after the other, until a process has finished the copy. Returns what
    /// that process printed. Calls `after_each` after each kill.
    async fn kill_until_done(
        &mut self,
        most: u64,
        rng: &mut Rng,
        mut after_each: impl FnMut(),
    ) -> Result<Progress, Box<dyn Error>> {
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
                after_each();
                self.start_one()?;
                give_up_at = SystemClock::read().after(LONGEST_COPY);
            }
        }
    }

    /// Returns the process id of a leader whose epoch was not seen before.
    ///
    /// Reads as a waiting candidate does, which may be stale: on a cluster, a linearizable read would be a
    /// transaction that delays the leader's own.
    async fn new_leader(&mut self) -> Result<Option<u32>, Box<dyn Error>> {
        let slots = match self.storage.scan(slice::from_ref(&self.key)).await {
            Ok(slots) => slots,
            Err(ReadError::Unavailable(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let Some(entry) = slots.first().and_then(Slot::entry) else { return Ok(None) };
        let (epoch, holder) = (entry.epoch.get(), entry.holder.as_str());
        // A stale look may show a smaller one.
        if epoch <= self.epoch {
            return Ok(None);
        }
        self.epoch = epoch;
        // The default holder of a `Host` is HOSTNAME:PID.
        let process = holder.rsplit_once(':').and_then(|(_, number)| number.parse().ok());
        process.map(Some).ok_or_else(|| format!("the holder {holder} does not end with a process id").into())
    }

    /// Kills a process. Returns whether it still ran.
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

    fn start_one(&mut self) -> io::Result<()> {
        let process = Command::new(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        self.processes.push(process);
        Ok(())
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

    /// Kills all that still run.
    fn stop(mut self) {
        for process in &mut self.processes {
            // It may have ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// How many files, and the longest in bytes: about four thousand steps, and files of one piece and of many.
const FILES: usize = 200;
const LONGEST: usize = 160 << 10;

/// Writes the files.
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

/// Fails unless every file of the plan has the same contents in both folders.
fn check_equal(plan: &Plan, from: &Path, to: &Path) -> Result<(), Box<dyn Error>> {
    for file in &plan.files {
        if fs::read(from.join(&file.name))? != fs::read(to.join(&file.name))? {
            return Err(format!("the copy of {} differs", file.name.display()).into());
        }
    }
    Ok(())
}

/// Returns the complete files of the plan, each with its inode: a file that is made again has another.
fn complete(plan: &Plan, to: &Path) -> BTreeMap<usize, u64> {
    let inode = |at: usize| fs::metadata(to.join(&plan.files[at].name)).map(|found| found.ino());
    (0..plan.files.len()).filter_map(|at| Some((at, inode(at).ok()?))).collect()
}
