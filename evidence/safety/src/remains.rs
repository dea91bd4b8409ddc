//! Processes that a candidate leaves behind after its guardian has ended. There must be none, unless its host
//! could not act either.

use crate::{
    instance::{Ended, MARK},
    proc_fs::{self, Marked, Process},
};
use rustix::process::{Signal, kill_process};
use std::{collections::BTreeSet, path::Path, time::Duration};
use vvm_clock::{Instant, SystemClock};

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
