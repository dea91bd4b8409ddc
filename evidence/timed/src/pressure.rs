//! How long tasks wait for a processor, as the kernel counts it (`/proc/pressure/cpu`).

use crate::{late::Span, probes::Repeating};
use std::{
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

/// Exists since Linux 4.20, unless it is switched off.
const PATH: &str = "/proc/pressure/cpu";

/// Between two samples; the precision of the times of waiting.
const PACE: Duration = Duration::from_millis(10);

/// Samples the kernel's total until it is dropped.
///
/// The scheduler prefers a thread that has slept to one that computes, so that a probe that sleeps is nearly
/// punctual on a machine where a chain of processes takes three times as long. The kernel's total grows while
/// any runnable task waits.
pub(crate) struct Pressure {
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
    /// # Errors
    /// The kernel does not count, or a thread can't be started.
    pub(crate) fn start() -> io::Result<Self> {
        let file = File::open(PATH)?;
        let (total, at) = (total(&file)?, SystemClock::read());
        let samples = Arc::new(Mutex::new(Samples { file, total, at, waits: Vec::new() }));
        let sampling = Repeating::start("pressure", PACE, {
            let samples = Arc::clone(&samples);
            move || lock(&samples).sample()
        })?;
        Ok(Self { samples, _sampling: sampling })
    }

    /// Returns the times of waiting up to now.
    pub(crate) fn waits(&self) -> Vec<Span> {
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
    use crate::planted;

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
        let since = SystemClock::read();
        planted::loaded(2, || SystemClock::block_for(Duration::from_millis(200)));
        let all = SystemClock::read().since(since);
        let waited: Duration = pressure.waits().iter().map(|(from, to)| to.since(*from)).sum();
        assert!(waited >= all / 2, "{waited:?} of {all:?}");
    }
}
