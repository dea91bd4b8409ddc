//! Workers that outlive their host, and by how much.

use crate::proc_fs;
use clock::Instant;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
    time::Duration,
};

#[derive(Default)]
pub(crate) struct Orphans {
    /// Workers that were seen alive: their process, and their host's.
    living: BTreeMap<i32, i32>,
    known: BTreeSet<String>,
    /// Since when a living worker has been without its host.
    orphaned: BTreeMap<i32, Instant>,
    pub(crate) longest: Duration,
    pub(crate) seen: u64,
    pub(crate) violations: Vec<String>,
}

impl Orphans {
    /// Looks at every worker that has left a log.
    pub(crate) fn look(&mut self, now: Instant, folder: &Path, most: Duration) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let Some(pid) = name.strip_prefix("worker-").and_then(|rest| rest.split('-').next()) else {
                continue;
            };
            if self.known.contains(&name) {
                continue;
            }
            // The first line may not be written yet: then it is looked at next time.
            let first = fs::read_to_string(folder.join(&name))?;
            let host = first.lines().next().and_then(|line| line.split(' ').nth(1)).map(str::parse);
            if let (Ok(pid), Some(Ok(host))) = (pid.parse(), host) {
                self.known.insert(name);
                self.living.insert(pid, host);
            }
        }
        let (orphaned, longest, seen, violations) =
            (&mut self.orphaned, &mut self.longest, &mut self.seen, &mut self.violations);
        self.living.retain(|worker, host| {
            let alive = proc_fs::status(*worker).filter(|status| !status.zombie);
            let Some(status) = alive else {
                orphaned.remove(worker);
                return false;
            };
            if status.parent != *host {
                let since = *orphaned.entry(*worker).or_insert_with(|| {
                    *seen += 1;
                    now
                });
                let outlived = now.since(since);
                if outlived > most && *longest <= most {
                    violations.push(format!("worker {worker} outlived its host {host} by {outlived:?}"));
                }
                *longest = (*longest).max(outlived);
            }
            true
        });
        Ok(())
    }
}
