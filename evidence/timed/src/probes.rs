//! The probes of an attempt: each processor, and the disk that tests keep their files on.

use crate::{late::Lateness, probe::Probe};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};
use std::{
    env,
    fs::File,
    io,
    num::NonZeroU64,
    os::unix::fs::FileExt as _,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

/// For how long a processor's probe sleeps. The shorter, the more of the moments in which a process has to
/// wait it meets: with 1 ms, one bound of fifty was missed by 71 ms where 68 ms were measured. Four thousand
/// wake-ups a second take some percent of a processor.
const NAP: Duration = Duration::from_micros(250);

/// How late a wake-up is on an idle virtual machine, and does not count.
const USUAL: Duration = Duration::from_micros(250);

/// How long an fsync takes on a disk that serves.
const FSYNC: Duration = Duration::from_millis(10);
const BETWEEN_FSYNCS: Duration = Duration::from_millis(10);

/// How late a machine may be, in a window of this length, to count as calm; and how long that is waited for.
const WINDOW: Duration = Duration::from_millis(500);
const CALM: Duration = Duration::from_millis(25);
const PATIENCE: Duration = Duration::from_secs(15);

/// All probes of an attempt.
pub(crate) struct Probes(Mutex<Vec<Probe>>);

impl Probes {
    /// Starts one for each processor that this process may use, and one for the folder of temporary files.
    ///
    /// # Panics
    /// When the machine does not let them start.
    pub(crate) fn start() -> Self {
        let started = processors().map(on).chain([on_disk()]).collect::<io::Result<_>>();
        Self(Mutex::new(started.unwrap_or_else(|error| panic!("no probe could be started: {error}"))))
    }

    pub(crate) fn add(&self, what: &str, normal: Duration, act: impl FnMut() + Send + 'static) {
        let probe = Probe::start(what, (normal, Duration::ZERO, normal), || {}, act);
        let probe = probe.unwrap_or_else(|error| panic!("the probe {what} could not be started: {error}"));
        self.lock().push(probe);
    }

    /// How late the machine was between these moments.
    pub(crate) fn late(&self, since: Instant, until: Instant) -> Lateness {
        Lateness::between(since, until, self.lock().iter().map(|probe| probe.late(until)).collect())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Probe>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the machine runs, at most for [`PATIENCE`].
    pub(crate) fn wait_for_calm() {
        let probes = Self::start();
        let give_up_at = SystemClock::read().after(PATIENCE);
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
    // Without an answer, one thread that is not pinned is better than none.
    let allowed = sched_getaffinity(None).ok();
    let is_allowed =
        move |processor: &usize| allowed.as_ref().map_or(*processor == 0, |set| set.is_set(*processor));
    (0..CpuSet::MAX_CPU).filter(is_allowed)
}

/// Pins this thread to a processor. Where that is refused, the kernel chooses one.
pub(crate) fn pin(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    let _refused = sched_setaffinity(None, &set);
}

/// How late a processor is to run a thread that has slept.
fn on(processor: usize) -> io::Result<Probe> {
    let prepare = move || {
        pin(processor);
        // As punctual as the kernel can.
        let _refused = set_current_timer_slack(NonZeroU64::new(1));
    };
    let name = format!("processor {processor}");
    Probe::start(&name, (NAP, USUAL, Duration::ZERO), prepare, || SystemClock::block_for(NAP))
}

/// How late the disk is to keep a byte.
fn on_disk() -> io::Result<Probe> {
    let file = tempfile::tempfile_in(env::temp_dir())?;
    Probe::start("fsync", (FSYNC, Duration::ZERO, BETWEEN_FSYNCS), || {}, move || sync(&file))
}

fn sync(file: &File) {
    // A disk that is full or broken is for the test to find.
    let _unwritten = file.write_all_at(b"x", 0).and_then(|()| file.sync_all());
}
