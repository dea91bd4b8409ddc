//! The messages between guardian and supervisor, supervisor and keeper, keeper and shim, and how each fits a frame.

use crate::{
    containment::Level,
    link::{Frame, Message, frame},
    processes::ProcessEnd,
    refusal::{NamespaceRefusal, SetupStep},
    signal_table::signal_of,
    signals::{ForwardedSignal, SignalSource},
};
use rustix::{
    io::Errno,
    process::{Pid, Signal},
};
use std::time::Duration;
use vvm_clock::Instant;

/// From the guardian to the supervisor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ToSupervisor {
    /// The first message. It carries the command's standard input, a descriptor of the guardian's process,
    /// and the folder of the command's control group, if it has one.
    Begin {
        /// The process group that the command shall share, so that the terminal treats both as one job.
        terminal_group: Option<Pid>,
        /// The containment in force.
        level: Level,
    },
    /// The guardian received a signal.
    Signalled {
        /// The signal.
        signal: Signal,
        /// Where it came from.
        source: SignalSource,
    },
    /// The guardian's timer is set to this deadline.
    InForce(Option<Instant>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ToGuardian {
    Deadline(Option<Instant>),
    Note(DeathNotice),
    Finished,
}

/// A message to a process that acts when its sender is dead: the guardian's caller, or one that was started with
/// [`NoteLink::to`](crate::NoteLink::to). This crate does not interpret it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeathNotice {
    /// The kind of the note, below 128.
    pub kind: u8,
    /// Its content.
    pub words: [u64; 4],
}

impl Message for ToSupervisor {
    fn to_frame(&self) -> Frame {
        match *self {
            Self::Begin { terminal_group, level } => {
                frame(1, [optional_pid_word(terminal_group), place(&LEVELS, level)])
            }
            Self::Signalled { signal, source } => frame(2, [signal_word(signal), place(&SOURCES, source)]),
            Self::InForce(deadline) => frame(3, instant_words(deadline)),
        }
    }

    fn from_frame(frame: &Frame) -> Option<Self> {
        let [first, second, ..] = frame.words;
        Some(match frame.kind {
            1 => Self::Begin { terminal_group: pid(first), level: at(&LEVELS, second)? },
            2 => Self::Signalled { signal: signal(first)?, source: at(&SOURCES, second)? },
            3 => Self::InForce(instant(frame.words)),
            _ => return None,
        })
    }
}

/// Frames of this kind and above are notes.
const NOTES: u8 = 128;

impl Message for DeathNotice {
    fn to_frame(&self) -> Frame {
        Frame { kind: NOTES | self.kind, words: self.words }
    }

    fn from_frame(frame: &Frame) -> Option<Self> {
        Some(Self { kind: frame.kind.checked_sub(NOTES)?, words: frame.words })
    }
}

impl Message for ToGuardian {
    fn to_frame(&self) -> Frame {
        match *self {
            Self::Deadline(deadline) => frame(16, instant_words(deadline)),
            Self::Finished => frame(17, []),
            Self::Note(note) => note.to_frame(),
        }
    }

    fn from_frame(frame: &Frame) -> Option<Self> {
        Some(match frame.kind {
            16 => Self::Deadline(instant(frame.words)),
            17 => Self::Finished,
            _ => Self::Note(DeathNotice::from_frame(frame)?),
        })
    }
}

/// From the parent to the shim. It carries the command's standard input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ToShim {
    pub(crate) parent: Pid,
}

/// From the shim to its parent: the `errno` with which execution failed. On success the link closes without a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FromShim {
    pub(crate) errno: i32,
}

/// The longest name of a process that the kernel keeps (proc(5): `comm`), with its end.
pub(crate) const NAME: usize = 16;

/// A helper of the command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Helper {
    /// Runs before the command is stopped.
    PreStop,
    /// Checks whether the command works.
    Check,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ToKeeper {
    /// The first message: start the command. It carries the descriptors that [`ToSupervisor::Begin`] carries.
    Begin {
        /// The process group that the command shall join; `None` for a new one.
        group: Option<Pid>,
        deadline: Option<Instant>,
        /// How long before the kill deadline the keeper kills without an order.
        before_the_deadline: Duration,
    },
    TryOut,
    Signal(ForwardedSignal),
    Helper(Helper),
    KillHelper(Helper),
    Deadline(Option<Instant>),
    /// Send TERM to the processes that the command has left behind.
    TellRest,
    Kill,
}

