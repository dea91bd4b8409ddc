//! What the host and those who keep a PID namespace for its worker say to each other.

use super::{Frame, Message, frame, signal, signal_word};
use crate::{
    namespace::refusal::{Refusal, Step},
    processes::Ended,
    worker::{aide::Aide, supervise::Passed},
};
use rustix::io::Errno;

/// The host to process 1 of the namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ToInit {
    /// The first message: start the worker. With it comes the end of the link that is for its shim.
    Begin {
        /// The worker stays in the process group that process 1 was started in.
        shares_group: bool,
    },
    /// The first message: say whether it could be done.
    TryOut,
    /// A signal for the worker.
    Signal(Passed),
    /// Start this one. With it comes the end of the link that is for its shim.
    Aide(Aide),
    /// Kill it.
    KillAide(Aide),
}

/// Process 1 of the namespace to the host; or, before there is one, whoever makes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FromInit {
    /// It could be done.
    Ready,
    /// There is no namespace; the last message.
    Refused(Refusal),
    /// The worker has ended. What it left behind may go on.
    Ended(Ended),
    /// This one has ended, too, or was never started.
    AideEnded(Aide, Ended),
}

impl Message for ToInit {
    fn to_frame(&self) -> Frame {
        match *self {
            Self::Begin { shares_group } => frame(48, [u64::from(shares_group)]),
            Self::TryOut => frame(49, []),
            Self::Signal(Passed { signal, delivered }) => {
                frame(50, [signal_word(signal), u64::from(delivered)])
            }
            Self::Aide(aide) => frame(51, [aide_word(aide)]),
            Self::KillAide(aide) => frame(52, [aide_word(aide)]),
        }
    }

    fn from_frame(frame: &Frame) -> Option<Self> {
        let [first, second, ..] = frame.words;
        Some(match frame.kind {
            48 => Self::Begin { shares_group: first != 0 },
            49 => Self::TryOut,
            50 => Self::Signal(Passed { signal: signal(first)?, delivered: second != 0 }),
            51 => Self::Aide(aide(first)?),
            52 => Self::KillAide(aide(first)?),
            _ => return None,
        })
    }
}

impl Message for FromInit {
    fn to_frame(&self) -> Frame {
        match *self {
            Self::Ready => frame(64, []),
            Self::Refused(Refusal { step, errno }) => {
                frame(65, [step_word(step), u64::from(errno.raw_os_error().unsigned_abs())])
            }
            Self::Ended(Ended::Exited(status)) => frame(66, [u64::from(status)]),
            Self::Ended(Ended::Signalled(number)) => frame(67, [u64::from(number.unsigned_abs())]),
            Self::AideEnded(aide, Ended::Exited(status)) => frame(68, [u64::from(status), aide_word(aide)]),
            Self::AideEnded(aide, Ended::Signalled(number)) => {
                frame(69, [u64::from(number.unsigned_abs()), aide_word(aide)])
            }
        }
    }

    fn from_frame(frame: &Frame) -> Option<Self> {
        let [first, second, ..] = frame.words;
        Some(match frame.kind {
            64 => Self::Ready,
            65 => {
                let errno = Errno::from_raw_os_error(i32::try_from(second).ok()?);
                Self::Refused(Refusal { step: step(first)?, errno })
            }
            66 => Self::Ended(Ended::Exited(u8::try_from(first).ok()?)),
            67 => Self::Ended(Ended::Signalled(i32::try_from(first).ok()?)),
            68 => Self::AideEnded(aide(second)?, Ended::Exited(u8::try_from(first).ok()?)),
            69 => Self::AideEnded(aide(second)?, Ended::Signalled(i32::try_from(first).ok()?)),
            _ => return None,
        })
    }
}

fn aide_word(aide: Aide) -> u64 {
    match aide {
        Aide::PreStop => 0,
        Aide::Check => 1,
    }
}

fn aide(word: u64) -> Option<Aide> {
    match word {
        0 => Some(Aide::PreStop),
        1 => Some(Aide::Check),
        _ => None,
    }
}

const STEPS: [Step; 6] =
    [Step::Link, Step::Process, Step::Namespace, Step::UserNamespace, Step::Mapping, Step::Proc];

fn step_word(step: Step) -> u64 {
    STEPS.into_iter().zip(0..).find_map(|(one, word)| (one == step).then_some(word)).unwrap_or(u64::MAX)
}

fn step(word: u64) -> Option<Step> {
    STEPS.get(usize::try_from(word).ok()?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::Signal;

    #[test]
    fn every_message_survives_its_frame() {
        let passed = Passed { signal: Signal::QUIT, delivered: true };
        let to_init = [
            ToInit::Begin { shares_group: true },
            ToInit::Begin { shares_group: false },
            ToInit::TryOut,
            ToInit::Signal(passed),
            ToInit::Aide(Aide::PreStop),
            ToInit::Aide(Aide::Check),
            ToInit::KillAide(Aide::Check),
        ];
        for message in to_init {
            assert_eq!(ToInit::from_frame(&message.to_frame()), Some(message));
            assert_eq!(FromInit::from_frame(&message.to_frame()), None);
        }
        let refused = STEPS.map(|step| FromInit::Refused(Refusal { step, errno: Errno::PERM }));
        let ended = [Ended::Exited(255), Ended::Signalled(9)].map(FromInit::Ended);
        let aided = [(Aide::PreStop, Ended::Exited(1)), (Aide::Check, Ended::Signalled(9))];
        let aided = aided.map(|(aide, ended)| FromInit::AideEnded(aide, ended));
        for message in [FromInit::Ready].into_iter().chain(refused).chain(ended).chain(aided) {
            assert_eq!(FromInit::from_frame(&message.to_frame()), Some(message));
            assert_eq!(ToInit::from_frame(&message.to_frame()), None);
        }
    }
}
