//! The probes of an attempt: each processor, the kernel's count of waiting, and the disk of temporary files.

use crate::{
    late::{Lateness, Span},
    pressure::Pressure,
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};
use std::{
    env,
    fs::File,
    io,
    num::NonZeroU64,
    os::unix::fs::FileExt as _,
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

/// A machine is calm if it was late for at most `CALM` within `WINDOW`. An attempt waits for that, up to
/// `CALM_LIMIT`.
const WINDOW: Duration = Duration::from_millis(500);
const CALM: Duration = Duration::from_millis(25);
const CALM_LIMIT: Duration = Duration::from_secs(15);

/// All probes of an attempt.
pub(crate) struct Probes {
    acting: Mutex<Vec<Probe>>,
    /// `None` where the kernel does not count.
    pressure: Option<Pressure>,
}

impl Probes {
    /// Starts one for each processor that this process may use, and the others.
    ///
    /// # Panics
    /// A thread or a file can't be made.
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

    /// Returns how late the machine was between these moments.
    pub(crate) fn late(&self, since: Instant, until: Instant) -> Lateness {
        let waits = self.pressure.iter().map(|pressure| ("processors".to_owned(), pressure.waits()));
        let late = self.lock().iter().map(|probe| probe.late(until)).chain(waits).collect();
        Lateness::between(since, until, late)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Probe>> {
        self.acting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the machine is calm, at most for [`CALM_LIMIT`].
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

/// The processors that this process may use.
pub(crate) fn processors() -> impl Iterator<Item = usize> {
    // Without an answer, one thread that is not pinned.
    let allowed = sched_getaffinity(None).ok();
    let is_allowed =
        move |processor: &usize| allowed.as_ref().map_or(*processor == 0, |set| set.is_set(*processor));
    (0..CpuSet::MAX_CPU).filter(is_allowed)
}

/// Pins this thread to a processor. If that is refused, the kernel chooses one.
pub(crate) fn pin(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    let _refused = sched_setaffinity(None, &set);
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

/// Measures how late the disk syncs a byte.
fn on_disk() -> io::Result<Probe> {
    let file = tempfile::tempfile_in(env::temp_dir())?;
    Probe::start("fsync", (FSYNC, Duration::ZERO, BETWEEN_FSYNCS), move || sync(&file))
}

fn sync(file: &File) {
    // A full or broken disk fails the test itself.
    let _unwritten = file.write_all_at(b"x", 0).and_then(|()| file.sync_all());
}

/// Measures until it is dropped.
pub(crate) struct Probe {
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
    /// Starts one. `act` takes no longer than `normal` + `tolerated` on a machine that serves it, and is
    /// repeated after `pause`.
    pub(crate) fn start(
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

    /// Returns its name, and when it was late, up to now.
    pub(crate) fn late(&self, now: Instant) -> (String, Vec<Span>) {
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

/// The thread. It is stopped and joined when this is dropped.
pub(crate) struct Repeating {
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Repeating {
    /// Starts `act`, which is repeated after `pause`.
    pub(crate) fn start(
        name: &str,
        pause: Duration,
        mut act: impl FnMut() + Send + 'static,
    ) -> io::Result<Self> {
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