/// From a keeper to the supervisor; before it starts, from the process that makes its namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FromKeeper {
    /// The keeper can start. From here on, processes may run.
    Ready,
    /// The system refused the namespace. The last message.
    Refused(NamespaceRefusal),
    /// The system refused what the keeper or the shim needs to start.
    NotStarted(Errno),
    /// The shim could not execute the command.
    NotExecuted(Errno),
    /// The shim has become the command, or was killed before.
    Executed,
    Ended(ProcessEnd),
    HelperNotStarted(Helper, Errno),
    HelperEnded(Helper, ProcessEnd),
    NotPassedOn(Signal, Errno),
    /// Up to four processes of another user, which the keeper may not kill.
    OutOfReach([Option<Pid>; 4]),
    LeftOver {
        total: u32,
        /// Whether no other is named after this one.
        is_last: bool,
        /// Its name, with zeros behind.
        name: [u8; NAME],
    },
    /// The keeper's own timer is set for this deadline. The keeper kills the command shortly before.
    InForce(Option<Instant>),
    Kills,
    /// No descendant of the keeper is left (I6). The last message.
    Gone,
}

impl Message for ToKeeper {
    fn to_frame(&self) -> Frame {
        match *self {
            Self::Begin { group, deadline, before_the_deadline } => {
                let [tag, nanos] = instant_words(deadline);
                let before_the_deadline = u64::try_from(before_the_deadline.as_nanos()).unwrap_or(u64::MAX);
                frame(48, [tag, nanos, optional_pid_word(group), before_the_deadline])
            }
            Self::TryOut => frame(49, []),
            Self::Signal(ForwardedSignal { signal, delivered }) => {
                let [tag, nanos] = instant_words(delivered);
                frame(50, [tag, nanos, signal_word(signal)])
            }
            Self::Helper(helper) => frame(51, [place(&HELPERS, helper)]),
            Self::KillHelper(helper) => frame(52, [place(&HELPERS, helper)]),
            Self::Deadline(deadline) => frame(53, instant_words(deadline)),
            Self::TellRest => frame(54, []),
            Self::Kill => frame(55, []),
        }
    }

    fn from_frame(frame: &Frame) -> Option<Self> {
        let [first, _, third, fourth] = frame.words;
        Some(match frame.kind {
            48 => Self::Begin {
                group: pid(third),
                deadline: instant(frame.words),
                before_the_deadline: Duration::from_nanos(fourth),
            },
            49 => Self::TryOut,
            50 => Self::Signal(ForwardedSignal { signal: signal(third)?, delivered: instant(frame.words) }),
            51 => Self::Helper(at(&HELPERS, first)?),
            52 => Self::KillHelper(at(&HELPERS, first)?),
            53 => Self::Deadline(instant(frame.words)),
            54 => Self::TellRest,
            55 => Self::Kill,
            _ => return None,
        })
    }
}

