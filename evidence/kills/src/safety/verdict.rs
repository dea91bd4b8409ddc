//! The verdict from the workers' logs: which worker ran when, and under which epoch.

use super::{
    candidates::{BEAT, OVERLAP, STOPPED},
    processes::Target,
};
use std::{
    collections::BTreeMap,
    fmt, fs, io,
    path::{Path, PathBuf},
    time::Duration,
};
use vvm_clock::Instant;

/// The time that one worker ran, from its log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WorkSpan {
    epoch: u64,
    alone: bool,
    program: usize,
    stopped: bool,
    pub(crate) first: Instant,
    last: Instant,
}

/// So many workers may be of one program by chance.
const FEW: usize = 20;

#[derive(Debug, Default)]
pub(crate) struct Verdict {
    spans: usize,
    stopped: usize,
    led: f64,
    longest_gap: Duration,
    turns: Vec<usize>,
    pub(crate) violations: Vec<String>,
}

pub(crate) fn read(folder: &Path) -> io::Result<Vec<WorkSpan>> {
    let mut spans = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("worker-") {
            spans.extend(parse(&fs::read_to_string(entry.path())?));
        }
    }
    Ok(spans)
}

fn parse(log: &str) -> Option<WorkSpan> {
    let mut lines = log.lines();
    let mut head = lines.next()?.split(' ').skip(3);
    let (program, epoch) = (head.next()?.parse().ok()?, head.next()?.parse().ok()?);
    // A worker of a client takes no lock.
    let alone = head.next()? != OVERLAP;
    // A kill may cut off the last line, which leaves a smaller number: the largest is the last.
    let beats = || lines.clone().filter_map(|line| line.parse().ok()).map(Instant::from_nanos);
    let stopped = log.lines().last() == Some(STOPPED);
    Some(WorkSpan { epoch, alone, program, stopped, first: beats().next()?, last: beats().max()? })
}

/// The least share of the time with a leader, without the time that no leader can have.
const LED: f64 = 0.6;

