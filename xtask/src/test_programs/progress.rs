//! How far the tests are: a bar on a terminal, a line a minute elsewhere.

use std::{
    io::{IsTerminal as _, stderr},
    sync::{Mutex, PoisonError},
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

const WIDTH: usize = 40;
const BETWEEN_LINES: Duration = Duration::from_secs(60);
const BETWEEN_BARS: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Progress {
    all: usize,
    began: Instant,
    on_terminal: bool,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    ended: usize,
    failed: usize,
    shown_at: Instant,
}

impl Progress {
    pub(super) fn start(all: usize) -> Self {
        let (began, on_terminal) = (SystemClock::read(), stderr().is_terminal());
        if !on_terminal {
            eprintln!("running {all} cases");
        }
        let seen = Mutex::new(Seen { ended: 0, failed: 0, shown_at: began });
        Self { all, began, on_terminal, seen }
    }

    pub(super) fn count(&self, has_failed: bool) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.ended += 1;
        seen.failed += usize::from(has_failed);
        let now = SystemClock::read();
        let pause = if self.on_terminal { BETWEEN_BARS } else { BETWEEN_LINES };
        if now.since(seen.shown_at) < pause {
            return;
        }
        seen.shown_at = now;
        let line = line(seen.ended, seen.failed, self.all, now.since(self.began));
        if self.on_terminal {
            eprint!("\r{} {line}\x1b[K", bar(seen.ended, self.all));
        } else {
            eprintln!("{line}");
        }
    }

    pub(super) fn end(&self) {
        if self.on_terminal {
            eprint!("\r\x1b[K");
        }
    }
}

fn line(ended: usize, failed: usize, all: usize, took: Duration) -> String {
    let (minutes, seconds) = (took.as_secs() / 60, took.as_secs() % 60);
    let failed = if failed == 0 { String::new() } else { format!(", {failed} failed") };
    format!("{minutes}:{seconds:02}  {ended} of {all} cases{failed}")
}

fn bar(ended: usize, all: usize) -> String {
    let full = (ended * WIDTH / all.max(1)).min(WIDTH);
    format!("[{}{}]", "=".repeat(full), " ".repeat(WIDTH - full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_and_bar_say_how_far_the_tests_are() {
        assert_eq!(line(7, 0, 900, Duration::from_secs(61)), "1:01  7 of 900 cases");
        assert_eq!(line(7, 2, 900, Duration::from_secs(600)), "10:00  7 of 900 cases, 2 failed");
        assert_eq!(bar(1, 2), format!("[{}{}]", "=".repeat(20), " ".repeat(20)));
        // A program may have more cases than it listed.
        assert_eq!(bar(3, 2), format!("[{}]", "=".repeat(40)));
        assert_eq!(bar(0, 0), format!("[{}]", " ".repeat(40)));
    }
}
