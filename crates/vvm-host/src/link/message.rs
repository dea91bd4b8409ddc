//! What the stages say to each other.

pub(crate) mod namespace;
mod stands;

pub(crate) use stands::Stands;

use super::frame::Frame;
use crate::containment::Level;
use ielections::{Epoch, Incarnation};
use rustix::process::{Pid, Signal};
use vvm_clock::Instant;

/// Something that fits a frame.
pub(crate) trait Message: Sized {
    fn to_frame(&self) -> Frame;
    /// `None` for what this version does not know.
    fn from_frame(frame: &Frame) -> Option<Self>;
}

/// The guardian to the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ToHost {
    /// The first message. With it come the worker's standard input, a descriptor of the guardian's process, and the folder
    /// of the worker's control group, if it has one.
    Begin {
        guardian: Pid,
        /// The process group that the worker shall share, so that the terminal treats both as one job.
        terminal_group: Option<Pid>,
        /// What else than guardian and host shall hold the worker's processes.
        level: Level,
    },
    /// A signal came. `delivered`: a terminal made it, so the worker has it already.
    Signalled { signal: Signal, delivered: bool },
    /// The guardian's own timer now stands at this deadline.
    InForce(Option<Instant>),
}

/// The host to the guardian.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ToGuardian {
    /// The earliest kill deadline changed.
    Deadline(Option<Instant>),
    /// A leadership began: what the guardian reports if the host can't any more.
    Leading { slot: u32, epoch: Epoch, incarnation: Incarnation },
    /// What the host does now, for a service manager.
    Stands(Stands),
    /// The last message: how `vvm` is to end.
    Farewell(Farewell),
}

/// How `vvm` is to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Farewell {
    /// With this exit status.
    Exit(u8),
    /// Of this signal, as the worker did.
    DieOf(Signal),
}

/// The host to the shim of a worker. With it comes the worker's standard input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ToShim {
    /// Whose child it has to be.
    pub(crate) parent: Pid,
}

/// The shim of a worker to the host: the command could not be executed, for this reason (an `errno`).
///
/// When it could, the link ends without a word: the shim's end closes on exec.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FromShim {
    pub(crate) errno: i32,
}

const NONE: u64 = 0;
const SOME: u64 = 1;

fn frame<const N: usize>(kind: u8, content: [u64; N]) -> Frame {
    let mut words = [0; 4];
    for (word, value) in words.iter_mut().zip(content) {
        *word = value;
    }
    Frame { kind, words }
}

fn instant_words(instant: Option<Instant>) -> [u64; 2] {
    instant.map_or([NONE, 0], |at| [SOME, at.as_nanos()])
}

fn instant([tag, nanos, ..]: [u64; 4]) -> Option<Instant> {
    (tag == SOME).then(|| Instant::from_nanos(nanos))
}

fn pid_word(pid: Pid) -> u64 {
    u64::from(pid.as_raw_pid().unsigned_abs())
}

fn pid(word: u64) -> Option<Pid> {
    Pid::from_raw(i32::try_from(word).ok()?)
}

const LEVELS: [Level; 3] = [Level::Guardian, Level::ControlGroup, Level::PidNamespace];

fn level_word(level: Level) -> u64 {
    LEVELS.into_iter().zip(0..).find_map(|(one, word)| (one == level).then_some(word)).unwrap_or(u64::MAX)
}

fn level(word: u64) -> Option<Level> {
    LEVELS.get(usize::try_from(word).ok()?).copied()
}

fn signal_word(signal: Signal) -> u64 {
    u64::from(signal.as_raw().unsigned_abs())
}

fn signal(word: u64) -> Option<Signal> {
    Signal::from_named_raw(i32::try_from(word).ok()?)
}

impl Message for ToHost {
    fn to_frame(&self) -> Frame {
        match *self {
            Self::Begin { guardian, terminal_group, level } => {
                let group = terminal_group.map_or(NONE, pid_word);
                frame(1, [pid_word(guardian), group, level_word(level)])
            }
            Self::Signalled { signal, delivered } => frame(2, [signal_word(signal), u64::from(delivered)]),
            Self::InForce(deadline) => frame(3, instant_words(deadline)),
        }
    }

    fn from_frame(frame: &Frame) -> Option<Self> {
        let [first, second, third, _] = frame.words;
        Some(match frame.kind {
            1 => Self::Begin { guardian: pid(first)?, terminal_group: pid(second), level: level(third)? },
            2 => Self::Signalled { signal: signal(first)?, delivered: second != 0 },
            3 => Self::InForce(instant(frame.words)),
            _ => return None,
        })
    }
}

