//! Real `vvm run` processes on one SQLite file, killed, stopped and terminated at random moments. `kills safety
//! --duration 180` prints the faults, the leaderships and the violations. Violations are:
//!
//! - two workers at once, by an exclusive lock that a worker holds until it has ended;
//! - an epoch that does not rise;
//! - a worker, or its background process, that outlives its host or guardian by more than 50 ms;
//! - a process that is left at the end;
//! - a leader for less than 60 % of the time in which one may lead: not in a TTL after guardian and host were killed.
//!
//! `kills safety --kills 500` ends after so many kills. `kills safety --old PATH` tries a rolling upgrade:
//! candidates are of two versions, and each has led. `kills safety --warm keep` tries warm apps, which write between
//! `lead` and `stop` without a fence. With `--client python`, `go` or `node` these apps are written with that client
//! ([`clients`]): their logs alone show overlaps.

mod candidates;
mod clients;
mod faults;
pub(crate) mod processes;
mod remains;
mod verdict;
mod warm;

use candidates::{Instance, Setup, Worker};
use clients::Client;
use fastrand::Rng;
use faults::Faults;
use processes::Target;
use remains::{Orphans, Remains};
use servers::{owned, postgres::Postgres};
use std::{
    env, io,
    path::{Path, PathBuf},
    process::Command,
    rc::Rc,
    time::Duration,
};
use verdict::Successions;
use vvm_clock::{Instant, SystemClock};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How long to run, in seconds.
    #[arg(long, default_value_t = 180)]
    duration: u64,
    /// End after so many kills instead.
    #[arg(long, conflicts_with = "duration")]
    kills: Option<u64>,
    /// The TTL, in milliseconds; 1000 if not given, 2000 on a server.
    #[arg(long)]
    ttl_ms: Option<u64>,
    /// The mean time between two faults, in milliseconds; the TTL if not given.
    #[arg(long)]
    fault_ms: Option<u64>,
    /// How long a worker, or its background process, may outlive host or guardian, in milliseconds. More than
    /// 50 is for busy machines; the protocol's limit is 0.2 TTL.
    #[arg(long, default_value_t = 50)]
    at_most_ms: u64,
    /// The seed of the faults; random if not given.
    #[arg(long)]
    seed: Option<u64>,
    /// An older vvm program, for every second start; a relative path is beside this program. The folder for
    /// temporary files must not be on overlayfs, which the older program may not be able to allow.
    #[arg(long)]
    old: Option<PathBuf>,
    /// Workers are apps of `vvm run --warm`, with this `--after-stop`.
    #[arg(long, value_name = "AFTER_STOP", value_parser = ["restart", "keep"])]
    warm: Option<String>,
    /// These apps are written with this client.
    #[arg(long, value_name = "LANGUAGE", requires = "warm")]
    client: Option<Client>,
    /// Use PostgreSQL as the storage, and start it.
    #[arg(long)]
    postgres: bool,
}

const INSTANCES: usize = 5;

/// The worker: works until it is killed, or, as a warm app, while it leads.
pub(crate) fn work(folder: &Path) -> io::Result<bool> {
    match env::var_os("VVM_SOCKET") {
        Some(socket) => warm::work(folder, &socket),
        None => candidates::work(folder),
    }
}

/// The `vvm` under test: the one beside this program.
pub(crate) fn program() -> io::Result<PathBuf> {
    existing(env::current_exe()?.with_file_name("vvm"))
}

fn existing(vvm: PathBuf) -> io::Result<PathBuf> {
    if !vvm.exists() {
        let hint = format!("{} is missing: build it with `cargo build --release -p vvm-cli`", vvm.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, hint));
    }
    Ok(vvm)
}

pub(crate) fn run(args: &Args) -> io::Result<bool> {
    let mut programs = vec![program()?];
    if let Some(old) = &args.old {
        programs.push(existing(env::current_exe()?.with_file_name(old))?);
    }
    let folder = tempfile::tempdir()?;
    let mut storage = match args.postgres {
        // The oldest program creates what it needs.
        true => Storage::on_postgres(&programs[programs.len() - 1], "safety")?,
        false => Storage::on_file(folder.path()),
    };
    if args.old.is_some() {
        // An older program may not know the option.
        storage.url = storage.url.replace(ALLOW, "");
    }
    let ttl_ms = args.ttl_ms.unwrap_or(storage.ttl_ms);
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    let ends = args.kills.map_or_else(|| format!("{} s", args.duration), |kills| format!("{kills} kills"));
    println!("seed {seed}; {INSTANCES} candidates, TTL {ttl_ms} ms, {ends}");
    let worker = match args.client {
        Some(client) => client.worker(folder.path())?,
        None => Worker::own(folder.path())?,
    };
    let setup = Setup {
        worker,
        programs,
        folder: folder.path().to_owned(),
        storage: storage.url.clone(),
        ttl: Duration::from_millis(ttl_ms),
        after_stop: args.warm.clone(),
    };
    let plan = Plan {
        setup: Rc::new(setup),
        mean: Duration::from_millis(args.fault_ms.unwrap_or(ttl_ms)),
        most: Duration::from_millis(args.at_most_ms),
        duration: Duration::from_secs(args.duration),
        kills: args.kills,
    };
    let violations = plan.run(&mut Rng::with_seed(seed))?;
    if violations > 0 {
        println!("the workers' logs are kept in {}", folder.keep().display());
    }
    Ok(violations == 0)
}

