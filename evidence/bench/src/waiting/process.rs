//! [`Process`]: one process of `vvm`, and what it uses.

use super::WaitingError;
use crate::{
    beside_peers::ProcessTree,
    resources::{self, ResourcesError},
};
use rustix::process::Pid;
use std::{fs, iter, path::PathBuf, time::Duration};

/// A process of `vvm` itself, not of its command.
#[derive(Debug)]
pub(super) struct Process {
    id: i32,
    name: String,
}

/// What a process uses, or a sum of that.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Used {
    /// Bytes; shared pages are divided among their processes.
    pub(super) proportional: u64,
    /// Bytes that no other process shares.
    pub(super) private: u64,
    /// Bytes, shared ones included.
    pub(super) resident: u64,
    pub(super) cpu: Duration,
    /// How often its threads have stopped waiting.
    pub(super) wake_ups: f64,
}

impl Process {
    /// Returns `ancestor` and those of its descendants that run the same program, by their generation.
    pub(super) fn all_of(ancestor: Pid) -> Result<Vec<Self>, WaitingError> {
        let program = |id: i32| fs::read_link(format!("/proc/{id}/exe"));
        let ancestor = ancestor.as_raw_pid();
        let own: PathBuf = program(ancestor)?;
        let mut all = Vec::new();
        for id in ProcessTree::of(ancestor).ids() {
            if program(id).is_ok_and(|program| program == own) {
                let name = fs::read_to_string(format!("/proc/{id}/comm"))?.trim().to_owned();
                all.push(Self { id, name });
            }
        }
        Ok(all)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn used(&self) -> Result<Used, ResourcesError> {
        let id = self.id.to_string();
        let memory = resources::memory_of(self.id)?;
        Ok(Used {
            proportional: memory.proportional,
            private: memory.private,
            resident: resources::resident_bytes_of(&id)?,
            cpu: resources::cpu_time_of(&id)?,
            wake_ups: resources::wake_ups_of(&id)? as f64,
        })
    }
}

impl Used {
    /// What each of `processes` uses now.
    pub(super) fn each(processes: &[Process]) -> Result<Vec<Self>, ResourcesError> {
        processes.iter().map(Process::used).collect()
    }

    /// Its memory, and its CPU and wake-ups in a minute since `before`, which is `minutes` ago.
    pub(super) fn since(&self, before: &Self, minutes: f64) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(before.cpu).div_f64(minutes),
            wake_ups: (self.wake_ups - before.wake_ups) / minutes,
            ..*self
        }
    }
}

impl iter::Sum for Used {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            proportional: sum.proportional + one.proportional,
            private: sum.private + one.private,
            resident: sum.resident + one.resident,
            cpu: sum.cpu + one.cpu,
            wake_ups: sum.wake_ups + one.wake_ups,
        })
    }
}
