//! What the machine's clocks say of each other: suspends, rates, and how well the wall clock is kept.
//!
//! Elections compare two readings of one clock on one machine, and count on rates of two machines that are
//! within 10 % of each other. How far this machine's own hardware is off, it can't tell alone.

use super::finding::{Finding, Health};
use crate::calendar::Span;
use std::{fs, io, time::Duration};
use vvm_clock::Readings;
use vvm_deadman::WallClockState;

/// How far an epoch may be ahead of this machine's wall clock before one of the two clocks is in doubt.
const AHEAD: Duration = Duration::from_secs(10);

/// Twice of what the kernel lets NTP correct (500 millionths), and a tenth of a tenth of what elections
/// allow.
const CORRECTED: f64 = 1_000.0;
const TOO_FAST: f64 = 100_000.0;

/// By how much a wall clock that nobody sets may go its own way in a short while.
const STEP: Duration = Duration::from_millis(100);

/// What all clocks showed before and after everything else.
pub(super) struct Watched {
    pub(super) before: Option<Readings>,
    pub(super) after: Option<Readings>,
}

/// One finding for each thing that there is to say of clocks.
pub(super) fn clocks(watched: &Watched, newest_epoch: Option<u64>) -> Vec<Finding> {
    let Watched { before: Some(before), after: Some(after) } = watched else { return Vec::new() };
    let shifted = fs::read_to_string("/proc/self/timens_offsets").is_ok_and(|offsets| is_shifted(&offsets));
    vec![
        suspends(after, shifted),
        rates(before, after),
        wall_clock(newest_epoch, after.wall, &WallClockState::read()),
    ]
}

/// Whether a time namespace shows other clocks than the machine's: `CLOCK SECONDS NANOSECONDS` in each line.
fn is_shifted(offsets: &str) -> bool {
    offsets.lines().any(|line| line.split_whitespace().skip(1).any(|number| number != "0"))
}

fn suspends(now: &Readings, shifted: bool) -> Finding {
    if shifted {
        let says = "this is a time namespace: how long the machine was suspended can't be told";
        return Finding::new("suspend", Health::Good, says);
    }
    let (suspended, boot) = (now.suspended(), Span(now.boot));
    let says = if suspended.is_zero() {
        format!("never since the machine started, {boot} ago")
    } else {
        format!(
            "for {} of the {boot} since the machine started. A leader that wakes up behind its deadline is dead before it \
             does anything: the clock of elections counts suspends",
            Span(suspended)
        )
    };
    let finding = Finding::new("suspend", Health::Good, says);
    finding.with_duration("suspended", suspended).with_duration("since_start", now.boot)
}

fn rates(before: &Readings, after: &Readings) -> Finding {
    let since = |of: fn(&Readings) -> Duration| of(after).as_secs_f64() - of(before).as_secs_f64();
    let (boot, raw, wall) = (since(|at| at.boot), since(|at| at.raw), since(|at| at.wall));
    let suspended = boot - since(|at| at.monotonic);
    let millionths = |difference: f64| difference / raw.max(1e-9) * 1e6;
    // What is corrected, and not what was slept through.
    let rate = millionths(boot - suspended - raw);
    let doubt = millionths((before.spread + after.spread).as_secs_f64());
    let off = (rate.abs() - doubt).max(0.0);
    let measured = format!(
        "{rate:+.0} ppm (±{doubt:.0}) beside what the hardware counts, over {}",
        Span(after.boot - before.boot)
    );
    let (health, says) = if off > TOO_FAST {
        let way_out = "elections allow 10 % between two machines, and this alone is more: mend its clock source before it leads";
        (Health::Problem, format!("{measured}: {way_out}"))
    } else if off > CORRECTED {
        let way_out = "more than NTP corrects: look at who sets the clock's rate, and at the clock source";
        (Health::Caution, format!("{measured}: {way_out}"))
    } else if (wall - boot).abs() > STEP.as_secs_f64() {
        let says = format!("{measured}. The wall clock was set by {:+.1} s meanwhile", wall - boot);
        (Health::Caution, says)
    } else {
        (Health::Good, format!("{measured}; elections allow 10 % between two machines"))
    };
    Finding::new("clock rate", health, says).with("ppm", rate).with("ppm_doubt", doubt)
}

