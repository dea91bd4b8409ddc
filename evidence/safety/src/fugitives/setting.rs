//! The levels of containment, and the promises of each.

use super::kind::{Ending, Kind};
use std::{
    io,
    path::Path,
    process::{Command, Stdio},
};

/// A level of containment, outside or as process 1 of a PID namespace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    level: &'static str,
    is_first: bool,
}

/// All of them.
pub(super) const SETTINGS: [Setting; 5] = [
    Setting { level: "guardian", is_first: false },
    Setting { level: "cgroup", is_first: false },
    Setting { level: "pidns", is_first: false },
    Setting { level: "guardian", is_first: true },
    Setting { level: "pidns", is_first: true },
];

impl Setting {
    pub(super) fn title(self) -> String {
        format!("{}{}", self.level, if self.is_first { " as process 1" } else { "" })
    }

    /// Whether every process must end with the host.
    pub(super) fn promises(self, kind: Kind, ending: Ending) -> bool {
        // The kernel kills a namespace when its process 1 ends. A stopped process 1 can't clean up.
        let ends_with_it = self.is_first && ending == Ending::GuardianKilled;
        match self.level {
            "pidns" => true,
            _ if ends_with_it => true,
            "cgroup" => ending != Ending::BothStopped,
            _ => ending != Ending::BothStopped && !kind.storms,
        }
    }

    /// Returns the command line of `vvm run` here, on a storage in `folder`.
    pub(super) fn command(self, vvm: &Path, folder: &Path, worker: &[&str]) -> Command {
        let mut command = if self.is_first {
            let mut unshare = Command::new("unshare");
            unshare.args(["--pid", "--fork", "--mount-proc", "--kill-child"]).arg(vvm);
            unshare
        } else {
            Command::new(vvm)
        };
        let storage = format!("sqlite:{}?allow=overlay", folder.join("storage.db").display());
        command.args(["run", "--storage", &storage, "--name", "fugitives", "--ttl", "1s"]);
        command.args(["--containment", self.level, "--"]).args(worker).stdin(Stdio::null());
        command
    }

    /// Returns why this machine does not have it.
    pub(super) fn refusal(self, vvm: &Path) -> io::Result<Option<String>> {
        let folder = tempfile::tempdir()?;
        let output = self.command(vvm, folder.path(), &["true"]).output()?;
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Ok((!output.status.success()).then_some(said))
    }
}
