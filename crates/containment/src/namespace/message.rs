//! What the supervisor and those who keep a PID namespace for its command say to each other.

use super::refusal::{Refusal, Step};
use crate::{
    auxiliary::Helper,
    link::{Frame, Message, frame},
    processes::Ended,
    signals::Passed,
    words::{ended, ended_words, signal, signal_word},
};
use rustix::{io::Errno, process::Signal};

/// The supervisor to process 1 of the namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ToInit {
    /// The first message: start the command. With it comes the end of the link that is for its shim.
    Begin {
        /// The command stays in the process group that process 1 was started in.
        shares_group: bool,
    },
    /// The first message: say whether it could be done.
    TryOut,
    /// A signal for the command.
    Signal(Passed),
    /// Start this one. With it comes the end of the link that is for its shim.
    Helper(Helper),
    /// Kill it.
    KillHelper(Helper),
}

/// Process 1 of the namespace to the supervisor; or, before there is one, the process that makes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FromInit {
    /// It could be done.
    Ready,
    /// There is no namespace; the last message.
    Refused(Refusal),
    /// The command has ended. What it left behind may go on.
    Ended(Ended),
    /// This one has ended, too, or was never started.
    HelperEnded(Helper, Ended),
    /// This signal could not be given to the command.
    NotPassedOn(Signal, Errno),
}

impl Message for ToInit {
    fn to_frame(&self) -> Frame {
        match *self {
            Self::Begin { shares_group } => frame(48, [u64::from(shares_group)]),
            Self::TryOut => frame(49, []),
            Self::Signal(Passed { signal, delivered }) => {
                frame(50, [signal_word(signal), u64::from(delivered)])
            }
            Self::Helper(helper) => frame(51, [helper_word(helper)]),
            Self::KillHelper(helper) => frame(52, [helper_word(helper)]),
        }
    }

    fn from_frame(frame: &Frame) -> Option<Self> {
        let [first, second, ..] = frame.words;
        Some(match frame.kind {
            48 => Self::Begin { shares_group: first != 0 },
            49 => Self::TryOut,
            50 => Self::Signal(Passed { signal: signal(first)?, delivered: second != 0 }),
            51 => Self::Helper(helper(first)?),
            52 => Self::KillHelper(helper(first)?),
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
            Self::Ended(how) => frame(66, ended_words(how)),
            Self::HelperEnded(helper, how) => {
                let [tag, number] = ended_words(how);
                frame(67, [tag, number, helper_word(helper)])
            }
            Self::NotPassedOn(signal, errno) => {
                frame(68, [signal_word(signal), u64::from(errno.raw_os_error().unsigned_abs())])
            }
        }
    }

    fn from_frame(frame: &Frame) -> Option<Self> {
        let [first, second, third, _] = frame.words;
        Some(match frame.kind {
            64 => Self::Ready,
            65 => {
                let errno = Errno::from_raw_os_error(i32::try_from(second).ok()?);
                Self::Refused(Refusal { step: step(first)?, errno })
            }
            66 => Self::Ended(ended(first, second)?),
            67 => Self::HelperEnded(helper(third)?, ended(first, second)?),
            68 => Self::NotPassedOn(signal(first)?, Errno::from_raw_os_error(i32::try_from(second).ok()?)),
            _ => return None,
        })
    }
}

fn helper_word(helper: Helper) -> u64 {
    match helper {
        Helper::PreStop => 0,
        Helper::Check => 1,
    }
}

fn helper(word: u64) -> Option<Helper> {
    match word {
        0 => Some(Helper::PreStop),
        1 => Some(Helper::Check),
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

    #[test]
    fn every_message_survives_its_frame() {
        let passed = Passed { signal: Signal::QUIT, delivered: true };
        let to_init = [
            ToInit::Begin { shares_group: true },
            ToInit::Begin { shares_group: false },
            ToInit::TryOut,
            ToInit::Signal(passed),
            ToInit::Helper(Helper::PreStop),
            ToInit::Helper(Helper::Check),
            ToInit::KillHelper(Helper::Check),
        ];
        for message in to_init {
            assert_eq!(ToInit::from_frame(&message.to_frame()), Some(message));
            assert_eq!(FromInit::from_frame(&message.to_frame()), None);
        }
        let refused = STEPS.map(|step| FromInit::Refused(Refusal { step, errno: Errno::PERM }));
        let ended = [Ended::Exited(255), Ended::Signalled(9)].map(FromInit::Ended);
        let helped = [(Helper::PreStop, Ended::Exited(1)), (Helper::Check, Ended::Signalled(9))];
        let helped = helped.map(|(helper, ended)| FromInit::HelperEnded(helper, ended));
        let unsaid = [FromInit::Ready, FromInit::NotPassedOn(Signal::TERM, Errno::PERM)];
        for message in unsaid.into_iter().chain(refused).chain(ended).chain(helped) {
            assert_eq!(FromInit::from_frame(&message.to_frame()), Some(message));
            assert_eq!(ToInit::from_frame(&message.to_frame()), None);
        }
    }
}