impl Message for ToGuardian {
    fn to_frame(&self) -> Frame {
        match *self {
            Self::Deadline(deadline) => frame(16, instant_words(deadline)),
            Self::Leading { slot, epoch, incarnation } => {
                let number = u128::from_le_bytes(*incarnation.as_bytes());
                frame(17, [u64::from(slot), epoch.get(), number as u64, (number >> 64) as u64])
            }
            Self::Farewell(Farewell::Exit(status)) => frame(18, [u64::from(status)]),
            Self::Farewell(Farewell::DieOf(signal)) => frame(19, [signal_word(signal)]),
            Self::Stands(stands) => stands.to_frame(),
        }
    }

    fn from_frame(frame: &Frame) -> Option<Self> {
        let [first, second, third, fourth] = frame.words;
        Some(match frame.kind {
            16 => Self::Deadline(instant(frame.words)),
            17 => {
                let number = u128::from(third) | u128::from(fourth) << 64;
                Self::Leading {
                    slot: u32::try_from(first).ok()?,
                    epoch: Epoch::new(second).ok()?,
                    incarnation: Incarnation::from_bytes(number.to_le_bytes()),
                }
            }
            18 => Self::Farewell(Farewell::Exit(u8::try_from(first).ok()?)),
            19 => Self::Farewell(Farewell::DieOf(signal(first)?)),
            _ => return Stands::from_frame(frame).map(Self::Stands),
        })
    }
}

impl Message for ToShim {
    fn to_frame(&self) -> Frame {
        frame(32, [pid_word(self.parent)])
    }

    fn from_frame(frame: &Frame) -> Option<Self> {
        (frame.kind == 32).then_some(Self { parent: pid(frame.words[0])? })
    }
}

impl Message for FromShim {
    fn to_frame(&self) -> Frame {
        frame(33, [u64::from(self.errno.unsigned_abs())])
    }

    fn from_frame(frame: &Frame) -> Option<Self> {
        (frame.kind == 33).then_some(Self { errno: i32::try_from(frame.words[0]).ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_survives_its_frame() {
        let pid = rustix::process::getpid();
        let incarnation = Incarnation::from_bytes(std::array::from_fn(|place| place as u8));
        let to_host = [
            ToHost::Begin { guardian: pid, terminal_group: None, level: Level::Guardian },
            ToHost::Begin { guardian: pid, terminal_group: Some(pid), level: Level::PidNamespace },
            ToHost::Signalled { signal: Signal::TERM, delivered: false },
            ToHost::Signalled { signal: Signal::INT, delivered: true },
            ToHost::InForce(None),
            ToHost::InForce(Some(Instant::ORIGIN)),
        ];
        for message in to_host {
            assert_eq!(ToHost::from_frame(&message.to_frame()), Some(message));
            assert_eq!(ToGuardian::from_frame(&message.to_frame()), None);
        }
        let to_guardian = [
            ToGuardian::Deadline(Some(Instant::NEVER)),
            ToGuardian::Deadline(None),
            ToGuardian::Leading { slot: u32::MAX, epoch: Epoch::new(Epoch::MAX).unwrap(), incarnation },
            ToGuardian::Stands(Stands::Waiting),
            ToGuardian::Stands(Stands::Leading { slot: 7, epoch: Epoch::new(17).unwrap() }),
            ToGuardian::Stands(Stands::Stopping { slot: 7, epoch: Epoch::new(17).unwrap(), for_good: true }),
            ToGuardian::Stands(Stands::Stopping { slot: 7, epoch: Epoch::new(17).unwrap(), for_good: false }),
            ToGuardian::Stands(Stands::Ended),
            ToGuardian::Stands(Stands::Idling { slot: 7, epoch: Epoch::new(17).unwrap(), restarts: true }),
            ToGuardian::Stands(Stands::Idling { slot: 7, epoch: Epoch::new(17).unwrap(), restarts: false }),
            ToGuardian::Farewell(Farewell::Exit(255)),
            ToGuardian::Farewell(Farewell::DieOf(Signal::INT)),
        ];
        for message in to_guardian {
            assert_eq!(ToGuardian::from_frame(&message.to_frame()), Some(message));
            assert_eq!(ToHost::from_frame(&message.to_frame()), None);
        }
        assert_eq!(ToShim::from_frame(&ToShim { parent: pid }.to_frame()), Some(ToShim { parent: pid }));
        assert_eq!(FromShim::from_frame(&FromShim { errno: 2 }.to_frame()), Some(FromShim { errno: 2 }));
    }
}
