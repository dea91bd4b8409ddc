//! The verdict from the workers' logs: which worker ran when, and under which epoch.

use crate::worker::BEAT;
use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    time::Duration,
};
use vvm_clock::Instant;

/// The time that one worker ran, from its log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Spell {
    epoch: u64,
    alone: bool,
    /// Which of the programs started it.
    program: usize,
    pub(crate) first: Instant,
    last: Instant,
}

#[cfg(test)]
impl Spell {
    pub(crate) fn between(first: Instant, last: Instant) -> Self {
        Self { epoch: 1, alone: true, program: 0, first, last }
    }
}

/// So many workers may be of one program by chance.
const FEW: usize = 20;

#[derive(Debug, Default)]
pub(crate) struct Verdict {
    spells: usize,
    led: f64,
    longest_gap: Duration,
    /// The programs of the workers, in their order.
    turns: Vec<usize>,
    pub(crate) violations: Vec<String>,
}

/// Reads every worker's log. A worker that was killed before its first line has none.
pub(crate) fn read(folder: &Path) -> io::Result<Vec<Spell>> {
    let mut spells = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("worker-") {
            spells.extend(parse(&fs::read_to_string(entry.path())?));
        }
    }
    Ok(spells)
}

fn parse(log: &str) -> Option<Spell> {
    let mut lines = log.lines();
    let mut head = lines.next()?.split(' ');
    let epoch = head.next()?.parse().ok()?;
    let alone = head.nth(1)? == "alone";
    let program = head.nth(1)?.parse().ok()?;
    // A kill may cut off the last line, which leaves a smaller number: the largest is the last.
    let beats = || lines.clone().filter_map(|line| line.parse().ok()).map(Instant::from_nanos);
    Some(Spell { epoch, alone, program, first: beats().next()?, last: beats().max()? })
}

/// Checks that no two overlap, that epochs rise strictly, and that at least `least` of the time was led.
pub(crate) fn judge(mut spells: Vec<Spell>, began: Instant, ended: Instant, least: f64) -> Verdict {
    spells.sort_by_key(|spell| spell.first);
    let turns = spells.iter().map(|spell| spell.program).collect();
    let mut verdict = Verdict { spells: spells.len(), turns, ..Verdict::default() };
    for spell in spells.iter().filter(|spell| !spell.alone) {
        verdict
            .violations
            .push(format!("the worker of epoch {} started while another held the lock", spell.epoch));
    }
    for pair in spells.windows(2) {
        let [before, after] = pair else { continue };
        if after.first < before.last {
            let by = after.first.until(before.last);
            verdict.violations.push(format!("epochs {} and {} overlap by {by:?}", before.epoch, after.epoch));
        }
        if after.epoch <= before.epoch {
            verdict.violations.push(format!("epoch {} follows epoch {}", after.epoch, before.epoch));
        }
        verdict.longest_gap = verdict.longest_gap.max(before.last.until(after.first));
    }
    let led: Duration = spells.iter().map(|spell| spell.first.until(spell.last) + BEAT).sum();
    verdict.led = led.as_secs_f64() / began.until(ended).as_secs_f64();
    if verdict.led < least {
        let share = verdict.led * 100.0;
        verdict.violations.push(format!("led {share:.0} % of the time, less than {:.0} %", least * 100.0));
    }
    verdict
}

impl Verdict {
    /// Prints how often each program led and how often the next leader was another one. A program that never
    /// led is a violation, unless there were [`FEW`] workers in all.
    pub(crate) fn check_turns(&mut self, programs: &[PathBuf]) {
        for (number, program) in programs.iter().enumerate() {
            let count = self.turns.iter().filter(|turn| **turn == number).count();
            println!("{}: {count} workers", program.display());
            if count == 0 && self.spells > FEW {
                self.violations.push(format!("{} never led", program.display()));
            }
        }
        let changes = self.turns.windows(2).filter(|pair| pair.first() != pair.last()).count();
        println!("{changes} times the next worker was of another program");
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = self.led * 100.0;
        writeln!(
            out,
            "{} workers one after another, led {share:.0} % of the time, longest gap {:.2} s",
            self.spells,
            self.longest_gap.as_secs_f64()
        )?;
        self.violations.iter().try_for_each(|violation| writeln!(out, "VIOLATION: {violation}"))?;
        write!(out, "{} violations", self.violations.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn spell(epoch: u64, first: u64, last: u64) -> Spell {
        Spell { epoch, alone: true, program: 0, first: at(first), last: at(last) }
    }

    fn violations(spells: Vec<Spell>) -> Vec<String> {
        judge(spells, at(0), at(10), 0.6).violations
    }

    #[test]
    fn one_after_the_other_is_fine() {
        assert_eq!(violations(vec![spell(1, 0, 4), spell(2, 5, 10)]), Vec::<String>::new());
    }

    #[test]
    fn overlaps_falling_epochs_idle_time_and_taken_locks_are_violations() {
        assert_eq!(violations(vec![spell(1, 0, 6), spell(2, 5, 10)]).len(), 1);
        assert_eq!(violations(vec![spell(2, 0, 4), spell(2, 5, 10)]).len(), 1);
        assert_eq!(violations(vec![spell(1, 0, 2)]).len(), 1);
        assert_eq!(violations(vec![Spell { alone: false, ..spell(1, 0, 10) }]).len(), 1);
    }

    #[test]
    fn program_that_never_led_is_a_violation() {
        for (last, violations) in [(20, &[][..]), (21, &["new never led"])] {
            let spells = (1..=last).map(|number| spell(number, number, number + 1)).collect();
            let mut verdict = judge(spells, at(1), at(last + 1), 0.6);
            verdict.check_turns(&["old".into(), "new".into()]);
            assert_eq!(verdict.violations, violations);
        }
    }

    #[test]
    fn a_log_is_read_back_although_its_last_line_was_cut_short() {
        let log = "7 123 alone 124 0\n1000000000\n2000000000\n30000";
        assert_eq!(parse(log), Some(spell(7, 1, 2)));
    }
}
