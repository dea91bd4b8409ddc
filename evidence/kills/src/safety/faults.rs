//! The faults: SIGKILL, SIGTERM, or SIGSTOP and later SIGCONT, to guardian, host, keeper or worker; SIGKILL
//! to guardian and host at once; and closing the terminal.

use super::{
    candidates::Instance,
    processes::{Process, Target, Tree},
};
use fastrand::Rng;
use rustix::process::Signal;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};
use vvm_clock::Instant;

/// The faults so far, and the processes that are still stopped.
#[derive(Default)]
pub(crate) struct Faults {
    done: BTreeMap<(Target, Action), u64>,
    /// When a leader's guardian, host, or both were killed.
    pub(crate) leader_kills: Vec<(Instant, Target)>,
    stopped: Vec<(Instant, Process)>,
    /// Guardians, hosts and keepers that were killed or stopped.
    hit: BTreeSet<Process>,
    /// Guardians and hosts of candidates whose guardian was hit, and host or keeper, too: then no process
    /// may be left that ends the background processes of the worker.
    pub(crate) excused: BTreeSet<Process>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Action {
    Kill,
    Stop,
    Term,
}

struct CandidateProcesses {
    index: usize,
    tree: Tree,
    leads: bool,
    has_terminal: bool,
}

impl CandidateProcesses {
    fn of((index, instance): (usize, &Instance)) -> Option<Self> {
        let tree = Tree::of(instance.guardian()?);
        let leads = tree.worker.is_some_and(|worker| instance.works(worker));
        Some(Self { index, tree, leads, has_terminal: instance.has_terminal() })
    }

    fn targets(&self) -> Vec<Target> {
        let Tree { host, keeper, worker, .. } = &self.tree;
        let there = [
            (Target::Guardian, true),
            (Target::Host, host.is_some()),
            (Target::Keeper, keeper.is_some()),
            (Target::Worker, worker.is_some()),
            (Target::GuardianAndHost, host.is_some()),
            (Target::Terminal, self.has_terminal),
        ];
        there.into_iter().filter_map(|(target, is_there)| is_there.then_some(target)).collect()
    }
}

impl Faults {
    pub(crate) fn kills(&self) -> u64 {
        self.done.iter().filter(|((_, action), _)| *action == Action::Kill).map(|(_, count)| count).sum()
    }

    pub(crate) fn inject(&mut self, now: Instant, instances: &mut [Instance], rng: &mut Rng) {
        let mut candidates: Vec<CandidateProcesses> =
            instances.iter().enumerate().filter_map(CandidateProcesses::of).collect();
        // A fault of a standby tests little, so every second fault hits the leader.
        if rng.bool() && candidates.iter().any(|candidate| candidate.leads) {
            candidates.retain(|candidate| candidate.leads);
        }
        let Some(candidate) = rng.choice(candidates) else { return };
        let Some(target) = rng.choice(candidate.targets()) else { return };
        let action = match (target, rng.u32(..5)) {
            (Target::GuardianAndHost | Target::Terminal, _) | (_, 0..3) => Action::Kill,
            (_, 3) => Action::Stop,
            _ => Action::Term,
        };
        if action != Action::Term {
            self.hit(&candidate, target);
        }
        let mut is_done = target == Target::Terminal;
        if let (true, Some(instance)) = (is_done, instances.get_mut(candidate.index)) {
            instance.close_terminal();
        }
        let mut processes = candidate.tree.processes(target);
        rng.shuffle(&mut processes);
        let signal = match action {
            Action::Kill => Signal::KILL,
            Action::Stop => Signal::STOP,
            Action::Term => Signal::TERM,
        };
        for process in processes {
            // It may have ended meanwhile.
            is_done |= process.signal(signal);
            if action == Action::Stop {
                let resume_at = now.after(Duration::from_millis(rng.u64(50..2500)));
                self.stopped.push((resume_at, process));
            }
        }
        *self.done.entry((target, action)).or_default() += u64::from(is_done);
        if is_done
            && candidate.leads
            && action == Action::Kill
            && !matches!(target, Target::Worker | Target::Terminal)
        {
            self.leader_kills.push((now, target));
        }
    }

    /// Records that the guardian of a candidate that did not end on TERM will be killed.
    pub(crate) fn kills_guardian_of(&mut self, instance: &Instance) {
        if let Some(candidate) = CandidateProcesses::of((0, instance)) {
            self.hit(&candidate, Target::Guardian);
        }
    }

    fn hit(&mut self, candidate: &CandidateProcesses, target: Target) {
        let Tree { guardian, host, keeper, .. } = candidate.tree;
        if target != Target::Worker {
            self.hit.extend(candidate.tree.processes(target));
        }
        let was_hit = |process: Option<Process>| process.is_some_and(|process| self.hit.contains(&process));
        if was_hit(Some(guardian)) && (was_hit(host) || was_hit(keeper)) {
            self.excused.extend([Some(guardian), host].into_iter().flatten());
        }
    }

    pub(crate) fn resume_due(&mut self, now: Instant) {
        self.stopped.retain(|(resume_at, stopped)| {
            if *resume_at <= now {
                // Its deadline has probably killed it meanwhile.
                stopped.signal(Signal::CONT);
            }
            *resume_at > now
        });
    }

    pub(crate) fn resume_all(&mut self) {
        self.resume_due(Instant::NEVER);
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |((target, action), count): (&(Target, Action), &u64)| match target {
            Target::Terminal => format!("terminal closed {count} times"),
            _ => format!("{target} {action} {count} times"),
        };
        let each = self.done.iter().filter(|(_, count)| **count > 0).map(one).collect::<Vec<_>>();
        let others = self.done.values().sum::<u64>() - self.kills();
        write!(out, "{} kills and {others} other faults: {}", self.kills(), each.join("; "))
    }
}

impl fmt::Display for Action {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Kill => "killed",
            Self::Stop => "stopped for a while",
            Self::Term => "terminated",
        })
    }
}