impl Message for FromKeeper {
    fn to_frame(&self) -> Frame {
        match *self {
            Self::Ready => frame(64, []),
            Self::Refused(NamespaceRefusal { step, errno }) => {
                frame(65, [place(&STEPS, step), errno_word(errno)])
            }
            Self::NotStarted(errno) => frame(66, [errno_word(errno)]),
            Self::NotExecuted(errno) => frame(67, [errno_word(errno)]),
            Self::Executed => frame(68, []),
            Self::Ended(how) => frame(69, ended_words(how)),
            Self::HelperNotStarted(helper, errno) => frame(70, [place(&HELPERS, helper), errno_word(errno)]),
            Self::HelperEnded(helper, how) => {
                let [tag, number] = ended_words(how);
                frame(71, [tag, number, place(&HELPERS, helper)])
            }
            Self::NotPassedOn(signal, errno) => frame(72, [signal_word(signal), errno_word(errno)]),
            Self::OutOfReach(processes) => frame(73, processes.map(optional_pid_word)),
            Self::LeftOver { total, is_last, name } => {
                let word = |at: usize| name[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                frame(76, [u64::from(total), u64::from(is_last), word(0), word(8)])
            }
            Self::Kills => frame(74, []),
            Self::Gone => frame(75, []),
            Self::InForce(deadline) => frame(77, instant_words(deadline)),
        }
    }

    fn from_frame(frame: &Frame) -> Option<Self> {
        let [first, second, third, fourth] = frame.words;
        Some(match frame.kind {
            64 => Self::Ready,
            65 => Self::Refused(NamespaceRefusal { step: at(&STEPS, first)?, errno: errno(second)? }),
            66 => Self::NotStarted(errno(first)?),
            67 => Self::NotExecuted(errno(first)?),
            68 => Self::Executed,
            69 => Self::Ended(ended(first, second)?),
            70 => Self::HelperNotStarted(at(&HELPERS, first)?, errno(second)?),
            71 => Self::HelperEnded(at(&HELPERS, third)?, ended(first, second)?),
            72 => Self::NotPassedOn(signal(first)?, errno(second)?),
            73 => Self::OutOfReach(frame.words.map(pid)),
            74 => Self::Kills,
            75 => Self::Gone,
            76 => {
                let mut name = [0; NAME];
                let bytes = [third, fourth].map(u64::to_le_bytes);
                name.iter_mut().zip(bytes.as_flattened()).for_each(|(place, byte)| *place = *byte);
                Self::LeftOver { total: u32::try_from(first).ok()?, is_last: second != 0, name }
            }
            77 => Self::InForce(instant(frame.words)),
            _ => return None,
        })
    }
}

/// Returns whether `bytes` are a message of any direction. For tests of damaged input.
#[cfg(feature = "simulation")]
pub fn decodes(bytes: &[u8]) -> bool {
    let Some(frame) = bytes.try_into().ok().and_then(Frame::from_bytes) else { return false };
    let is_of_supervisor = ToGuardian::from_frame(&frame).is_some() | ToKeeper::from_frame(&frame).is_some();
    let is_of_keeper = FromKeeper::from_frame(&frame).is_some() | FromShim::from_frame(&frame).is_some();
    let is_first = ToSupervisor::from_frame(&frame).is_some() | ToShim::from_frame(&frame).is_some();
    is_of_supervisor | is_of_keeper | is_first
}

fn errno_word(errno: Errno) -> u64 {
    u64::from(errno.raw_os_error().unsigned_abs())
}

fn errno(word: u64) -> Option<Errno> {
    // The kernel has no other numbers, and rustix panics at them.
    let number = i32::try_from(word).ok().filter(|number| (1..4096).contains(number))?;
    Some(Errno::from_raw_os_error(number))
}

const LEVELS: [Level; 3] = [Level::Guardian, Level::ControlGroup, Level::PidNamespace];
const SOURCES: [SignalSource; 3] = [SignalSource::Process, SignalSource::Terminal, SignalSource::Shell];
const HELPERS: [Helper; 2] = [Helper::PreStop, Helper::Check];
const STEPS: [SetupStep; 6] = [
    SetupStep::Link,
    SetupStep::Process,
    SetupStep::Namespace,
    SetupStep::UserNamespace,
    SetupStep::Mapping,
    SetupStep::Proc,
];

fn place<T: PartialEq>(all: &[T], one: T) -> u64 {
    all.iter().zip(0..).find_map(|(other, place)| (*other == one).then_some(place)).unwrap_or(u64::MAX)
}

fn at<T: Copy>(all: &[T], place: u64) -> Option<T> {
    all.get(usize::try_from(place).ok()?).copied()
}

const NONE: u64 = 0;
const SOME: u64 = 1;
const EXITED: u64 = 0;
const SIGNALLED: u64 = 1;

fn instant_words(instant: Option<Instant>) -> [u64; 2] {
    instant.map_or([NONE, 0], |at| [SOME, at.as_nanos()])
}

fn instant([tag, nanos, ..]: [u64; 4]) -> Option<Instant> {
    (tag == SOME).then(|| Instant::from_nanos(nanos))
}

fn optional_pid_word(pid: Option<Pid>) -> u64 {
    pid.map_or(NONE, pid_word)
}

fn pid_word(pid: Pid) -> u64 {
    u64::from(pid.as_raw_pid().unsigned_abs())
}

fn pid(word: u64) -> Option<Pid> {
    Pid::from_raw(i32::try_from(word).ok()?)
}

fn signal_word(signal: Signal) -> u64 {
    u64::from(signal.as_raw().unsigned_abs())
}

fn signal(word: u64) -> Option<Signal> {
    signal_of(i32::try_from(word).ok()?)
}

fn ended_words(ended: ProcessEnd) -> [u64; 2] {
    match ended {
        ProcessEnd::Exited(status) => [EXITED, u64::from(status)],
        ProcessEnd::Signalled(number) => [SIGNALLED, u64::from(number.unsigned_abs())],
    }
}

fn ended(tag: u64, number: u64) -> Option<ProcessEnd> {
    match tag {
        EXITED => Some(ProcessEnd::Exited(u8::try_from(number).ok()?)),
        SIGNALLED => Some(ProcessEnd::Signalled(i32::try_from(number).ok()?)),
        _ => None,
    }
}

impl Message for ToShim {
    fn to_frame(&self) -> Frame {
        frame(32, [pid_word(self.parent)])
    }

