use std::{
    any::Any,
    env, fmt,
    fs::{self, File},
    io::{self, Write as _},
    panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind},
    process,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

/// How many attempts a case has. Each but the last was inconclusive.
pub const ATTEMPTS: u32 = 4;

/// Between two attempts: a moment for what makes the machine late to end.
const PAUSE: Duration = Duration::from_secs(1);

/// For how long a probe sleeps. It sees a machine that does not run at all, and processors that others use.
const NAP: Duration = Duration::from_millis(1);

/// Between two syncs of the disk. They must not be what makes it late.
const BETWEEN_SYNCS: Duration = Duration::from_millis(50);

/// An upper bound of real time was missed. A late machine can explain it, in every suite.
struct TooLate(String);

/// A leadership, or its end, came too early, or two led at once. No machine is late enough to explain that.
struct NeverAllowed(String);

pub(super) fn too_late(what: String) -> ! {
    panic_any(TooLate(what))
}

pub(super) fn never_allowed(what: String) -> ! {
    panic_any(NeverAllowed(what))
}

/// Checks what no machine is late enough to break: the order of epochs, and what the storage may apply.
pub(super) fn always(holds: bool, what: fmt::Arguments<'_>) {
    if !holds {
        never_allowed(what.to_string());
    }
}

/// Of two leaders at once, each with the time that is left of it. A late machine explains it if one has none.
pub(super) fn two_lead(what: &str, left: impl IntoIterator<Item = Duration>) -> ! {
    if left.into_iter().all(|left| left > Duration::ZERO) {
        never_allowed(what.to_owned());
    }
    panic!("{what}: a leadership was lost")
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Explained {
    /// If a thread or a sync of the disk was late by at least this in one go.
    pub(super) by: Duration,
    pub(super) is_any: bool,
}

/// Makes attempts until one is decided. An attempt is inconclusive if it failed, and the lateness of the machine
/// meanwhile explains that. Panics if an attempt fails for another reason, or if all are inconclusive.
pub(super) fn decide(explained: Explained, attempt: impl Fn()) {
    decide_beside(explained, Machine::watch, attempt);
}

pub(super) fn once(attempt: impl FnOnce()) {
    if let Err(failure) = catch_unwind(AssertUnwindSafe(attempt)) {
        fail(failure);
    }
}

fn decide_beside<M: Lateness>(explained: Explained, watch: impl Fn() -> M, attempt: impl Fn()) {
    for number in 1..=ATTEMPTS {
        let machine = watch();
        let Err(failure) = catch_unwind(AssertUnwindSafe(&attempt)) else { return };
        let late = machine.late();
        let is_explained = match failure.downcast_ref() {
            Some(TooLate(_)) => true,
            None => (explained.is_any && !failure.is::<NeverAllowed>()) || is_unanswered(&*failure),
        };
        if !is_explained || late < explained.by {
            println!("failed, and this machine was late by {late:?} at most: that does not explain it");
            fail(failure);
        }
        println!("attempt {number} is inconclusive: this machine was late by {late:?}");
        if number == ATTEMPTS {
            println!("inconclusive: this machine was late by so much in each of {ATTEMPTS} attempts");
            println!(
                "It is too busy for this TTL, or the storage makes it so: try a calmer one, or a longer TTL."
            );
            fail(failure);
        }
        SystemClock::block_for(PAUSE);
    }
}

/// Whether a call was not answered, where a case expects an answer: a storage may have time limits of its own.
fn is_unanswered(failure: &(dyn Any + Send)) -> bool {
    let is_error = |said: &String| {
        said.starts_with("called `Result::unwrap()`")
            && ["NotApplied(", "Unavailable(", "Unknown("].iter().any(|kind| said.contains(kind))
    };
    failure.downcast_ref().is_some_and(is_error)
}

fn fail(failure: Box<dyn Any + Send>) -> ! {
    match failure.downcast::<TooLate>().map(|failure| failure.0) {
        Ok(what) => panic!("too late: {what}"),
        Err(failure) => match failure.downcast::<NeverAllowed>().map(|failure| failure.0) {
            Ok(what) => panic!("{what}"),
            Err(failure) => resume_unwind(failure),
        },
    }
}

trait Lateness {
    fn late(&self) -> Duration;
}

struct Machine(Vec<Probe>);

impl Machine {
    fn watch() -> Self {
        let nap = Probe::start("nap", NAP, || Ok(()));
        // A folder without a right to write shows no disk.
        let disk = SyncedFile::create()
            .and_then(|mut file| Probe::start("disk", BETWEEN_SYNCS, move || file.sync()));
        Self([nap, disk].into_iter().flatten().collect())
    }
}

impl Lateness for Machine {
    fn late(&self) -> Duration {
        self.0.iter().map(Probe::late).max().unwrap_or_default()
    }
}

struct Probe {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    is_over: AtomicBool,
    seen: Mutex<Seen>,
}

struct Seen {
    /// When the act under way would be done on a machine that is never late.
    due: Instant,
    longest: Duration,
}

impl Probe {
    fn start(
        name: &str,
        pause: Duration,
        mut act: impl FnMut() -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let seen = Seen { due: SystemClock::read().after(pause), longest: Duration::ZERO };
        let shared = Arc::new(Shared { is_over: AtomicBool::default(), seen: Mutex::new(seen) });
        let thread = thread::Builder::new().name(format!("late {name}")).spawn({
            let shared = Arc::clone(&shared);
            move || {
                while !shared.is_over.load(Relaxed) {
                    SystemClock::block_for(pause);
                    // A full disk fails the case itself.
                    let _done = act();
                    let mut seen = shared.seen();
                    let now = SystemClock::read();
                    seen.longest = seen.longest.max(seen.due.until(now));
                    seen.due = now.after(pause);
                }
            }
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    fn late(&self) -> Duration {
        let seen = self.shared.seen();
        seen.longest.max(seen.due.until(SystemClock::read()))
    }
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Relaxed);
        let _ended = self.thread.take().map(JoinHandle::join);
    }
}

/// A file among the temporary ones, where most storages under test have theirs.
struct SyncedFile {
    file: File,
    path: std::path::PathBuf,
}

impl SyncedFile {
    fn create() -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("vvm-suite-{}-{}", process::id(), NEXT.fetch_add(1, Relaxed));
        let path = env::temp_dir().join(name);
        Ok(Self { file: File::create_new(&path)?, path })
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.write_all(b"x")?;
        self.file.sync_data()
    }
}

impl Drop for SyncedFile {
    fn drop(&mut self) {
        // The next run of the system removes it.
        let _left = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    impl Lateness for Duration {
        fn late(&self) -> Duration {
            *self
        }
    }

    const BY: Duration = Duration::from_millis(100);

    fn tried(late: Duration, is_any: bool, failures: u32, fail: fn()) -> (u32, Option<String>) {
        let attempts = Cell::new(0);
        let explained = Explained { by: BY, is_any };
        let decided = catch_unwind(AssertUnwindSafe(|| {
            decide_beside(
                explained,
                || late,
                || {
                    attempts.set(attempts.get() + 1);
                    if attempts.get() <= failures {
                        fail();
                    }
                },
            );
        }));
        let said = |panic: Box<dyn Any + Send>| match panic.downcast::<String>() {
            Ok(text) => *text,
            Err(panic) => panic.downcast_ref::<&str>().unwrap().to_string(),
        };
        (attempts.get(), decided.err().map(said))
    }

    fn missed() {
        too_late("a bound".into())
    }

    fn wrong() {
        panic!("wrong")
    }

    fn unanswered() {
        let answer: Result<(), _> =
            "busy".parse::<u8>().map(drop).map_err(|_| crate::ReadError::Unavailable("busy".into()));
        answer.unwrap();
    }

    const NONE_IS_LOST: [Duration; 2] = [BY; 2];
    const ONE_IS_LOST: [Duration; 2] = [BY, Duration::ZERO];

    #[test]
    fn failure_on_a_late_machine_is_followed_by_another_attempt() {
        assert_eq!(tried(BY, false, 1, missed), (2, None));
        assert_eq!(tried(BY, true, 1, wrong), (2, None));
        assert_eq!(tried(BY, false, 1, unanswered), (2, None));
        assert_eq!(tried(BY, true, 1, || two_lead("two leaders", ONE_IS_LOST)), (2, None));
        assert_eq!(tried(BY, false, ATTEMPTS, missed), (ATTEMPTS, Some("too late: a bound".into())));
    }

    #[test]
    fn failure_that_lateness_does_not_explain_counts_at_once() {
        let early = || two_lead("two leaders", NONE_IS_LOST);
        assert_eq!(tried(BY, true, 1, early), (1, Some("two leaders".into())));
        let repeated = || always(false, format_args!("an epoch twice"));
        assert_eq!(tried(BY, true, 1, repeated), (1, Some("an epoch twice".into())));
        assert_eq!(tried(BY, false, 1, wrong), (1, Some("wrong".into())));
        for (is_any, fail) in [(true, wrong as fn()), (false, missed)] {
            assert_eq!(tried(BY / 2, is_any, 1, fail).0, 1);
        }
    }

    #[test]
    fn probe_that_is_under_way_is_late_already() {
        let probe = Probe::start("test", Duration::ZERO, || {
            SystemClock::block_for(BY);
            Ok(())
        });
        let probe = probe.unwrap();
        let begun = SystemClock::read();
        while probe.late() < BY / 2 {
            SystemClock::block_for(NAP);
        }
        assert!(begun.until(SystemClock::read()) >= BY / 4);
    }
}
