//! The result file: the outcome of a `vvm run`, apart from the status of its command. Pictures are written likewise. A
//! regular file is replaced as a whole, by the rename of a temporary file beside it. A symlink stays, and its target is
//! replaced. Anything else is refused, because a rename would turn a FIFO or a device into a regular file.

use crate::{
    announce::say,
    exit,
    leadership::{ExitWish, RecordId},
};
use ielections::Holder;
use rustix::{
    fs::{Access, AtFlags, CWD, accessat},
    process::Pid,
};
use serde::Serialize;
use serde_json::Value;
use std::{
    fmt,
    fs::{self, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};
use tempfile::NamedTempFile;
use vvm_clock::Instant;
use vvm_containment::{Level, ProcessEnd, can_die_of};

/// The outcome of a `vvm run`. The file has these names in `snake_case`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    WorkerEnded,
    Stopped,
    StoppedWhileWaiting,
    Lost,
    Unhealthy,
    AlreadyDone,
    NoAttemptLeft,
    /// The command succeeded, and the period may not be marked as done (`vvm once`).
    NotMarked,
    NotAcquired,
    /// Another process leads (`--try`).
    LeaderSeen,
    /// The storage refused, and trying again does not help.
    StorageRefused,
    /// The storage has another configuration of this name.
    Conflict,
    CommandNotFound,
    CommandNotExecutable,
    /// The arguments are wrong, or don't fit the storage.
    Misuse,
    SystemRefused,
    Deadline,
    HostDied,
    /// The keeper of the command died: the host releases nothing, the guardian does.
    KeeperDied,
    /// The guardian died. Only logged: readers of the file have seen the guardian's end.
    GuardianDied,
}

impl Outcome {
    pub(crate) fn word(self) -> String {
        serde_json::to_value(self).ok().and_then(|word| word.as_str().map(Into::into)).unwrap_or_default()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::WorkerEnded => "ended",
            Self::AlreadyDone => "nothing to do",
            Self::NoAttemptLeft => "no attempt is left",
            Self::NotMarked => "the command succeeded, but the period may not be marked as done",
            Self::Stopped => "stopped",
            Self::StoppedWhileWaiting => "stopped while waiting for leadership",
            Self::Lost => "leadership lost, the command has been stopped",
            Self::Unhealthy => "unhealthy, the command has been stopped",
            Self::NotAcquired | Self::LeaderSeen | Self::StorageRefused | Self::Conflict | Self::Misuse => {
                "not leading"
            }
            Self::CommandNotFound | Self::CommandNotExecutable => "command not started",
            Self::SystemRefused => "failed",
            Self::Deadline => "killed at the deadline",
            Self::HostDied => "the host process died",
            Self::KeeperDied => "the keeper of the command died",
            Self::GuardianDied => "the guardian died",
        })
    }
}

#[derive(Clone, PartialEq, Default, Debug, Serialize)]
pub(crate) struct Report {
    outcome: Option<Outcome>,
    /// The exit status of `vvm`; none if it died of a signal.
    exit_status: Option<u8>,
    signal: Option<i32>,
    reason: Option<String>,
    worker_exit_status: Option<u8>,
    worker_signal: Option<i32>,
    containment: Option<String>,
    name: String,
    holder: String,
    slot: Option<u32>,
    epoch: Option<u64>,
    incarnation: Option<String>,
    /// The kill deadline in force when the host ended without reporting, in nanoseconds since boot.
    kill_deadline_ns: Option<u64>,
    /// When the guardian saw that end, on the same clock.
    host_ended_ns: Option<u64>,
}

impl Report {
    /// Of `guardian`, which can die of no signal as process 1. It has no level if `vvm` ends before it is a candidate.
    pub(crate) fn new(
        (outcome, farewell, reason): (Outcome, ExitWish, Option<String>),
        (guardian, level): (Option<Pid>, Option<Level>),
        (name, holder): (&str, &Holder),
    ) -> Self {
        let can_die_of = |signal| guardian != Some(Pid::INIT) && can_die_of(signal);
        let (exit_status, signal) = match farewell {
            ExitWish::Exit(status) => (Some(status), None),
            ExitWish::DieOf(signal) if can_die_of(signal) => (None, Some(signal.as_raw())),
            ExitWish::DieOf(signal) => (Some(exit::by_signal(signal.as_raw())), None),
        };
        let (name, holder) = (name.into(), holder.as_str().into());
        let (outcome, containment) = (Some(outcome), level.map(|level| level.to_string()));
        Self { outcome, exit_status, signal, reason, containment, name, holder, ..Self::default() }
    }

    pub(crate) fn of_worker(&mut self, ended: ProcessEnd) {
        match ended {
            ProcessEnd::Exited(status) => self.worker_exit_status = Some(status),
            ProcessEnd::Signalled(number) => self.worker_signal = Some(number),
        }
    }