pub(crate) struct Storage {
    pub(crate) url: String,
    /// The TTL if none is given, in milliseconds.
    pub(crate) ttl_ms: u64,
    _server: Option<Postgres>,
}

/// The folder for temporary files may be on overlayfs. All processes of a run see the same one.
const ALLOW: &str = "?allow=overlay";

impl Storage {
    pub(crate) fn on_file(folder: &Path) -> Self {
        let url = format!("sqlite:{}{ALLOW}", folder.join("storage.db").display());
        Self { url, ttl_ms: 1000, _server: None }
    }

    /// A database of this name on a server of its own. `vvm` creates what it needs there.
    pub(crate) fn on_postgres(vvm: &Path, database: &str) -> io::Result<Self> {
        let server = Postgres::start(&servers::target(), &[database], &[]).map_err(io::Error::other)?;
        let url = server.url(database);
        let mut init = Command::new(vvm);
        owned::run(init.args(["init-storage", "--storage", &url]), "vvm beside it")
            .map_err(io::Error::other)?;
        Ok(Self { url, ttl_ms: 2000, _server: Some(server) })
    }
}

struct Plan {
    setup: Rc<Setup>,
    mean: Duration,
    most: Duration,
    duration: Duration,
    /// If given, the run ends after so many kills instead.
    kills: Option<u64>,
}

#[derive(Default)]
struct Seen {
    faults: Faults,
    orphans: Orphans,
    remains: Remains,
}

impl Plan {
    fn run(&self, rng: &mut Rng) -> io::Result<usize> {
        let Setup { programs, folder, ttl, .. } = &*self.setup;
        let began = SystemClock::read();
        let mut seen = Seen::default();
        let instances = self.inject_faults(&mut seen, began, rng)?;
        let ended = SystemClock::read();
        let Seen { mut faults, orphans, mut remains } = seen;
        for instance in instances {
            // The last fault may have ended it: the processes that it leaves are checked, too.
            if let Some(end) = instance.end(|instance| faults.kills_guardian_of(instance))? {
                remains.of(end, SystemClock::read(), *ttl, &faults.excused);
            }
            remains.look(SystemClock::read(), self.most);
        }
        remains.at_the_end(folder, *ttl, self.most);
        let took = began.until(ended).as_secs();
        println!("{faults}, in {took} s");
        let spans = verdict::read(folder)?;
        println!("{}", Successions::of(&faults.leader_kills, &spans, *ttl));
        let both =
            faults.leader_kills.iter().filter(|(_, target)| *target == Target::GuardianAndHost).count();
        let by_design = *ttl * u32::try_from(both).unwrap_or(u32::MAX);
        let mut verdict = verdict::judge(spans, (began, ended), by_design);
        if programs.len() > 1 {
            verdict.check_turns(programs);
        }
        verdict.violations.extend(orphans.violations);
        verdict.violations.extend(remains.violations);
        println!(
            "workers and their background processes outlived their host by at most {:.1} ms ({} seen), \
             their guardian by {:.1} ms",
            orphans.longest.as_secs_f64() * 1e3,
            orphans.seen,
            remains.longest.as_secs_f64() * 1e3
        );
        println!(
            "guardian and host or keeper killed, or one while the other was stopped: {}; \
             {} of them left {} background processes",
            remains.excused, remains.left_a_process, remains.left
        );
        println!("{verdict}");
        Ok(verdict.violations.len())
    }

    fn inject_faults(&self, seen: &mut Seen, began: Instant, rng: &mut Rng) -> io::Result<Vec<Instance>> {
        let Seen { faults, orphans, remains } = seen;
        let mut instances = (0..INSTANCES)
            .map(|number| Instance::start(&self.setup, number))
            .collect::<io::Result<Vec<_>>>()?;
        let mut next_fault = began;
        loop {
            let now = SystemClock::read();
            let is_over = match self.kills {
                Some(kills) => faults.kills() >= kills,
                None => now >= began.after(self.duration),
            };
            if is_over {
                break;
            }
            for instance in &mut instances {
                if let Some(ended) = instance.restart_if_due(now, rng)? {
                    remains.of(ended, now, self.setup.ttl, &faults.excused);
                }
            }
            orphans.look(now, &self.setup.folder, self.most, &faults.excused)?;
            remains.look(now, self.most);
            faults.resume_due(now);
            if now >= next_fault {
                faults.inject(now, &mut instances, rng);
                next_fault = now.after(self.mean.mul_f64(2.0 * rng.f64()));
            }
            // Between two looks: short enough to measure how long an orphan lives.
            SystemClock::block_for(Duration::from_millis(3));
        }
        faults.resume_all();
        Ok(instances)
    }
}