/// Checks that no two overlap, that epochs rise strictly, and that most of the time was led. `by_design` is the time
/// in which no candidate may lead: the guardian and the host of a leader are dead, and its record still stands.
pub(crate) fn judge(
    mut spans: Vec<WorkSpan>,
    (began, ended): (Instant, Instant),
    by_design: Duration,
) -> Verdict {
    spans.sort_by_key(|span| span.first);
    let turns = spans.iter().map(|span| span.program).collect();
    let stopped = spans.iter().filter(|span| span.stopped).count();
    let mut verdict = Verdict { spans: spans.len(), stopped, turns, ..Verdict::default() };
    for span in spans.iter().filter(|span| !span.alone) {
        verdict
            .violations
            .push(format!("the worker of epoch {} started while another held the lock", span.epoch));
    }
    for pair in spans.windows(2) {
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
    let led: Duration = spans.iter().map(|span| span.first.until(span.last) + BEAT).sum();
    let all = began.until(ended);
    verdict.led = led.as_secs_f64() / all.as_secs_f64();
    let least = all.saturating_sub(by_design).mul_f64(LED);
    if led < least {
        verdict.violations.push(format!("led for {led:.1?}, less than {least:.1?} of {all:.1?}"));
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
            if count == 0 && self.spans > FEW {
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
            self.spans,
            self.longest_gap.as_secs_f64()
        )?;
        if self.stopped > 0 {
            writeln!(out, "{} of them stopped when they were told", self.stopped)?;
        }
        self.violations.iter().try_for_each(|violation| writeln!(out, "VIOLATION: {violation}"))?;
        write!(out, "{} violations", self.violations.len())
    }
}

pub(crate) struct Successions {
    took: BTreeMap<Target, Vec<Duration>>,
    ttl: Duration,
}

impl Successions {
    /// Returns the time from each kill to the first sign of the next worker, if there was one.
    pub(crate) fn of(leader_kills: &[(Instant, Target)], spans: &[WorkSpan], ttl: Duration) -> Self {
        let mut took = BTreeMap::<Target, Vec<Duration>>::new();
        for (at, target) in leader_kills {
            let next = spans.iter().map(|span| span.first).filter(|first| first > at).min();
            took.entry(*target).or_default().extend(next.map(|first| at.until(first)));
        }
        took.values_mut().for_each(|took| took.sort());
        Self { took, ttl }
    }

    /// Whether a fail-over needed a TTL. A record that is renewed each quarter of the TTL lasts for more than
    /// half of it; after a release a fail-over takes far less.
    fn needed_a_ttl(&self, took: Duration) -> bool {
        took > self.ttl / 2
    }
}

impl fmt::Display for Successions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("until the next worker ran (median)")?;
        for (target, took) in &self.took {
            if let Some(median) = took.get(took.len() / 2) {
                write!(out, "; {target} killed: {:.2} s of {}", median.as_secs_f64(), took.len())?;
            }
        }
        let all = || self.took.values().flatten();
        let (late, count) = (all().filter(|took| self.needed_a_ttl(**took)).count(), all().count());
        let share = 100.0 * late as f64 / count.max(1) as f64;
        write!(out, "; {late} of {count} fail-overs ({share:.1} %) needed a TTL")?;
        for (target, took) in &self.took {
            let late = took.iter().filter(|took| self.needed_a_ttl(**took)).count();
            write!(out, ", {target} {late} of {}", took.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn span(epoch: u64, first: u64, last: u64) -> WorkSpan {
        WorkSpan { epoch, alone: true, program: 0, stopped: false, first: at(first), last: at(last) }
    }

    fn violations(spans: Vec<WorkSpan>) -> Vec<String> {
        judge(spans, (at(0), at(10)), Duration::ZERO).violations
    }

    #[test]
    fn consecutive_workers_are_no_violation() {
        assert_eq!(violations(vec![span(1, 0, 4), span(2, 5, 10)]), Vec::<String>::new());
    }

    #[test]
    fn overlap_falling_epoch_idle_time_and_taken_lock_are_violations() {
        assert_eq!(violations(vec![span(1, 0, 6), span(2, 5, 10)]).len(), 1);
        assert_eq!(violations(vec![span(2, 0, 4), span(2, 5, 10)]).len(), 1);
        assert_eq!(violations(vec![span(1, 0, 2)]).len(), 1);
        assert_eq!(violations(vec![WorkSpan { alone: false, ..span(1, 0, 10) }]).len(), 1);
    }

    #[test]
    fn time_in_which_no_candidate_may_lead_is_left_out() {
        let judged = |by_design| judge(vec![span(1, 0, 4)], (at(0), at(10)), Duration::from_secs(by_design));
        assert_eq!(judged(0).violations, ["led for 4.0s, less than 6.0s of 10.0s"]);
        assert_eq!(judged(4).violations, Vec::<String>::new());
    }

    #[test]
    fn program_that_never_led_is_a_violation() {
        for (last, violations) in [(20, &[][..]), (21, &["new never led"])] {
            let spans = (1..=last).map(|number| span(number, number, number + 1)).collect();
            let mut verdict = judge(spans, (at(1), at(last + 1)), Duration::ZERO);
            verdict.check_turns(&["old".into(), "new".into()]);
            assert_eq!(verdict.violations, violations);
        }
    }

    #[test]
    fn log_with_a_truncated_last_line_is_read() {
        let log = "12 123 124 0 7 alone\n1000000000\n2000000000\n30000";
        assert_eq!(parse(log), Some(span(7, 1, 2)));
        assert_eq!(parse(&log.replace("alone", "unlocked")), Some(span(7, 1, 2)));
        assert_eq!(parse(&log.replace("alone", "OVERLAP")).map(|span| span.alone), Some(false));
        let log = "12 123 124 0 7 alone\n1000000000\n2000000000\nstopped\n";
        assert_eq!(parse(log), Some(WorkSpan { stopped: true, ..span(7, 1, 2) }));
    }

    #[test]
    fn time_counts_from_a_kill_to_the_next_new_worker() {
        let spans = [span(1, 0, 100), span(2, 400, 900)];
        let leader_kills = [(at(100), Target::Guardian), (at(95), Target::Host), (at(900), Target::Host)];
        let text = Successions::of(&leader_kills, &spans, Duration::from_secs(601)).to_string();
        let medians = "; guardian killed: 300.00 s of 1; host killed: 305.00 s of 1; ";
        assert!(
            text.ends_with(&format!(
                "{medians}1 of 2 fail-overs (50.0 %) needed a TTL, guardian 0 of 1, host 1 of 1"
            )),
            "{text}"
        );
    }
}
