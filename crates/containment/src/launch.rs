//! Starting a stage, and accepting the link in it. And the shim: the stage that executes the command, or one of its
//! helpers. The link is passed as standard input, the one descriptor that a child can inherit without `unsafe`. The
//! real standard input follows as the first descriptor over the link.

use crate::{
    link::{Link, LinkMessage, Message},
    messages::{DeathNotice, FromShim, Helper, ToShim},
};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
    net::{SocketType, sockopt::socket_type},
    process::{Pid, Signal, getppid, set_parent_process_death_signal},
};
use std::{
    env,
    ffi::{CString, OsStr, OsString},
    io, iter,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::process::CommandExt as _,
    },
    path::Path,
    process::{Command, Stdio},
};

/// The binary of this process, even if its file was replaced or removed since (proc(5)).
pub const OWN_BINARY: &str = "/proc/self/exe";

pub(crate) const DASHES: &str = "--";

/// Why a stage can't begin.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// Another program started the process.
    #[error("this command is internal: a process of the same program starts it")]
    NotAStage,
    /// The process that started this one has ended.
    #[error("the process that started this one has ended")]
    Abandoned,
    /// `/dev/null` can't replace the link as standard input.
    #[error("/dev/null can't be opened, which every stage needs: {0}: is /dev there, and all of it?")]
    NoNull(io::Error),
    /// The system refused a descriptor or memory.
    #[error("the system refuses a descriptor or memory: {0}")]
    System(io::Error),
}

/// Starts a stage with `far` as its end of the link. The caller adds environment and process group.
pub(crate) fn command(
    stage: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = OsString>,
    far: OwnedFd,
) -> Command {
    let mut command = pass_on(stage, arguments);
    command.stdin(Stdio::from(far));
    command
}

pub(crate) fn pass_on(stage: impl AsRef<OsStr>, arguments: impl IntoIterator<Item = OsString>) -> Command {
    let mut command = Command::new(OWN_BINARY);
    command.arg0(own_name()).arg(stage).args(arguments);
    command
}

fn own_name() -> OsString {
    let called = env::args_os().next().unwrap_or_default();
    Path::new(&called).file_name().unwrap_or(OsStr::new(OWN_BINARY)).to_owned()
}

/// Names this process PROGRAM-STAGE, as `vvm-host`: the kernel would name every stage `exe`, after [`OWN_BINARY`].
fn name_process() {
    let stage = env::args_os().nth(1).unwrap_or_default();
    let stage = stage.to_string_lossy();
    let name = format!("{}-{}", own_name().display(), stage.strip_prefix("stage-").unwrap_or(&stage));
    let _ = CString::new(name).map(|name| rustix::thread::set_name(&name));
}

pub(crate) fn behind_dashes(command: &[OsString]) -> impl Iterator<Item = OsString> {
    iter::once(DASHES.into()).chain(command.iter().cloned())
}

/// Returns the command among the arguments of such a stage, empty for a trial. `None` for unknown arguments.
pub(crate) fn command_of(arguments: &[OsString]) -> Option<&[OsString]> {
    match arguments.split_first() {
        None => Some(arguments),
        Some((dashes, command)) => (dashes == DASHES).then_some(command),
    }
}

pub(crate) fn start(mut command: Command) -> io::Result<Pid> {
    // The handle is dropped on purpose: guardian and keeper reap all their children with `processes::reap`.
    Ok(Pid::from_child(&command.spawn()?))
}

#[derive(Debug)]
pub(crate) struct Accepted<Out, In> {
    pub(crate) link: Link<Out, In>,
    pub(crate) first: In,
    pub(crate) descriptors: Vec<OwnedFd>,
}

pub(crate) fn given_link<Out: Message, In: Message>() -> Result<Link<Out, In>, StageError> {
    let input = rustix::stdio::stdin();
    if socket_type(input) != Ok(SocketType::SEQPACKET) {
        return Err(StageError::NotAStage);
    }
    name_process();
    let socket =
        rustix::io::fcntl_dupfd_cloexec(input, 3).map_err(|errno| StageError::System(errno.into()))?;
    Ok(Link::over(socket))
}

/// Accepts the link from the stage before, and waits for its first message. Standard input is empty afterwards.
pub(crate) fn accept<Out: Message, In: Message>() -> Result<Accepted<Out, In>, StageError> {
    let link = given_link()?;
    let null = open_null("/dev/null")?;
    rustix::stdio::dup2_stdin(null).map_err(|errno| StageError::System(errno.into()))?;
    link.wait();
    match link.receive() {
        Some(LinkMessage::Message(first, descriptors)) => Ok(Accepted { link, first, descriptors }),
        Some(LinkMessage::End) | None => Err(StageError::Abandoned),
    }
}

fn open_null(path: &str) -> Result<OwnedFd, StageError> {
    let opened = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    opened.map_err(|errno| match errno {
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => StageError::System(errno.into()),
        _ => StageError::NoNull(errno.into()),
    })
}

/// Notes from a program to a process that acts when the program is dead. The kernel closes the link when the last
/// thread of the program has ended.
#[derive(Debug)]
pub struct NoteLink(Link<DeathNotice, DeathNotice>);

impl NoteLink {
    /// Returns the link to a process that is to be started, and the command that starts it as `stage`.
    pub fn to(stage: &str, arguments: impl IntoIterator<Item = OsString>) -> io::Result<(Self, Command)> {
        let (near, far) = crate::link::pair()?;
        Ok((Self(near), command(stage, arguments, far)))
    }

