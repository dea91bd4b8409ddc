//! The verdict from the workers' logs: which worker ran when, and under which epoch.

use crate::{
    fault::{BEAT, Target},
    instance::{Ended, MARK},
    proc_fs::{self, Marked, Process},
};
use rustix::process::{Signal, kill_process};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs, io,
    path::{Path, PathBuf},
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

/// The time that one worker ran, from its log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WorkSpan {
    epoch: u64,
    alone: bool,
    /// Which of the programs started it.
    program: usize,
    pub(crate) first: Instant,
    last: Instant,
}

#[cfg(test)]
impl WorkSpan {
    pub(crate) fn between(first: Instant, last: Instant) -> Self {
        Self { epoch: 1, alone: true, program: 0, first, last }
    }
}

/// So many workers may be of one program by chance.
const FEW: usize = 20;

#[derive(Debug, Default)]
pub(crate) struct Verdict {
    spans: usize,
    led: f64,
    longest_gap: Duration,
    /// The programs of the workers, in their order.
    turns: Vec<usize>,
    pub(crate) violations: Vec<String>,
}

/// Reads every worker's log. A worker that was killed before its first line has none.
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
    let mut head = lines.next()?.split(' ');
    let epoch = head.next()?.parse().ok()?;
    let alone = head.nth(1)? == "alone";
    let program = head.nth(1)?.parse().ok()?;
    // A kill may cut off the last line, which leaves a smaller number: the largest is the last.
    let beats = || lines.clone().filter_map(|line| line.parse().ok()).map(Instant::from_nanos);
    Some(WorkSpan { epoch, alone, program, first: beats().next()?, last: beats().max()? })
}

/// Checks that no two overlap, that epochs rise strictly, and that at least `least` of the time was led.
pub(crate) fn judge(mut spans: Vec<WorkSpan>, began: Instant, ended: Instant, least: f64) -> Verdict {
    spans.sort_by_key(|span| span.first);
    let turns = spans.iter().map(|span| span.program).collect();
    let mut verdict = Verdict { spans: spans.len(), turns, ..Verdict::default() };
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
        self.violations.iter().try_for_each(|violation| writeln!(out, "VIOLATION: {violation}"))?;
        write!(out, "{} violations", self.violations.len())
    }
}

/// Findings about candidates that have ended.
#[derive(Default)]
pub(crate) struct Remains {
    pending: Vec<Pending>,
    /// How long the last process of a candidate outlived its guardian, for candidates that are not excused.
    pub(crate) longest: Duration,
    /// How many candidates were excused, how many of them left a process, and how many processes.
    pub(crate) excused: u64,
    pub(crate) left_a_process: u64,
    pub(crate) left: usize,
    pub(crate) violations: Vec<String>,
}

struct Pending {
    mark: String,
    since: Instant,
    /// When an excused candidate is checked: its worker must be dead by then.
    due: Instant,
    is_excused: bool,
}

impl Remains {
    /// Records that an instance has ended just now.
    pub(crate) fn of(&mut self, ended: Ended, now: Instant, ttl: Duration, excused: &BTreeSet<Process>) {
        let is_excused = ended.guardian.is_some_and(|guardian| excused.contains(&guardian));
        self.excused += u64::from(is_excused);
        // A stopped host lives until its deadline, which is before the end of the TTL.
        let due = if is_excused { now.after(ttl) } else { now };
        self.pending.push(Pending { mark: ended.mark, since: now, due, is_excused });
    }

    /// Checks the candidates that are due. Kills what is left, as an operator would.
    pub(crate) fn look(&mut self, now: Instant, most: Duration) {
        let mut pending = std::mem::take(&mut self.pending);
        pending.retain(|pending| now < pending.due || !self.is_settled(pending, now, most));
        self.pending.append(&mut pending);
    }

    fn is_settled(&mut self, pending: &Pending, now: Instant, most: Duration) -> bool {
        let mark = format!("{MARK}={}", pending.mark);
        let mut left = proc_fs::marked(|variable| variable == mark.as_bytes());
        // A host whose guardian was killed releases the record before it ends.
        left.retain(|one| !one.is_ours());
        if pending.is_excused {
            self.left_a_process += u64::from(!left.is_empty());
            self.left += left.len();
            let (workers, background): (Vec<_>, Vec<_>) =
                left.iter().partition(|one| one.words.iter().any(|word| word == "work"));
            self.violations.extend(workers.iter().map(|worker| format!("a worker lives on: {worker:?}")));
            end(workers.into_iter().chain(background));
            return true;
        }
        let outlived = now.since(pending.since);
        if left.is_empty() {
            return true;
        }
        self.longest = self.longest.max(outlived);
        if outlived > most {
            self.violations.push(format!("left behind for {outlived:?} or more: {left:?}"));
            end(left.iter());
            return true;
        }
        false
    }

    /// Checks that no process is left after the end of all candidates, once hosts had their time.
    pub(crate) fn at_the_end(&mut self, folder: &Path, ttl: Duration, most: Duration) {
        let began = SystemClock::read();
        let prefix = format!("{MARK}={}/", folder.display());
        loop {
            let now = SystemClock::read();
            let is_over = now.since(began) > ttl * 5;
            self.look(if is_over { Instant::NEVER } else { now }, most);
            let left = proc_fs::marked(|variable| variable.starts_with(prefix.as_bytes()));
            if left.is_empty() && self.pending.is_empty() {
                return;
            }
            if is_over {
                self.violations.push(format!("at the end there are still {left:?}"));
                return end(left.iter());
            }
            // Between two looks.
            SystemClock::block_for(Duration::from_millis(3));
        }
    }
}

fn end<'a>(left: impl Iterator<Item = &'a Marked>) {
    for one in left {
        // It may have ended meanwhile.
        let _gone = kill_process(one.pid, Signal::KILL);
    }
}

/// By target; times are sorted.
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
        WorkSpan { epoch, alone: true, program: 0, first: at(first), last: at(last) }
    }

    fn violations(spans: Vec<WorkSpan>) -> Vec<String> {
        judge(spans, at(0), at(10), 0.6).violations
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
    fn program_that_never_led_is_a_violation() {
        for (last, violations) in [(20, &[][..]), (21, &["new never led"])] {
            let spans = (1..=last).map(|number| span(number, number, number + 1)).collect();
            let mut verdict = judge(spans, at(1), at(last + 1), 0.6);
            verdict.check_turns(&["old".into(), "new".into()]);
            assert_eq!(verdict.violations, violations);
        }
    }

    #[test]
    fn log_with_a_truncated_last_line_is_read() {
        let log = "7 123 alone 124 0\n1000000000\n2000000000\n30000";
        assert_eq!(parse(log), Some(span(7, 1, 2)));
    }

    #[test]
    fn time_counts_from_a_kill_to_the_next_new_worker() {
        let at = |millis: u64| Instant::ORIGIN.after(Duration::from_millis(millis));
        let spans = [WorkSpan::between(at(0), at(100)), WorkSpan::between(at(400), at(900))];
        let leader_kills = [(at(100), Target::Guardian), (at(95), Target::Host), (at(900), Target::Host)];
        let text = Successions::of(&leader_kills, &spans, Duration::from_millis(601)).to_string();
        let medians = "; guardian killed: 0.30 s of 1; host killed: 0.30 s of 1; ";
        assert!(
            text.ends_with(&format!(
                "{medians}1 of 2 fail-overs (50.0 %) needed a TTL, guardian 0 of 1, host 1 of 1"
            )),
            "{text}"
        );
    }
}
