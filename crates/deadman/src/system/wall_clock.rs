//! What the kernel knows of how well the wall clock is kept. No deadline depends on it: it is for who
//! examines a machine, and stands in this crate because asking takes `unsafe`.

use std::{io, mem::MaybeUninit, time::Duration};

/// How well the machine's wall clock is kept, as far as the kernel was told by who keeps it (adjtimex(2)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WallClockState {
    /// Whether somebody keeps it in step with other clocks: NTP, PTP, a radio. The host of a virtual machine
    /// that sets its clock need not have told.
    pub in_step: bool,
    /// How far off it is at most, if it is kept in step.
    pub max_error: Duration,
}

impl WallClockState {
    /// Asks the kernel. Needs no privilege.
    ///
    /// # Errors
    /// Where a sandbox forbids the call.
    pub fn read() -> io::Result<Self> {
        // SAFETY: a plain C struct of numbers, for all of which zero is a value; without modes the call
        // changes nothing.
        let mut state: libc::timex = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: the pointer is to a live value of the type that the call writes.
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

    /// What it is depends on the machine; that it can be asked for, and changes nothing, does not.
    #[test]
    fn it_can_be_asked() {
        match WallClockState::read() {
            Ok(state) => assert!(!state.in_step || state.max_error < Duration::from_secs(16), "{state:?}"),
            Err(refusal) => assert_eq!(refusal.kind(), io::ErrorKind::PermissionDenied, "{refusal}"),
        }
    }
}
