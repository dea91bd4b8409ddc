//! Processes that outlive the one that must not leave them: workers and their background processes beside
//! their host ([`Orphans`]), and what a candidate that has ended left behind ([`Remains`]).

use super::{
    candidates::{Ended, MARK},
    processes::{self, Marked, Process},
};
use rustix::process::{Signal, kill_process};
use std::{collections::BTreeSet, fs, io, path::Path, time::Duration};
use vvm_clock::{Instant, SystemClock};

/// Workers and background processes that outlive their host, and for how long.
#[derive(Default)]
pub(crate) struct Orphans {
    /// Logs of workers that were seen.
    living: Vec<Watched>,
    known: BTreeSet<String>,
    pub(crate) longest: Duration,
    pub(crate) seen: u64,
    pub(crate) violations: Vec<String>,
}

/// A process that must not outlive another one.
struct Watched {
    process: Process,
    /// The process number of its host.
    host_number: i32,
    /// `None` if it had ended before the first look.
    host: Option<Process>,
    what: &'static str,
    orphaned: Option<Instant>,
    is_late: bool,
}

impl Orphans {
    /// Looks at every worker that has a log. Background processes of `excused` hosts may live on.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        folder: &Path,
        most: Duration,
        excused: &BTreeSet<Process>,
    ) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if !name.starts_with("worker-") || self.known.contains(&name) {
                continue;
            }
            // The first line may not be written yet. Then the next call reads it.
            let log = fs::read_to_string(folder.join(&name))?;
            let Some((head, _)) = log.split_once('\n') else { continue };
            let numbers: Vec<i32> = head.splitn(4, ' ').map_while(|word| word.parse().ok()).collect();
            let [worker, host, background] = numbers[..] else { continue };
            let (host_number, host) = (host, Process::of(host));
            for (number, what) in [(worker, "worker"), (background, "background process of a worker")] {
                let watched =
                    |process| Watched { process, host_number, host, what, orphaned: None, is_late: false };
                self.living.extend(Process::of(number).map(watched));
            }
            self.known.insert(name);
        }
        let (longest, seen, violations) = (&mut self.longest, &mut self.seen, &mut self.violations);
        self.living.retain_mut(|watched| {
            // By its number: the host may have ended before the worker's log was there.
            let is_excused =
                watched.what != "worker" && excused.iter().any(|host| host.number == watched.host_number);
            if is_excused || !watched.process.still_runs() {
                return false;
            }
            if !watched.host.is_some_and(Process::still_runs) {
                let since = *watched.orphaned.get_or_insert_with(|| {
                    *seen += 1;
                    now
                });
                let outlived = now.since(since);
                if outlived > most && !watched.is_late {
                    watched.is_late = true;
                    let (what, number) = (watched.what, watched.process.number);
                    violations.push(format!("{what} ({number}) outlived its host by {outlived:?} or more"));
                }
                *longest = (*longest).max(outlived);
            }
            true
        });
        Ok(())
    }
}

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
        let mut left = processes::marked(|variable| variable == mark.as_bytes());
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
            let left = processes::marked(|variable| variable.starts_with(prefix.as_bytes()));
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
        let _gone = kill_process(one.pid, Signal::KILL);
    }
}
