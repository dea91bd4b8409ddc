//! An example of `primary-only`: the leader copies a folder, and continues where its predecessor was killed.
//!
//! - [`Copies`]: the service, and its task: a state machine with the state [`Progress`].
//! - [`Plan`]: the files to copy, in the same order for every process.
//! - [`Progress`]: the document, which is all that the next leader receives.
//! - [`step`](mod@step): one step: some bytes, and the next document.
//!
//! **Exactly once.** A step has two effects. Writing the same bytes to the same place twice does no harm. The document
//! is written once: only over its previous version, and only by the current leader (I2). It has a digest over all steps
//! in order, which a missing, repeated or misplaced step would change. [`step::undisturbed`] returns the expected one.
#![forbid(unsafe_code)]

pub mod step;

use async_trait::async_trait;
use primary_only::{BoxError, RunContext, Service, Task, TermInterrupted};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use step::step;
use vvm_clock::Clock;

/// The service: copies of folders, each with a name.
#[derive(Debug)]
pub struct Copies {
    /// The number of bytes that a step copies.
    pub piece: usize,
    /// The pause after each step, which limits the load.
    pub pause: Duration,
    /// Times the pauses.
    pub clock: Arc<dyn Clock>,
}

/// One copy.
#[derive(Debug)]
pub struct Copy {
    piece: usize,
    pause: Duration,
    clock: Arc<dyn Clock>,
    shown: Mutex<Progress>,
}

/// The folder has changed since the copy began.
#[derive(Debug, thiserror::Error)]
#[error("{} has changed since the copy began: put it back, or begin another copy", .0.display())]
pub struct PlanChanged(PathBuf);

#[async_trait]
impl Service for Copies {
    type Id = String;
    type Doc = Progress;
    type Task = Copy;

    const NAME: &'static str = "copies";

    fn build(&self, _name: &String, progress: &Progress) -> Result<Copy, BoxError> {
        let (piece, pause, clock) = (self.piece, self.pause, Arc::clone(&self.clock));
        Ok(Copy { piece, pause, clock, shown: Mutex::new(progress.clone()) })
    }
}

impl Copy {
    /// Returns the progress.
    pub fn progress(&self) -> Progress {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn show(&self, progress: Progress) {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    }
}

#[async_trait]
impl Task for Copy {
    type Doc = Progress;

    /// Keeps the document when the copy is done, so that the next leader finds nothing left to do.
    async fn run(&self, mut cx: RunContext<Progress>) -> Result<(), BoxError> {
        cx.state.insert().await?;
        let from = cx.state.doc().from.clone();
        // `block_in_place` starts no task, so nothing outlives the run.
        let plan = tokio::task::block_in_place(|| Plan::of(&from))?;
        if plan.digest() != cx.state.doc().plan {
            return Err(PlanChanged(from).into());
        }
        while !cx.state.doc().is_done(&plan) {
            if cx.stop.is_cancelled() {
                return Err(TermInterrupted.into());
            }
            let next = tokio::task::block_in_place(|| step(&plan, cx.state.doc(), self.piece))?;
            cx.state.update(next.clone()).await?;
            self.show(next);
            cx.stop.run_until_cancelled(self.clock.sleep(self.pause)).await.ok_or(TermInterrupted)?;
        }
        Ok(())
    }

    fn same_request(&self, asked: &Progress) -> bool {
        let progress = self.progress();
        progress.from == asked.from && progress.to == asked.to
    }

    fn report(&self) -> serde_json::Value {
        let progress = self.progress();
        serde_json::json!({ "files": progress.files, "bytes": progress.bytes, "steps": progress.steps })
    }
}

/// The files below a folder, in the order in which they are copied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Sorted by name, so that every process finds the same order.
    pub files: Vec<File>,
}

/// A file to copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct File {
    /// Relative to the folder.
    pub name: PathBuf,
    /// Its length, in bytes.
    pub bytes: u64,
}

impl Plan {
    /// Returns the files below `folder`, without links and special files. Fails if the folder can't be read.
    pub fn of(folder: &Path) -> io::Result<Self> {
        let mut files = Vec::new();
        let mut folders = vec![folder.to_path_buf()];
        while let Some(inside) = folders.pop() {
            for entry in fs::read_dir(&inside)? {
                let entry = entry?;
                let kind = entry.file_type()?;
                if kind.is_dir() {
                    folders.push(entry.path());
                } else if kind.is_file() {
                    let name = entry.path().strip_prefix(folder).map_err(io::Error::other)?.to_path_buf();
                    files.push(File { name, bytes: entry.metadata()?.len() });
                }
            }
        }
        files.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(Self { files })
    }

    /// Returns a digest of names and lengths. A copy must not continue with another plan.
    pub fn digest(&self) -> Digest {
        self.files.iter().fold(Digest::default(), |digest, file| {
            digest.with(file.name.as_os_str().as_encoded_bytes()).with(&file.bytes.to_be_bytes())
        })
    }
}

/// The progress of a copy. It is small, because each step writes it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Progress {
    /// The source.
    pub from: PathBuf,
    /// The destination.
    pub to: PathBuf,
    /// The digest of the plan with which the copy began.
    pub plan: Digest,
    /// The number of copied files.
    pub files: usize,
    /// The number of copied bytes of the next file.
    pub offset: u64,
    /// The number of copied bytes in all.
    pub bytes: u64,
    /// The number of steps.
    pub steps: u64,
    /// The digest over all steps in their order.
    pub digest: Digest,
}

/// A SHA-256, as 64 hexadecimal digits.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Default, Debug)]
pub struct Digest(String);

impl Progress {
    /// Returns the progress of a new copy.
    pub fn begin(from: PathBuf, to: PathBuf, plan: &Plan) -> Self {
        let (plan, digest) = (plan.digest(), Digest::default());
        Self { from, to, plan, files: 0, offset: 0, bytes: 0, steps: 0, digest }
    }

    /// Returns whether all files are copied.
    pub fn is_done(&self, plan: &Plan) -> bool {
        self.files >= plan.files.len()
    }
}

impl Digest {
    /// Returns the digest of this digest followed by `bytes`.
    #[must_use]
    pub fn with(&self, bytes: &[u8]) -> Self {
        let mut hash = Sha256::new();
        hash.update(self.0.as_bytes());
        hash.update(bytes);
        Self(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}
