//! The probes of an attempt: processors, the kernel's count of waiting, and the disk. And a busy machine, to try them.

use crate::late::{Lateness, Span};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};
use std::{
    env,
    fs::File,
    io,
    num::NonZeroU64,
    os::unix::fs::FileExt as _,
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Mutex, MutexGuard, Once, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

/// For how long a processor's probe sleeps. It sees a machine that does not run at all: a guest without a
/// processor, frozen processes. With 1 ms, one bound of fifty was missed by 71 ms where 68 ms were measured.
/// Four thousand wake-ups a second take some percent of a processor.
const NAP: Duration = Duration::from_micros(250);

/// How late a wake-up is on an idle virtual machine, and does not count.
const USUAL: Duration = Duration::from_micros(250);

/// How long an fsync takes on a disk that serves.
const FSYNC: Duration = Duration::from_millis(10);
const BETWEEN_FSYNCS: Duration = Duration::from_millis(10);

/// A machine is calm if it was late for at most `CALM` within `WINDOW`. An attempt waits for that, up to `CALM_LIMIT`.
const WINDOW: Duration = Duration::from_millis(500);
const CALM: Duration = Duration::from_millis(25);
const CALM_LIMIT: Duration = Duration::from_secs(15);

pub(crate) struct Probes {
    acting: Mutex<Vec<Probe>>,
    /// `None` where the kernel does not count.
    pressure: Option<Pressure>,
}

impl Probes {
    /// Starts one for each processor of this process, and the others. Panics if a thread or a file can't be made.
    pub(crate) fn start() -> Self {
        let started = processors().map(on).chain([on_disk()]).collect::<io::Result<_>>();
        let started = started.unwrap_or_else(|error| panic!("no probe could be started: {error}"));
        Self { acting: Mutex::new(started), pressure: Pressure::start().ok() }
    }

    pub(crate) fn add(&self, what: &str, normal: Duration, act: impl FnMut() + Send + 'static) {
        let probe = Probe::start(what, (normal, Duration::ZERO, normal), act);
        let probe = probe.unwrap_or_else(|error| panic!("the probe {what} could not be started: {error}"));
        self.lock().push(probe);
    }

    pub(crate) fn late(&self, since: Instant, until: Instant) -> Lateness {
        let waits = self.pressure.iter().map(|pressure| ("processors".to_owned(), pressure.waits()));
        let late = self.lock().iter().map(|probe| probe.late(until)).chain(waits).collect();
        Lateness::between(since, until, late)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Probe>> {
        self.acting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wait_for_calm() {
        let probes = Self::start();
        let give_up_at = SystemClock::read().after(CALM_LIMIT);
        loop {
            let since = SystemClock::read();
            SystemClock::block_for(WINDOW);
            let now = SystemClock::read();
            if probes.late(since, now).together <= CALM || now >= give_up_at {
                return;
            }
        }
    }
}

fn processors() -> impl Iterator<Item = usize> {
    // Without an answer, one thread that is not pinned.
    let allowed = sched_getaffinity(None).ok();
    let is_allowed =
        move |processor: &usize| allowed.as_ref().map_or(*processor == 0, |set| set.is_set(*processor));
    (0..CpuSet::MAX_CPU).filter(is_allowed)
}

/// Pins this thread to a processor. If that is refused, the kernel chooses one.
fn pin(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    let _refused = sched_setaffinity(None, &set);
}

/// Runs `act` while so many threads spin on each processor.
pub fn loaded<T>(loops: usize, act: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    let result = thread::scope(|scope| {
        for processor in processors().flat_map(|processor| std::iter::repeat_n(processor, loops)) {
            let over = &over;
            scope.spawn(move || {
                pin(processor);
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let result = panic::catch_unwind(AssertUnwindSafe(act));
        over.store(true, Ordering::Relaxed);
        result
    });
    result.unwrap_or_else(|panic| panic::resume_unwind(panic))
}

/// Measures how late a processor runs a thread that has slept.
fn on(processor: usize) -> io::Result<Probe> {
    let prepare = move || {
        pin(processor);
        // As punctual as the kernel can.
        let _refused = set_current_timer_slack(NonZeroU64::new(1));
    };
    let prepared = Once::new();
    Probe::start(&format!("processor {processor}"), (NAP, USUAL, Duration::ZERO), move || {
        prepared.call_once(prepare);
        SystemClock::block_for(NAP);
    })
}

fn on_disk() -> io::Result<Probe> {
    let file = tempfile::tempfile_in(env::temp_dir())?;
    Probe::start("fsync", (FSYNC, Duration::ZERO, BETWEEN_FSYNCS), move || sync(&file))
}

fn sync(file: &File) {
    // A full or broken disk fails the test itself.
    let _unwritten = file.write_all_at(b"x", 0).and_then(|()| file.sync_all());
}

struct Probe {
    name: String,
    shared: Arc<Shared>,
    _acting: Repeating,
}

struct Shared {
    /// Lateness that an idle machine has, too, and that does not count.
    tolerated: Duration,
    seen: Mutex<Seen>,
}

struct Seen {
    /// When the action under way should be done. A thread that has not begun is late, too.
    due: Instant,
    late: Vec<Span>,
}

impl Probe {
    /// Starts one. `act` takes at most `normal` + `tolerated` on a good machine, and is repeated after `pause`.
    fn start(
        name: &str,
        (normal, tolerated, pause): (Duration, Duration, Duration),
        mut act: impl FnMut() + Send + 'static,
    ) -> io::Result<Self> {
        let seen = Seen { due: SystemClock::read().after(normal), late: Vec::new() };
        let shared = Arc::new(Shared { tolerated, seen: Mutex::new(seen) });
        let acting = Repeating::start(name, pause, {
            let shared = Arc::clone(&shared);
            move || {
                act();
                shared.done(pause, normal);
            }
        })?;
        Ok(Self { name: name.to_owned(), shared, _acting: acting })
    }

    fn late(&self, now: Instant) -> (String, Vec<Span>) {
        let seen = self.shared.seen();
        let under_way = (seen.due, now);
        let is_late = now > seen.due.after(self.shared.tolerated);
        let late = seen.late.iter().copied().chain(is_late.then_some(under_way)).collect();
        (self.name.clone(), late)
    }
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn done(&self, pause: Duration, normal: Duration) {
        let mut seen = self.seen();
        let now = SystemClock::read();
        let due = seen.due;
        if now > due.after(self.tolerated) {
            seen.late.push((due, now));
        }
        seen.due = now.after(pause).after(normal);
    }
}

struct Repeating {
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Repeating {
    fn start(name: &str, pause: Duration, mut act: impl FnMut() + Send + 'static) -> io::Result<Self> {
        let stopping = Arc::new(AtomicBool::new(false));
        let thread = thread::Builder::new().name(format!("probe {name}")).spawn({
            let stopping = Arc::clone(&stopping);
            move || {
                while !stopping.load(Ordering::Relaxed) {
                    act();
                    if !pause.is_zero() {
                        SystemClock::block_for(pause);
                    }
                }
            }
        })?;
        Ok(Self { stopping, thread: Some(thread) })
    }
}

impl Drop for Repeating {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A probe that panicked keeps the measurements that it made before.
            drop(thread.join());
        }
    }
}

/// Exists since Linux 4.20, unless it is switched off.
const PATH: &str = "/proc/pressure/cpu";

/// Between two samples; the precision of the times of waiting.
const SAMPLES_EVERY: Duration = Duration::from_millis(10);

/// How long tasks wait for a processor, as the kernel counts it. Samples the total until it is dropped. The scheduler
/// prefers a thread that has slept to one that computes, so that a probe that sleeps is nearly punctual on a machine
/// where a chain of processes takes three times as long. The kernel's total grows while any runnable task waits.
struct Pressure {
    samples: Arc<Mutex<Samples>>,
    _sampling: Repeating,
}

struct Samples {
    file: File,
    total: Duration,
    at: Instant,
    waits: Vec<Span>,
}

impl Pressure {
    /// Fails if the kernel does not count, or a thread can't be started.
    fn start() -> io::Result<Self> {
        let file = File::open(PATH)?;
        let (total, at) = (total(&file)?, SystemClock::read());
        let samples = Arc::new(Mutex::new(Samples { file, total, at, waits: Vec::new() }));
        let sampling = Repeating::start("pressure", SAMPLES_EVERY, {
            let samples = Arc::clone(&samples);
            move || lock(&samples).sample()
        })?;
        Ok(Self { samples, _sampling: sampling })
    }

    fn waits(&self) -> Vec<Span> {
        let mut samples = lock(&self.samples);
        samples.sample();
        samples.waits.clone()
    }
}

fn lock(samples: &Mutex<Samples>) -> MutexGuard<'_, Samples> {
    samples.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Samples {
    fn sample(&mut self) {
        // Without an answer, the next one covers this time as well.
        if let Ok(total) = total(&self.file) {
            self.add(total, SystemClock::read());
        }
    }

    /// Adds the growth of the total as a wait that ends now: the exact times are unknown.
    fn add(&mut self, total: Duration, now: Instant) {
        let waited = total.saturating_sub(self.total).min(now.since(self.at));
        if !waited.is_zero() {
            self.waits.push((now.before(waited), now));
        }
        (self.total, self.at) = (total, now);
    }
}

fn total(file: &File) -> io::Result<Duration> {
    let mut answer = [0; 256];
    let length = file.read_at(&mut answer, 0)?;
    parse(&answer[..length]).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, PATH))
}

/// `some avg10=0.70 avg60=8.06 avg300=14.90 total=5725136236`, in microseconds.
fn parse(answer: &[u8]) -> Option<Duration> {
    let some = str::from_utf8(answer).ok()?.lines().find(|line| line.starts_with("some "))?;
    some.rsplit_once("total=")?.1.parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_is_taken_from_the_line_of_some() {
        let answer = b"some avg10=0.70 avg60=8.06 avg300=14.90 total=5725136\nfull avg10=0.00 total=7\n";
        assert_eq!(parse(answer), Some(Duration::from_micros(5_725_136)));
        assert_eq!(parse(b"full avg10=0.00 total=7\n"), None);
    }

    #[test]
    fn growth_of_the_total_is_a_wait_of_at_most_the_time_between_samples() {
        let ms = Duration::from_millis;
        let at = |millis| Instant::ORIGIN.after(ms(millis));
        let file = File::open("/dev/null").unwrap();
        let mut samples = Samples { file, total: ms(5000), at: at(100), waits: Vec::new() };
        samples.add(ms(5003), at(110));
        samples.add(ms(5003), at(120));
        samples.add(ms(5023), at(130));
        assert_eq!(samples.waits, [(at(107), at(110)), (at(120), at(130))]);
    }

    #[test]
    fn two_busy_loops_on_each_processor_are_a_wait() {
        // Some kernels don't count.
        let Ok(pressure) = Pressure::start() else { return };
        // A host that takes the processors away, or starts the loops late, makes the sum smaller. It keeps growing.
        let give_up_at = SystemClock::read().after(Duration::from_secs(20));
        let enough = Duration::from_millis(100);
        let waited = loaded(2, || {
            loop {
                SystemClock::block_for(Duration::from_millis(50));
                let waited: Duration = pressure.waits().iter().map(|(from, to)| to.since(*from)).sum();
                if waited >= enough || SystemClock::read() >= give_up_at {
                    break waited;
                }
            }
        });
        assert!(waited >= enough, "{waited:?}");
    }
}
