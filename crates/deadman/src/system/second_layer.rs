//! [`SecondLayer`]: the kernel timer, or a second thread in its place.

#[cfg(target_os = "linux")]
use super::kernel_timer::{self, KernelTimer};
use super::{ThreadsAlone, deadline_thread::DeadlineThread, exit};
use crate::{ArmError, Subject};
use std::io;
use vvm_clock::Instant;

#[derive(Debug)]
pub(super) enum SecondLayer {
    #[cfg(target_os = "linux")]
    Kernel(KernelTimer),
    /// Writes no message, so a full standard error can't block it.
    SilentThread(DeadlineThread),
}

impl SecondLayer {
    #[cfg(target_os = "linux")]
    pub(super) fn start(threads_alone: ThreadsAlone) -> Result<Self, ArmError> {
        if threads_alone.applies(kernel_timer::is_init())? {
            return Self::silent_thread();
        }
        Ok(Self::Kernel(KernelTimer::new().map_err(ArmError::Kernel)?))
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn start(_threads_alone: ThreadsAlone) -> Result<Self, ArmError> {
        Self::silent_thread()
    }

    fn silent_thread() -> Result<Self, ArmError> {
        let thread = DeadlineThread::start("deadman-silent", |_, _| exit::now()).map_err(ArmError::Kernel)?;
        Ok(Self::SilentThread(thread))
    }

    /// Replaces the deadline.
    ///
    /// # Errors
    /// The kernel's error. The previous deadline is then in force.
    pub(super) fn set(&self, deadline: Option<(Instant, &Subject)>) -> io::Result<()> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Kernel(timer) => timer.set(deadline.map(|(at, _)| at)),
            Self::SilentThread(thread) => thread.set(deadline, || Ok(())),
        }
    }
}

#[cfg(target_os = "linux")]
impl ThreadsAlone {
    fn applies(self, is_init: bool) -> Result<bool, ArmError> {
        match self {
            Self::Never if is_init => Err(ArmError::UnkillableInit),
            Self::Never => Ok(false),
            Self::AsInit => Ok(is_init),
            Self::Always => Ok(true),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn process_1_is_refused_unless_threads_alone_are_accepted() {
        assert!(matches!(ThreadsAlone::Never.applies(true), Err(ArmError::UnkillableInit)));
        assert!(!ThreadsAlone::Never.applies(false).unwrap());
        assert!(ThreadsAlone::AsInit.applies(true).unwrap());
        assert!(!ThreadsAlone::AsInit.applies(false).unwrap());
        assert!(ThreadsAlone::Always.applies(false).unwrap());
    }
}