    /// Returns the link from the program that started this process. Fails if there is none.
    pub fn given() -> Result<Self, StageError> {
        given_link().map(Self)
    }

    /// Sends a note. Never blocks. Returns whether it was sent.
    #[must_use]
    pub fn tell(&self, note: DeathNotice) -> bool {
        self.0.send(&note).is_ok()
    }

    /// The same with a descriptor.
    #[must_use]
    pub fn tell_with(&self, note: DeathNotice, descriptor: BorrowedFd<'_>) -> bool {
        self.0.send_with(&note, &[descriptor]).is_ok()
    }

    /// Hears all notes, each with its descriptor if it has one, until the program is dead.
    pub fn hear_until_death(&self, mut hear: impl FnMut(DeathNotice, Option<OwnedFd>)) {
        loop {
            match self.0.receive() {
                Some(LinkMessage::Message(note, descriptors)) => hear(note, descriptors.into_iter().next()),
                Some(LinkMessage::End) => return,
                None => self.0.wait(),
            }
        }
    }
}

pub(crate) const SHIM_STAGE: &str = "stage-worker";

/// The status that a shell reports for a command that can't be executed.
const NOT_EXECUTABLE: u8 = 126;

/// Executes the command, or reports why it can't: the shim is the command's process before that. A program start of its
/// own, because code between fork and exec would be `unsafe` and could not allocate.
pub(crate) fn shim_main(arguments: &[OsString]) -> Result<u8, StageError> {
    // When its parent ends, the kernel kills this process, and the command, unless that is set-uid, has file capabilities,
    // or changes its user, group, SELinux domain or AppArmor profile: the setting survives a plain `exec` alone.
    let tied = set_parent_process_death_signal(Some(Signal::KILL));
    let Accepted { link, first: ToShim { parent }, descriptors } = accept::<FromShim, ToShim>()?;
    // If the parent ended before that call, this process has another parent now.
    if getppid() != Some(parent) {
        return Err(StageError::Abandoned);
    }
    let input = descriptors.into_iter().next().ok_or(StageError::Abandoned)?;
    let mut words = arguments.iter();
    let (true, Some(program)) = (words.next().is_some_and(|dashes| dashes == DASHES), words.next()) else {
        return Err(StageError::NotAStage);
    };
    let error = match tied.and_then(|()| rustix::stdio::dup2_stdin(input)) {
        Ok(()) => Command::new(program).args(words).exec(),
        Err(refusal) => refusal.into(),
    };
    let errno = error.raw_os_error().unwrap_or_default();
    // A parent that is gone needs no answer.
    let _ = link.send(&FromShim { errno });
    Ok(NOT_EXECUTABLE)
}

/// The helpers of a command: lines that a shell executes.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct HelperLines {
    /// The line of [`Helper::PreStop`].
    pub pre_stop: Option<String>,
    /// The line of [`Helper::Check`].
    pub check: Option<String>,
}

/// Why a helper did not end by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HelperError {
    /// It was killed.
    #[error("took longer than it may")]
    TooLong,
    /// The system refused the process.
    #[error("could not be started: {0}")]
    System(Errno),
}

/// Variables with a keeper's lines, and with a shell's: every user can read a process's arguments, not its environment.
const PRE_STOP: &str = "VVM_KEEPER_PRE_STOP";
const CHECK: &str = "VVM_KEEPER_CHECK";
const LINE: &str = "VVM_KEEPER_LINE";

impl HelperLines {
    pub(crate) fn of(&self, helper: Helper) -> Option<&str> {
        match helper {
            Helper::PreStop => self.pre_stop.as_deref(),
            Helper::Check => self.check.as_deref(),
        }
    }

    pub(crate) fn environment(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [(PRE_STOP, &self.pre_stop), (CHECK, &self.check)]
            .into_iter()
            .filter_map(|(name, line)| Some((name, line.as_deref()?)))
    }

    pub(crate) fn of_environment() -> Self {
        Self { pre_stop: env::var(PRE_STOP).ok(), check: env::var(CHECK).ok() }
    }
}

pub(crate) fn without_lines(mut command: Command) -> Command {
    command.env_remove(PRE_STOP).env_remove(CHECK);
    command
}

/// Returns the shim that becomes a shell for `line`, in a process group of its own. Its standard output goes
/// to standard error, because standard output is the command's.
pub(crate) fn helper_command(line: &str, far: OwnedFd) -> io::Result<Command> {
    let script = format!("line=${LINE}; unset {LINE}; eval \"$line\"");
    let shell = ["sh".into(), "-c".into(), script.into()];
    let mut command = without_lines(command(SHIM_STAGE, behind_dashes(&shell), far));
    command.env(LINE, line);
    command.process_group(0).stdout(Stdio::from(rustix::stdio::stderr().try_clone_to_owned()?));
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_of_a_stage_is_read_back_from_its_arguments() {
        let command = ["--check=x".into(), "--".into(), "b".into()];
        let arguments = behind_dashes(&command).collect::<Vec<_>>();
        assert_eq!(command_of(&arguments), Some(&command[..]));
        assert_eq!(command_of(&[]), Some(&[][..]));
        assert_eq!(command_of(&["other".into()]), None);
    }

    #[test]
    fn error_names_a_missing_dev_null() {
        let refusal = open_null("/nowhere/null").unwrap_err();
        assert!(matches!(refusal, StageError::NoNull(_)), "{refusal:?}");
        assert!(refusal.to_string().starts_with("/dev/null can't be opened"), "{refusal}");
        assert!(open_null("/dev/null").is_ok());
    }
}
