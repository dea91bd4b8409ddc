//! The faults: SIGKILL, SIGTERM, or SIGSTOP and later SIGCONT, to guardian, host or worker; SIGKILL to
//! guardian and host at once; and closing the terminal.

use crate::{
    instance::Instance,
    proc_fs::{self, Process},
};
use fastrand::Rng;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};
use vvm_clock::Instant;

/// The faults so far, and the processes that are still stopped.
#[derive(Default)]
pub(crate) struct Troubles {
    done: BTreeMap<(Victim, Deed), u64>,
    /// When a leader's guardian, host, or both were killed.
    pub(crate) blows: Vec<(Instant, Victim)>,
    stopped: Vec<(Instant, Pid)>,
    /// Guardians and hosts that were killed or stopped.
    hit: BTreeSet<Process>,
    /// Those where both were: then no process is left to contain what the worker started in the background.
    pub(crate) excused: BTreeSet<Process>,
}

/// The target of a fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Victim {
    Guardian,
    Host,
    Worker,
    GuardianAndHost,
    Terminal,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Deed {
    Kill,
    Stop,
    Term,
}

/// The processes of one candidate.
struct Family {
    index: usize,
    guardian: Process,
    host: Option<Process>,
    worker: Option<i32>,
    has_terminal: bool,
}

impl Family {
    fn of((index, instance): (usize, &Instance)) -> Option<Self> {
        let guardian = instance.guardian()?;
        let host = proc_fs::children(guardian.number).first().copied().and_then(Process::of);
        let worker = host.and_then(|host| proc_fs::children(host.number).first().copied());
        Some(Self { index, guardian, host, worker, has_terminal: instance.has_terminal() })
    }

    /// Finds the processes of a candidate.
    fn victims(&self) -> Vec<Victim> {
        let there = [
            (Victim::Guardian, true),
            (Victim::Host, self.host.is_some()),
            (Victim::Worker, self.worker.is_some()),
            (Victim::GuardianAndHost, self.host.is_some()),
            (Victim::Terminal, self.has_terminal),
        ];
        there.into_iter().filter_map(|(victim, is_there)| is_there.then_some(victim)).collect()
    }

    /// Returns the processes of a target.
    fn processes(&self, victim: Victim) -> Vec<i32> {
        let (guardian, host) = (Some(self.guardian.number), self.host.map(|host| host.number));
        let processes = match victim {
            Victim::Guardian => [guardian, None],
            Victim::Host => [host, None],
            Victim::Worker => [self.worker, None],
            Victim::GuardianAndHost => [guardian, host],
            Victim::Terminal => [None, None],
        };
        processes.into_iter().flatten().collect()
    }
}

impl Troubles {
    /// How many faults killed a process or closed a terminal.
    pub(crate) fn kills(&self) -> u64 {
        self.done.iter().filter(|((_, deed), _)| *deed == Deed::Kill).map(|(_, count)| count).sum()
    }

    /// Injects one fault into one candidate.
    pub(crate) fn make(&mut self, now: Instant, instances: &mut [Instance], rng: &mut Rng) {
        let mut candidates: Vec<Family> = instances.iter().enumerate().filter_map(Family::of).collect();
        // The end of a standby changes little: every second fault goes to the leader.
        if rng.bool() && candidates.iter().any(|family| family.worker.is_some()) {
            candidates.retain(|family| family.worker.is_some());
        }
        let Some(family) = rng.choice(candidates) else { return };
        let Some(victim) = rng.choice(family.victims()) else { return };
        let deed = match (victim, rng.u32(..5)) {
            (Victim::GuardianAndHost | Victim::Terminal, _) | (_, 0..3) => Deed::Kill,
            (_, 3) => Deed::Stop,
            _ => Deed::Term,
        };
        if deed != Deed::Term {
            self.hit(&family, victim);
        }
        let mut is_done = victim == Victim::Terminal;
        if let (true, Some(instance)) = (is_done, instances.get_mut(family.index)) {
            instance.close_terminal();
        }
        let mut processes = family.processes(victim);
        rng.shuffle(&mut processes);
        for target in processes.into_iter().filter_map(Pid::from_raw) {
            // It may have ended since the look. Its process id is not reused within so short a time.
            is_done |= kill_process(target, deed.signal()).is_ok();
            if deed == Deed::Stop {
                let resume_at = now.after(Duration::from_millis(rng.u64(50..2500)));
                self.stopped.push((resume_at, target));
            }
        }
        *self.done.entry((victim, deed)).or_default() += u64::from(is_done);
        let is_leader = family.worker.is_some();
        if is_done && is_leader && deed == Deed::Kill && !matches!(victim, Victim::Worker | Victim::Terminal)
        {
            self.blows.push((now, victim));
        }
    }

    /// Records that the guardian of a candidate that did not end on TERM will be killed.
    pub(crate) fn kills_guardian_of(&mut self, instance: &Instance) {
        if let Some(family) = Family::of((0, instance)) {
            self.hit(&family, Victim::Guardian);
        }
    }

    fn hit(&mut self, family: &Family, victim: Victim) {
        let guardian =
            matches!(victim, Victim::Guardian | Victim::GuardianAndHost).then_some(family.guardian);
        let host = family.host.filter(|_| matches!(victim, Victim::Host | Victim::GuardianAndHost));
        self.hit.extend([guardian, host].into_iter().flatten());
        if let Some(host) = family.host
            && self.hit.contains(&family.guardian)
            && self.hit.contains(&host)
        {
            self.excused.extend([family.guardian, host]);
        }
    }

    pub(crate) fn resume_due(&mut self, now: Instant) {
        self.stopped.retain(|(resume_at, stopped)| {
            if *resume_at <= now {
                // Its deadline has probably killed it meanwhile.
                let _ = kill_process(*stopped, Signal::CONT);
            }
            *resume_at > now
        });
    }

    pub(crate) fn resume_all(&mut self) {
        self.resume_due(Instant::NEVER);
    }
}

impl Deed {
    fn signal(self) -> Signal {
        match self {
            Self::Kill => Signal::KILL,
            Self::Stop => Signal::STOP,
            Self::Term => Signal::TERM,
        }
    }
}

impl fmt::Display for Troubles {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |((victim, deed), count): (&(Victim, Deed), &u64)| match victim {
            Victim::Terminal => format!("terminal closed {count} times"),
            _ => format!("{victim} {deed} {count} times"),
        };
        let each = self.done.iter().filter(|(_, count)| **count > 0).map(one).collect::<Vec<_>>();
        let others = self.done.values().sum::<u64>() - self.kills();
        write!(out, "{} kills and {others} other faults: {}", self.kills(), each.join("; "))
    }
}

impl fmt::Display for Victim {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Guardian => "guardian",
            Self::Host => "host",
            Self::Worker => "worker",
            Self::GuardianAndHost => "guardian and host at once",
            Self::Terminal => "terminal",
        })
    }
}

impl fmt::Display for Deed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Kill => "killed",
            Self::Stop => "stopped for a while",
            Self::Term => "terminated",
        })
    }
}
