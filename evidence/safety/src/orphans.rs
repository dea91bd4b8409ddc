//! Workers and their background processes that outlive their host, and for how long.

use crate::proc_fs::Process;
use std::{collections::BTreeSet, fs, io, path::Path, time::Duration};
use vvm_clock::Instant;

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
    /// `None` if it had ended before the first look.
    host: Option<Process>,
    what: &'static str,
    /// When its host was found to have ended.
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
            let Some((worker, host, background)) =
                log.split_once('\n').and_then(|(head, _)| parse(&name, head))
            else {
                continue;
            };
            let host = Process::of(host);
            for (number, what) in [(worker, "worker"), (background, "background process of a worker")] {
                let watched = |process| Watched { process, host, what, orphaned: None, is_late: false };
                self.living.extend(Process::of(number).map(watched));
            }
            self.known.insert(name);
        }
        let (longest, seen, violations) = (&mut self.longest, &mut self.seen, &mut self.violations);
        self.living.retain_mut(|watched| {
            let is_excused =
                watched.what != "worker" && watched.host.is_some_and(|host| excused.contains(&host));
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

/// The processes that a worker's log names: the worker, its host, and its background process.
fn parse(name: &str, head: &str) -> Option<(i32, i32, i32)> {
    let worker = name.strip_prefix("worker-")?.split('-').next()?.parse().ok()?;
    let mut words = head.split(' ').skip(1);
    Some((worker, words.next()?.parse().ok()?, words.nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_has_worker_host_and_background_process() {
        assert_eq!(parse("worker-12-7", "7 11 alone 13"), Some((12, 11, 13)));
        assert_eq!(parse("worker-12-7", "7 11 alone"), None);
    }
}
