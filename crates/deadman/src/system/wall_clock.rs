//! [`WallClockState`]: for diagnosis. It is in this crate because it needs `unsafe`.

use std::{io, mem::MaybeUninit, time::Duration};

/// The kernel's information about the synchronisation of the wall clock (adjtimex(2)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WallClockState {
    /// Whether a service (NTP, PTP) synchronises it. The host of a virtual machine may do so without
    /// informing the kernel.
    pub in_step: bool,
    /// Its largest error, if it is synchronised.
    pub max_error: Duration,
}

impl WallClockState {
    /// Reads the state. Needs no privilege.
    ///
    /// # Errors
    /// Fails if a sandbox forbids the call.
    pub fn read() -> io::Result<Self> {
        // SAFETY: a C struct of numbers, for which zero is a valid value. Without modes the call only reads.
        let mut state: libc::timex = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: the pointer points to a live value of the type that the call writes.
        let outcome = unsafe { libc::adjtimex(&mut state) };
        if outcome < 0 {
            return Err(io::Error::last_os_error());
        }
        let in_step = outcome != libc::TIME_ERROR && state.status & libc::STA_UNSYNC == 0;
        let max_error = Duration::from_micros(u64::try_from(state.maxerror).unwrap_or_default());
        Ok(Self { in_step, max_error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_is_readable_or_forbidden() {
        match WallClockState::read() {
            Ok(state) => assert!(!state.in_step || state.max_error < Duration::from_secs(16), "{state:?}"),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}"),
        }
    }
}