    pub(crate) fn leading(&mut self, RecordId { slot, epoch, incarnation }: RecordId) {
        self.slot = Some(slot);
        self.epoch = Some(epoch.get());
        self.incarnation = Some(incarnation.to_string());
    }

    pub(crate) fn with_deadline(&mut self, deadline: Instant, ended: Instant) {
        self.kill_deadline_ns = Some(deadline.as_nanos());
        self.host_ended_ns = Some(ended.as_nanos());
    }

    pub(crate) fn members(&self) -> Value {
        let mut members = serde_json::to_value(self).unwrap_or_default();
        if let Some(members) = members.as_object_mut() {
            members.retain(|_, value| !value.is_null());
        }
        members["by"] = "guardian".into();
        members
    }

    pub(crate) fn write(&self, path: Option<&Path>) {
        let mut text = serde_json::to_vec_pretty(self).unwrap_or_default();
        text.push(b'\n');
        let written = path.map_or(Ok(()), |path| write(path, &text));
        written.unwrap_or_else(|refusal| say!("{refusal}"));
    }
}

/// Descriptors of this process. Their reader has the present file open, and would not see one that replaces it.
const DESCRIPTORS: [&str; 4] = ["/dev/stdout", "/dev/stderr", "/dev/fd", "/proc"];

#[derive(Debug, thiserror::Error)]
#[error("can't write {} ({}): {}", path.display(), cause.what, cause.way_out)]
pub(crate) struct ResultFileError {
    path: PathBuf,
    cause: Cause,
}

#[derive(Debug)]
struct Cause {
    what: String,
    way_out: &'static str,
}

impl Cause {
    fn another_file(what: &str) -> Self {
        Self { what: what.into(), way_out: "name another file" }
    }
}

/// The kind alone: the error itself names a temporary file.
impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind as Kind;
        let what = match error.kind() {
            // The words of the system, where those of the kind are only Rust's.
            Kind::NotFound => "no such file or directory".into(),
            Kind::StorageFull => "no space left on the device".into(),
            kind => kind.to_string(),
        };
        let way_out = match error.kind() {
            Kind::StorageFull | Kind::QuotaExceeded => "make room on its disk",
            Kind::FileTooLarge => "let files be larger (ulimit -f, LimitFSIZE=)",
            Kind::PermissionDenied => "let this user write to its folder",
            Kind::ReadOnlyFilesystem => "name a file on a disk that is mounted to be written",
            _ => "name a file, in a folder that exists and that this user may write to",
        };
        Self { what, way_out }
    }
}

/// Whether [`write`] could write there now, and to no file of the storage.
pub(crate) fn check(path: &Path, of_storage: &[PathBuf]) -> Result<(), ResultFileError> {
    with_target(path, |target| {
        if of_storage.iter().any(|file| is_same(target, file)) {
            return Err(Cause::another_file("it belongs to the storage"));
        }
        match beside(target) {
            Err(refusal) if is_for_its_folder(&refusal) && target.exists() => {
                Ok(accessat(CWD, target, Access::WRITE_OK, AtFlags::EACCESS).map_err(io::Error::from)?)
            }
            outcome => Ok(outcome.map(drop)?),
        }
    })
}

/// Writes `text`, as a whole or not at all, unless the folder of the file is not writable.
pub(crate) fn write(path: &Path, text: &[u8]) -> Result<(), ResultFileError> {
    let replace = |target: &Path| {
        let mut file = beside(target)?;
        file.write_all(text)?;
        file.as_file().sync_all()?;
        file.persist(target)?;
        Ok(())
    };
    with_target(path, |target| match replace(target) {
        Err(refusal) if is_for_its_folder(&refusal) && target.exists() => {
            let mut file = OpenOptions::new().write(true).truncate(true).open(target)?;
            file.write_all(text)?;
            Ok(file.sync_all()?)
        }
        outcome => Ok(outcome?),
    })
}

fn with_target(path: &Path, act: impl FnOnce(&Path) -> Result<(), Cause>) -> Result<(), ResultFileError> {
    target_of(path)
        .and_then(|target| act(&target))
        .map_err(|cause| ResultFileError { path: path.into(), cause })
}

/// Returns the regular file that is created or replaced. A symlink without a target is refused: what is made there
/// later may be a file of the storage.
fn target_of(path: &Path) -> Result<PathBuf, Cause> {
    let kind = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(path).is_err() => {
            return Ok(path.into());
        }
        found => found?.file_type(),
    };
    if kind.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory).into());
    }
    if !kind.is_file() || DESCRIPTORS.iter().any(|descriptors| path.starts_with(descriptors)) {
        return Err(Cause::another_file("it is no regular file"));
    }
    Ok(fs::canonicalize(path)?)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether the folder refuses a new file, or the file is a mount point, as in a container: it can be written in place.
