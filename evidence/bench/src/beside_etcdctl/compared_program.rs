//! The two programs that are compared, and how each is started.

use super::{TTL, WORK, process_tree::ProcessTree};
use servers::{
    etcd::Etcd,
    owned::{self, Owned},
};
use std::{
    env, io,
    path::{Path, PathBuf},
    process::Command,
};

/// A program that runs a command while it holds a lease.
pub(crate) struct ComparedProgram {
    title: String,
    program: PathBuf,
    how: How,
}

enum How {
    Etcdctl { endpoint: String },
    Vvm { storage: String },
}

/// A running candidate. Dropping it kills it and all its descendants.
pub(crate) struct Candidate {
    pub(crate) process: Owned,
}

impl ComparedProgram {
    pub(crate) fn etcdctl(etcd: &Etcd) -> Self {
        let how = How::Etcdctl { endpoint: etcd.endpoint() };
        Self { title: format!("etcdctl lock ({})", etcd.version()), program: "etcdctl".into(), how }
    }

    pub(crate) fn vvm(vvm: &Path, storage: &str, title: &str) -> Self {
        let how = How::Vvm { storage: storage.to_owned() };
        Self { title: format!("vvm run ({title})"), program: vvm.to_owned(), how }
    }

    /// Its name and storage, for the table.
    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    /// The name of its program.
    pub(crate) fn program(&self) -> String {
        self.program.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Starts a candidate that runs the command of `scene` when it leads.
    pub(crate) fn start(&self, scene: &Path, number: usize) -> io::Result<Candidate> {
        let name = scene.file_name().unwrap_or_default();
        let mut command = owned::command(&self.program)?;
        match &self.how {
            How::Etcdctl { endpoint } => {
                // Before version 3.4, the default was another protocol.
                command.env("ETCDCTL_API", "3").args(["--endpoints", endpoint, "lock"]).arg(name);
                command.args(["--ttl", &TTL.as_secs().to_string()]);
            }
            How::Vvm { storage } => {
                command.args([
                    "run",
                    "--storage",
                    storage,
                    "--ttl",
                    &format!("{}s", TTL.as_secs()),
                    "--name",
                ]);
                command.arg(name).arg("--");
            }
        }
        self.work(&mut command, scene)?;
        let process = Owned::start(command, &scene.with_extension(format!("{number}.log")))?;
        Ok(Candidate { process })
    }

    fn work(&self, command: &mut Command, scene: &Path) -> io::Result<()> {
        command.arg(env::current_exe()?).arg(WORK).arg(scene);
        Ok(())
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