/// Epochs are milliseconds of some machine's wall clock, or larger. Nothing depends on it but that they rise
/// after a restore from a backup, for which a clock that is far behind is no help.
fn wall_clock(newest: Option<u64>, now: Duration, kept: &io::Result<WallClockState>) -> Finding {
    let in_step = kept.as_ref().is_ok_and(|state| state.in_step);
    let how_kept = match kept {
        Ok(state) if state.in_step => {
            format!("kept in step (NTP or its like) to {:.0?} at least", state.max_error)
        }
        Ok(_) => "not known to be kept in step (NTP)".to_owned(),
        Err(refusal) => format!("the system does not tell whether it is kept in step ({refusal})"),
    };
    let behind = newest.map(|newest| Duration::from_millis(newest).saturating_sub(now));
    let finding = match behind {
        None => Finding::new("wall clock", Health::Good, format!("{how_kept}; no epoch to compare it with")),
        Some(behind) if behind > AHEAD => {
            let whose = if in_step {
                "that of an earlier leader was ahead, if this one is kept well"
            } else {
                "this one is wrong, or that of an earlier leader was: have NTP keep both"
            };
            let says = format!(
                "{behind:.0?} behind the newest epoch, and {how_kept}: {whose}. Elections don't depend on it, but after a \
                 restore from a backup epochs rise only by right clocks"
            );
            Finding::new("wall clock", Health::Caution, says)
        }
        Some(_) => {
            Finding::new("wall clock", Health::Good, format!("{how_kept}; not behind the newest epoch"))
        }
    };
    let finding = finding.with("in_step", kept.as_ref().ok().map(|state| state.in_step));
    finding.with_duration("behind", behind.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(in_step: bool) -> io::Result<WallClockState> {
        Ok(WallClockState { in_step, max_error: Duration::from_millis(12) })
    }

    fn readings(boot: f64, monotonic: f64, raw: f64, wall: f64) -> Readings {
        let [boot, monotonic, raw, wall] = [boot, monotonic, raw, wall].map(Duration::from_secs_f64);
        Readings { boot, monotonic, raw, wall, spread: Duration::from_micros(1) }
    }

    #[test]
    fn a_wall_clock_far_behind_the_newest_epoch_is_told() {
        let now = Duration::from_secs(1_000_000);
        let found = |newest, in_step| wall_clock(newest, now, &kept(in_step));
        for good in [None, Some(1_000_000_000 - 5), Some(1_000_000_000 + 9_000)] {
            assert_eq!(found(good, false).health, Health::Good);
        }
        let (alone, kept) = (found(Some(1_000_060_000), false), found(Some(1_000_060_000), true));
        assert_eq!((alone.health, kept.health), (Health::Caution, Health::Caution));
        assert!(alone.says.contains("60s behind") && alone.says.contains("have NTP keep both"), "{alone:?}");
        assert!(kept.says.contains("to 12ms") && kept.says.contains("earlier leader was ahead"), "{kept:?}");
        let forbidden = wall_clock(None, now, &Err(io::ErrorKind::PermissionDenied.into()));
        assert_eq!(forbidden.figures["in_step"], serde_json::Value::Null);
    }

    #[test]
    fn suspends_are_told_and_are_no_fault() {
        let slept = suspends(&readings(7_500.0, 300.0, 300.0, 1e9), false);
        assert!(slept.says.starts_with("for 2h00m of the 2h05m"), "{slept:?}");
        assert_eq!((slept.health, &slept.figures["suspended_ms"]), (Health::Good, &7_200_000.0.into()));
        let awake = suspends(&readings(7_500.0, 7_500.0, 7_500.0, 1e9), false);
        assert!(awake.says.starts_with("never since"), "{awake:?}");
        assert!(is_shifted("monotonic           0         0\nboottime       86400         0\n"));
        assert!(!is_shifted("monotonic           0         0\nboottime            0         0\n"));
    }

    #[test]
    fn a_rate_is_held_against_the_hardware() {
        let before = readings(100.0, 100.0, 100.0, 1e9);
        let rate = |by: f64, wall: f64| rates(&before, &readings(100.0 + by, 100.0 + by, 101.0, 1e9 + wall));
        assert_eq!(rate(1.000_030, 1.0).health, Health::Good);
        assert_eq!(rate(1.002, 1.002).health, Health::Caution);
        assert_eq!(rate(0.998, 0.998).health, Health::Caution);
        assert_eq!(rate(1.2, 1.2).health, Health::Problem);
        let set = rate(1.0, 3.5);
        assert!(set.health == Health::Caution && set.says.contains("set by +2.5 s"), "{set:?}");
        // A minute of sleep is no rate.
        let slept = rates(&before, &readings(161.0, 101.0, 101.0, 1e9 + 61.0));
        assert_eq!(slept.health, Health::Good, "{slept:?}");
    }
}
