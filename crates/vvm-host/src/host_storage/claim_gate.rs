//! [`ClaimGate`]: refuses claims while the name is paused, and while another candidate has the first chance.
//!
//! It makes no call: it decides by the last scan, which may be stale. So the gate only keeps candidates from
//! claiming and releasing slots in vain. `requests::may_work` keeps work from starting in a pause.

use ielections::{Epoch, Holder, WriteError};
use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};
use vvm_clock::{Clock, Instant};
use vvm_storage::{Requests, SlotNumber, Stage};

/// Decides whether this candidate may send a claim.
pub(crate) struct ClaimGate {
    holder: Holder,
    clock: Arc<dyn Clock>,
    deferral: Mutex<Deferral>,
}

/// The leadership that other candidates may follow first.
#[derive(Debug, Default)]
struct Deferral {
    /// The leadership that this host gave up, and how long others have the first chance.
    given_up: Option<(SlotNumber, Epoch, Duration)>,
    /// The leadership after which claims are refused, and when the first claim was refused. The time does not
    /// count from the request, because a command may need long to stop.
    since: Option<(SlotNumber, Epoch, Instant)>,
}

impl ClaimGate {
    pub(super) fn new(holder: Holder, clock: Arc<dyn Clock>) -> Self {
        Self { holder, clock, deferral: Mutex::default() }
    }

    /// Lets other candidates claim `slot` first, which this host led under `epoch`: for `first_chance`,
    /// counted from this host's first claim that is refused.
    pub(crate) fn let_others_first(&self, slot: SlotNumber, epoch: Epoch, first_chance: Duration) {
        self.deferral.lock().given_up = Some((slot, epoch, first_chance));
    }

    /// Decides about a claim on `slot`, which was last led under `last`.
    ///
    /// # Errors
    /// `NotApplied` with the reason. The campaign tries again after a pause.
    pub(super) fn may_claim(
        &self,
        seen: &Requests,
        slot: SlotNumber,
        last: Option<Epoch>,
    ) -> Result<(), WriteError> {
        if let Some(pause) = &seen.pause {
            return Err(WriteError::NotApplied(format!("paused by {}", pause.by()).into()));
        }
        let Some(last) = last else { return Ok(()) };
        let mut deferral = self.deferral.lock();
        let given_up = deferral.given_up.filter(|(of, epoch, _)| (*of, *epoch) == (slot, last));
        let request = seen.step_down.as_ref().filter(|request| {
            let is_on = matches!(request.stage, Stage::Accepted | Stage::Begun);
            is_on
                && request.is_about(slot, Some(last))
                && request.to.as_ref().is_some_and(|to| *to != self.holder)
        });
        let first_chance = given_up.map(|(_, _, first_chance)| first_chance);
        let Some(first_chance) = first_chance.or(request.map(|request| request.first_chance())) else {
            return Ok(());
        };
        let now = self.clock.now();
        let since = deferral.since.filter(|(of, epoch, _)| (*of, *epoch) == (slot, last));
        let (_, _, since) = *deferral.since.insert(since.unwrap_or((slot, last, now)));
        if now < since.after(first_chance) {
            let first = match request.and_then(|request| request.to.as_ref()) {
                Some(to) => format!("{to} has the first chance"),
                None => "other candidates have the first chance".into(),
            };
            return Err(WriteError::NotApplied(first.into()));
        }
        Ok(())
    }
}
