//! The machine's clocks: the rate of the one that elections use, and the wall clock beside the newest epoch. Elections
//! compare two readings of one clock on one machine, and rely on the clock rates of two machines within 10 % of each
//! other. A machine alone can't tell how far its own hardware is off.

use super::{CheckResult, Health};
use crate::shown::HumanDuration;
use std::time::Duration;
use vvm_clock::Readings;

/// How far an epoch may be ahead of this machine's wall clock before one of the two clocks is in doubt.
const AHEAD: Duration = Duration::from_secs(10);

/// In millionths: twice the 500 that the kernel lets NTP correct; and all that elections allow.
const CORRECTED: f64 = 1_000.0;
const TOO_FAST: f64 = 100_000.0;

/// How far a wall clock that is not set may drift in a short while.
const STEP: Duration = Duration::from_millis(100);

pub(super) fn clocks(before: &Readings, after: &Readings, newest_epoch: Option<u64>) -> [CheckResult; 2] {
    [rates(before, after), wall_clock(newest_epoch, after.wall)]
}

fn rates(before: &Readings, after: &Readings) -> CheckResult {
    let since = |of: fn(&Readings) -> Duration| of(after).as_secs_f64() - of(before).as_secs_f64();
    let (boot, raw, wall) = (since(|at| at.boot), since(|at| at.raw), since(|at| at.wall));
    let suspended = boot - since(|at| at.monotonic);
    let millionths = |difference: f64| difference / raw.max(1e-9) * 1e6;
    let rate = millionths(boot - suspended - raw);
    let doubt = millionths((before.spread + after.spread).as_secs_f64());
    let off = (rate.abs() - doubt).max(0.0);
    let over = HumanDuration(after.boot - before.boot);
    let measured = format!("{rate:+.0} ppm (±{doubt:.0}) against the hardware's counter, over {over}");
    let (health, says) = if off > TOO_FAST {
        let remedy = "elections allow 10 % between two machines: repair the clock source before it leads";
        (Health::Problem, format!("{measured}: {remedy}"))
    } else if off > CORRECTED {
        let remedy =
            "more than NTP corrects: check which program sets the clock's rate, and the clock source";
        (Health::Caution, format!("{measured}: {remedy}"))
    } else if doubt > CORRECTED {
        (Health::Caution, format!("{measured}: too coarse to tell. Try again when the machine is less busy"))
    } else if (wall - boot).abs() > STEP.as_secs_f64() {
        (Health::Caution, format!("{measured}. The wall clock was set by {:+.1} s meanwhile", wall - boot))
    } else {
        (Health::Good, format!("{measured}; elections allow 10 % between two machines"))
    };
    CheckResult::new("clock rate", health, says).with("ppm", rate).with("ppm_doubt", doubt)
}

/// Epochs are milliseconds of a wall clock, or larger. They depend on it only after a restore from a backup,
/// where a clock that is far behind does not make them rise.
fn wall_clock(newest: Option<u64>, now: Duration) -> CheckResult {
    let behind = newest.map(|newest| Duration::from_millis(newest).saturating_sub(now));
    let (health, says) = match behind {
        None => (Health::Good, "there is no epoch to compare it with".to_owned()),
        Some(behind) if behind > AHEAD => {
            let says = format!(
                "{behind:.0?} behind the newest epoch: this clock or that of an earlier leader is wrong: have NTP \
                 keep both. Elections don't depend on it, but epochs rise after a restore from a backup only if \
                 the clocks are right"
            );
            (Health::Caution, says)
        }
        Some(_) => (Health::Good, "not behind the newest epoch".to_owned()),
    };
    CheckResult::new("wall clock", health, says).with_duration("behind", behind.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(boot: f64, monotonic: f64, raw: f64, wall: f64) -> Readings {
        let [boot, monotonic, raw, wall] = [boot, monotonic, raw, wall].map(Duration::from_secs_f64);
        Readings { boot, monotonic, raw, wall, spread: Duration::from_micros(1) }
    }

    #[test]
    fn wall_clock_far_behind_the_newest_epoch_is_a_caution() {
        let now = Duration::from_secs(1_000_000);
        for good in [None, Some(1_000_000_000 - 5), Some(1_000_000_000 + 9_000)] {
            assert_eq!(wall_clock(good, now).health, Health::Good);
        }
        let behind = wall_clock(Some(1_000_060_000), now);
        assert_eq!(behind.health, Health::Caution);
        assert!(
            behind.says.contains("60s behind") && behind.says.contains("have NTP keep both"),
            "{behind:?}"
        );
    }

    #[test]
    fn rate_far_from_that_of_the_hardware_is_a_caution_or_a_problem() {
        let before = readings(100.0, 100.0, 100.0, 1e9);
        let rate = |by: f64, wall: f64| rates(&before, &readings(100.0 + by, 100.0 + by, 101.0, 1e9 + wall));
        assert_eq!(rate(1.000_030, 1.0).health, Health::Good);
        assert_eq!(rate(1.002, 1.002).health, Health::Caution);
        assert_eq!(rate(0.998, 0.998).health, Health::Caution);
        assert_eq!(rate(1.2, 1.2).health, Health::Problem);
        let set = rate(1.0, 3.5);
        assert!(set.health == Health::Caution && set.says.contains("set by +2.5 s"), "{set:?}");
        let coarse =
            Readings { spread: Duration::from_millis(2), ..readings(101.0, 101.0, 101.0, 1e9 + 1.0) };
        let told = rates(&before, &coarse);
        assert!(told.health == Health::Caution && told.says.contains("too coarse"), "{told:?}");
        // A minute of suspend does not count.
        let slept = rates(&before, &readings(161.0, 101.0, 101.0, 1e9 + 61.0));
        assert_eq!(slept.health, Health::Good, "{slept:?}");
    }
}