fn is_for_its_folder(refusal: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem, ResourceBusy};
    matches!(refusal.kind(), PermissionDenied | ReadOnlyFilesystem | ResourceBusy)
}

fn beside(path: &Path) -> io::Result<NamedTempFile> {
    let ordinary = Permissions::from_mode(0o666);
    tempfile::Builder::new().prefix(".vvm-result-").permissions(ordinary).tempfile_in(folder_of(path))
}

/// Whether both names are of one file. A file that does not exist is compared by folder and name.
fn is_same(one: &Path, other: &Path) -> bool {
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        (Err(_), Err(_)) => {
            let named =
                |path: &Path| Some((fs::canonicalize(folder_of(path)).ok()?, path.file_name()?.to_owned()));
            named(one).is_some_and(|one| Some(one) == named(other))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{os::unix::fs::symlink, process::Command};

    const TEXT: &[u8] = b"{}\n";

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn put(path: &Path) -> Result<(), ResultFileError> {
        check(path, &[])?;
        write(path, TEXT)
    }

    fn refusal(path: &Path) -> String {
        check(path, &[]).unwrap_err().to_string()
    }

    #[test]
    fn regular_file_is_replaced_whole() {
        let folder = folder();
        let path = folder.path().join("result");
        fs::write(&path, "of an earlier run, and longer").unwrap();
        let before = fs::metadata(&path).unwrap().ino();
        put(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), TEXT);
        assert_ne!(fs::metadata(&path).unwrap().ino(), before, "a reader of the old file has all of it");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    /// Files of at most 4 KiB are what a full disk is for others.
    #[test]
    fn text_that_does_not_fit_leaves_the_old_one_and_no_other_file() {
        let folder = folder();
        let path = folder.path().join("timeline.svg");
        fs::write(&path, "of an earlier run").unwrap();
        let this_test = "result_file::tests::text_that_does_not_fit_leaves_the_old_one_and_no_other_file";
        if let Some(path) = std::env::var_os("VVM_TEST_PICTURE") {
            let refusal = write(Path::new(&path), &[b'x'; 10_000]).unwrap_err().to_string();
            assert!(refusal.contains("ulimit -f") && refusal.contains("timeline.svg"), "{refusal}");
            return;
        }
        // Without the trap, the signal of the limit would end it.
        let limited = "trap '' XFSZ; ulimit -f 4; exec \"$0\" --exact \"$1\"";
        let this_program = std::env::current_exe().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", limited]).arg(this_program).arg(this_test).env("VVM_TEST_PICTURE", &path);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        assert_eq!(fs::read(&path).unwrap(), b"of an earlier run");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        write(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn symlinks_stay_and_their_target_is_replaced() {
        let folder = folder();
        let (target, first, second) = (
            folder.path().join("there/result"),
            folder.path().join("first"),
            folder.path().join("there/second"),
        );
        fs::create_dir(folder.path().join("there")).unwrap();
        symlink("there/second", &first).unwrap();
        symlink("result", &second).unwrap();
        fs::write(&target, "of an earlier run").unwrap();
        put(&first).unwrap();
        assert_eq!(fs::read(&target).unwrap(), TEXT);
        for link in [first, second] {
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink(), "{}", link.display());
        }
    }

    #[test]
    fn what_is_no_regular_file_missing_folders_and_symlinks_without_a_target_are_refused_early() {
        let folder = folder();
        let [one, other, dangling] = ["one", "other", "dangling"].map(|name| folder.path().join(name));
        symlink("leader.db", &dangling).unwrap();
        symlink(&one, &other).unwrap();
        symlink(&other, &one).unwrap();
        let fifo = folder.path().join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        for (path, why) in [
            (folder.path().to_path_buf(), "name a file"),
            (fifo, "no regular file"),
            ("/dev/null".into(), "no regular file"),
            ("/dev/stdout".into(), "no regular file"),
            (folder.path().join("missing/result"), "a folder that exists"),
            (one, "name a file"),
            (dangling, "no such file"),
        ] {
            assert!(refusal(&path).contains(why), "{}", refusal(&path));
        }
    }

    #[test]
    fn refusals_say_what_to_do() {
        let table = [
            (io::ErrorKind::StorageFull, "make room"),
            (io::ErrorKind::QuotaExceeded, "make room"),
            (io::ErrorKind::FileTooLarge, "ulimit -f"),
            (io::ErrorKind::PermissionDenied, "let this user write"),
            (io::ErrorKind::ReadOnlyFilesystem, "mounted to be written"),
            (io::ErrorKind::NotFound, "a folder that exists"),
        ];
        for (kind, way_out) in table {
            let text =
                ResultFileError { path: "result".into(), cause: io::Error::from(kind).into() }.to_string();
            assert!(text.contains(way_out), "{text}");
            assert!(!text.contains("entity not found") && !text.contains("no storage space"), "{text}");
        }
    }
}
