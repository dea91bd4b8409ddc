//! The messages between guardian and supervisor.

use crate::{
    level::Level,
    link::{Frame, Message, frame},
    signals::SignalSource,
    words::{instant, instant_words, optional_pid_word, pid, signal, signal_word},
};
use rustix::process::{Pid, Signal};
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

/// From the supervisor to the guardian.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ToGuardian {
    /// The earliest kill deadline changed.
    Deadline(Option<Instant>),
    /// For the guardian's caller.
    Note(Note),
    /// The supervisor has nothing left to do and ends.
    Finished,
}

/// A message from a supervisor to its guardian's caller. This crate does not interpret it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Note {
    /// The kind of the note, below 128.
    pub kind: u8,
    /// Its content.
    pub words: [u64; 4],
}

const LEVELS: [Level; 3] = [Level::Guardian, Level::ControlGroup, Level::PidNamespace];

fn level_word(level: Level) -> u64 {
    LEVELS.into_iter().zip(0..).find_map(|(one, word)| (one == level).then_some(word)).unwrap_or(u64::MAX)
}

fn level(word: u64) -> Option<Level> {
    LEVELS.get(usize::try_from(word).ok()?).copied()
}

const SOURCES: [SignalSource; 3] = [SignalSource::Process, SignalSource::Terminal, SignalSource::Shell];

fn source_word(source: SignalSource) -> u64 {
    SOURCES.into_iter().zip(0..).find_map(|(one, word)| (one == source).then_some(word)).unwrap_or(u64::MAX)
}

fn source(word: u64) -> Option<SignalSource> {
    SOURCES.get(usize::try_from(word).ok()?).copied()
}

impl Message for ToSupervisor {
    fn to_frame(&self) -> Frame {
        match *self {
            Self::Begin { terminal_group, level } => {
                frame(1, [optional_pid_word(terminal_group), level_word(level)])
            }
            Self::Signalled { signal, source } => frame(2, [signal_word(signal), source_word(source)]),
            Self::InForce(deadline) => frame(3, instant_words(deadline)),
        }
    }

    fn from_frame(frame: &Frame) -> Option<Self> {
        let [first, second, ..] = frame.words;
        Some(match frame.kind {
            1 => Self::Begin { terminal_group: pid(first), level: level(second)? },
            2 => Self::Signalled { signal: signal(first)?, source: source(second)? },
            3 => Self::InForce(instant(frame.words)),
            _ => return None,
        })
    }
}

/// Frames of this kind and above are notes.
const NOTES: u8 = 128;

impl Message for ToGuardian {
    fn to_frame(&self) -> Frame {
        match *self {
            Self::Deadline(deadline) => frame(16, instant_words(deadline)),
            Self::Finished => frame(17, []),
            Self::Note(Note { kind, words }) => Frame { kind: NOTES | kind, words },
        }
    }

    fn from_frame(frame: &Frame) -> Option<Self> {
        Some(match frame.kind {
            16 => Self::Deadline(instant(frame.words)),
            17 => Self::Finished,
            kind if kind >= NOTES => Self::Note(Note { kind: kind - NOTES, words: frame.words }),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_survives_its_frame() {
        let pid = rustix::process::getpid();
        let to_supervisor = [
            ToSupervisor::Begin { terminal_group: None, level: Level::Guardian },
            ToSupervisor::Begin { terminal_group: Some(pid), level: Level::PidNamespace },
            ToSupervisor::Signalled { signal: Signal::TERM, source: SignalSource::Process },
            ToSupervisor::Signalled { signal: Signal::INT, source: SignalSource::Terminal },
            ToSupervisor::Signalled { signal: Signal::HUP, source: SignalSource::Shell },
            ToSupervisor::InForce(None),
            ToSupervisor::InForce(Some(Instant::ORIGIN)),
        ];
        for message in to_supervisor {
            assert_eq!(ToSupervisor::from_frame(&message.to_frame()), Some(message));
            assert_eq!(ToGuardian::from_frame(&message.to_frame()), None);
        }
        let to_guardian = [
            ToGuardian::Deadline(Some(Instant::NEVER)),
            ToGuardian::Deadline(None),
            ToGuardian::Finished,
            ToGuardian::Note(Note { kind: 0, words: [0; 4] }),
            ToGuardian::Note(Note { kind: 127, words: [1, 2, 3, u64::MAX] }),
        ];
        for message in to_guardian {
            assert_eq!(ToGuardian::from_frame(&message.to_frame()), Some(message));
            assert_eq!(ToSupervisor::from_frame(&message.to_frame()), None);
        }
    }
}
