//! What is done to the processes: SIGKILL, SIGTERM, SIGSTOP and some time later SIGCONT, to guardian, host or worker.

use crate::{instance::Instance, proc_fs};
use clock::Instant;
use fastrand::Rng;
use rustix::process::{Pid, Signal, kill_process};
use std::{collections::BTreeMap, fmt, time::Duration};

/// What was done, and who is still stopped.
#[derive(Default)]
pub(crate) struct Troubles {
    done: BTreeMap<(&'static str, &'static str), u64>,
    stopped: Vec<(Instant, Pid)>,
}

/// The processes of one candidate.
struct Family {
    guardian: i32,
    host: Option<i32>,
    worker: Option<i32>,
}

impl Family {
    fn of(instance: &Instance) -> Option<Self> {
        let guardian = instance.guardian()?;
        let host = proc_fs::children(guardian).first().copied();
        let worker = host.and_then(|host| proc_fs::children(host).first().copied());
        Some(Self { guardian, host, worker })
    }
}

impl Troubles {
    /// One trouble for one process of one candidate.
    pub(crate) fn make(&mut self, now: Instant, instances: &[Instance], rng: &mut Rng) {
        let mut candidates: Vec<Family> = instances.iter().filter_map(Family::of).collect();
        // A standby's end changes little: every second time it is the leader's turn.
        if rng.bool() && candidates.iter().any(|family| family.worker.is_some()) {
            candidates.retain(|family| family.worker.is_some());
        }
        let Some(Family { guardian, host, worker }) = rng.choice(candidates) else { return };
        let (role, target) = match rng.u32(..3) {
            0 => ("guardian", Some(guardian)),
            1 => ("host", host),
            _ => ("worker", worker),
        };
        let Some(target) = target.and_then(Pid::from_raw) else { return };
        let (name, signal) = match rng.u32(..3) {
            0 => ("KILL", Signal::KILL),
            1 => ("STOP", Signal::STOP),
            _ => ("TERM", Signal::TERM),
        };
        // Between looking and signalling it may have ended; the numbers are not reused within so short a time.
        if kill_process(target, signal).is_ok() {
            *self.done.entry((role, name)).or_default() += 1;
            if signal == Signal::STOP {
                let resume_at = now.after(Duration::from_millis(rng.u64(50..2500)));
                self.stopped.push((resume_at, target));
            }
        }
    }

    pub(crate) fn resume_due(&mut self, now: Instant) {
        self.stopped.retain(|(resume_at, stopped)| {
            if *resume_at <= now {
                // Dead meanwhile, most likely: that is what the deadline is for.
                let _ = kill_process(*stopped, Signal::CONT);
            }
            *resume_at > now
        });
    }

    pub(crate) fn resume_all(&mut self) {
        self.resume_due(Instant::NEVER);
    }
}

impl fmt::Display for Troubles {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total: u64 = self.done.values().sum();
        write!(out, "{total} troubles:")?;
        self.done.iter().try_for_each(|((role, signal), count)| write!(out, " {count} {signal} to a {role};"))
    }
}
