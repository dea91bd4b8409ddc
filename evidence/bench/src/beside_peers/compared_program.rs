//! The programs that are compared, and how each is started.

use super::{Failure, WORK, process_tree::ProcessTree, vvm};
use rustix::process::Pid;
use servers::{
    client_go,
    etcd::Etcd,
    kubernetes::Kubernetes,
    owned::{self, Owned},
};
use std::{
    env, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

/// A program that runs a command while it holds a lease.
pub(crate) struct ComparedProgram {
    /// For names of elections, too: of small letters, digits and hyphens.
    name: String,
    title: String,
    program: PathBuf,
    how: How,
}

enum How {
    Etcdctl { endpoint: String },
    ClientGo { kubeconfig: PathBuf },
    Vvm { storage: String },
}

/// A running candidate. Dropping it kills it and all its descendants.
pub(crate) struct Candidate {
    pub(crate) process: Owned,
}

impl ComparedProgram {
    pub(crate) fn etcdctl(etcd: &Etcd) -> Self {
        let how = How::Etcdctl { endpoint: etcd.endpoint() };
        let title = format!("etcdctl ({})", etcd.version());
        Self { name: "etcdctl".into(), title, program: "etcdctl".into(), how }
    }

    /// A candidate of client-go as `evidence/servers/client-go` has it.
    pub(crate) fn client_go(program: &Path, server: &Kubernetes) -> Self {
        let how = How::ClientGo { kubeconfig: server.kubeconfig() };
        let title = client_go::VERSION.to_owned();
        Self { name: "client-go".into(), title, program: program.to_owned(), how }
    }

    /// `vvm run` on a storage, which is made ready.
    ///
    /// # Errors
    /// It can't be.
    pub(crate) fn vvm(scheme: &str, storage: &str) -> Result<Self, Failure> {
        let program = vvm()?;
        let made = Command::new(&program)
            .args(["init-storage", "--storage", storage])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into());
        }
        let how = How::Vvm { storage: storage.to_owned() };
        Ok(Self { name: format!("vvm-{scheme}"), title: format!("vvm ({scheme}:)"), program, how })
    }

    /// Its name and storage, for the table.
    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.how, How::Vvm { .. })
    }

    /// Starts a candidate that runs the command of `scene` when it leads.
    pub(crate) fn start(&self, scene: &Path, ttl: Duration, number: usize) -> io::Result<Candidate> {
        let name = scene.file_name().unwrap_or_default();
        let mut command = owned::command(&self.program)?;
        match &self.how {
            How::Etcdctl { endpoint } => {
                // Before version 3.4, the default was another protocol.
                command.env("ETCDCTL_API", "3").args(["--endpoints", endpoint, "lock"]).arg(name);
                command.args(["--ttl", &ttl.as_secs().to_string()]);
            }
            How::ClientGo { kubeconfig } => {
                command.arg("-kubeconfig").arg(kubeconfig).arg("-name").arg(name);
                command.args(["-id", &format!("candidate-{number}")]);
                command.args(["-ttl", &format!("{}s", ttl.as_secs()), "--"]);
            }
            How::Vvm { storage } => {
                command.args(["run", "--storage", storage, "--name"]).arg(name);
                command.args(["--ttl", &format!("{}s", ttl.as_secs()), "--"]);
            }
        }
        command.arg(env::current_exe()?).arg(WORK).arg(scene);
        let process = Owned::start(command, &scene.with_extension(format!("{number}.log")))?;
        Ok(Candidate { process })
    }

    /// The process that renews: the host of `vvm`, which its guardian has started.
    pub(crate) fn renewing(&self, candidate: &ProcessTree) -> Option<Pid> {
        if self.is_ours() { candidate.with_argument("stage-host") } else { candidate.first() }
    }
}

impl Candidate {
    /// The candidate and all its descendants.
    pub(crate) fn process_tree(&self) -> ProcessTree {
        ProcessTree::of(self.process.id().cast_signed())
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        self.process_tree().kill_at_once();
    }
}