    fn from_frame(frame: &Frame) -> Option<Self> {
        (frame.kind == 32).then_some(())?;
        Some(Self { parent: pid(frame.words[0])? })
    }
}

impl Message for FromShim {
    fn to_frame(&self) -> Frame {
        frame(33, [u64::from(self.errno.unsigned_abs())])
    }

    fn from_frame(frame: &Frame) -> Option<Self> {
        (frame.kind == 33).then_some(())?;
        Some(Self { errno: errno(frame.words[0])?.raw_os_error() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survive<M: Message + PartialEq + std::fmt::Debug, Other: Message>(messages: &[M]) {
        for message in messages {
            let frame = message.to_frame();
            assert_eq!(M::from_frame(&frame).as_ref(), Some(message));
            assert!(Other::from_frame(&frame).is_none(), "{message:?}");
        }
    }

    #[test]
    fn every_message_survives_its_frame() {
        let pid = rustix::process::getpid();
        survive::<_, ToGuardian>(&[
            ToSupervisor::Begin { terminal_group: None, level: Level::Guardian },
            ToSupervisor::Begin { terminal_group: Some(pid), level: Level::PidNamespace },
            ToSupervisor::Signalled { signal: Signal::TERM, source: SignalSource::Process },
            ToSupervisor::Signalled { signal: Signal::INT, source: SignalSource::Terminal },
            ToSupervisor::Signalled { signal: Signal::HUP, source: SignalSource::Shell },
            ToSupervisor::InForce(None),
            ToSupervisor::InForce(Some(Instant::ORIGIN)),
        ]);
        survive::<_, ToSupervisor>(&[
            ToGuardian::Deadline(Some(Instant::NEVER)),
            ToGuardian::Deadline(None),
            ToGuardian::Finished,
            ToGuardian::Note(DeathNotice { kind: 0, words: [0; 4] }),
            ToGuardian::Note(DeathNotice { kind: 127, words: [1, 2, 3, u64::MAX] }),
        ]);
        survive::<_, FromKeeper>(&[
            ToKeeper::Begin {
                group: Some(pid),
                deadline: None,
                before_the_deadline: Duration::from_millis(100),
            },
            ToKeeper::Begin {
                group: None,
                deadline: Some(Instant::NEVER),
                before_the_deadline: Duration::ZERO,
            },
            ToKeeper::TryOut,
            ToKeeper::Signal(ForwardedSignal { signal: Signal::QUIT, delivered: Some(Instant::ORIGIN) }),
            ToKeeper::Helper(Helper::PreStop),
            ToKeeper::Helper(Helper::Check),
            ToKeeper::KillHelper(Helper::Check),
            ToKeeper::Deadline(Some(Instant::ORIGIN)),
            ToKeeper::Deadline(None),
            ToKeeper::TellRest,
            ToKeeper::Kill,
        ]);
        let refused = STEPS.map(|step| FromKeeper::Refused(NamespaceRefusal { step, errno: Errno::PERM }));
        survive::<_, ToKeeper>(&refused);
        survive::<_, ToKeeper>(&[
            FromKeeper::Ready,
            FromKeeper::NotStarted(Errno::AGAIN),
            FromKeeper::NotExecuted(Errno::NOENT),
            FromKeeper::Executed,
            FromKeeper::Ended(ProcessEnd::Exited(255)),
            FromKeeper::Ended(ProcessEnd::Signalled(9)),
            FromKeeper::HelperNotStarted(Helper::Check, Errno::MFILE),
            FromKeeper::HelperEnded(Helper::PreStop, ProcessEnd::Exited(1)),
            FromKeeper::HelperEnded(Helper::Check, ProcessEnd::Signalled(9)),
            FromKeeper::NotPassedOn(Signal::TERM, Errno::PERM),
            FromKeeper::OutOfReach([Some(pid), None, None, None]),
            FromKeeper::LeftOver { total: 7, is_last: true, name: *b"a fifteen bytes\0" },
            FromKeeper::InForce(Some(Instant::NEVER)),
            FromKeeper::InForce(None),
            FromKeeper::Kills,
            FromKeeper::Gone,
        ]);
        survive::<_, FromShim>(&[ToShim { parent: pid }]);
        survive::<_, ToShim>(&[FromShim { errno: 2 }]);
    }
}
