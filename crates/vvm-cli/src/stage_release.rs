//! `vvm stage-release`: releases the record of a dead host for its guardian, and ends with the guardian.

use crate::{
    announce::{self, is_json, say, say_text, write_event},
    args::{CandidateArgs, RunArgs},
    contained::conclude,
    exit,
    inspection::inspect,
    notes::Leading,
};
use ielections::WriteError;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use serde_json::Map;
use std::{env, fmt, num::NonZeroU32, process::ExitCode};
use vvm_containment::StageError;
use vvm_host::operate::{InspectError, LeftBehind, Purpose};
use vvm_storage::SlotNumber;

/// The variable with the order.
pub(crate) const VARIABLE: &str = "VVM_STAGE_RELEASE";

/// What a guardian orders.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Order {
    /// The guardian.
    pub(crate) from: Pid,
    /// The leadership.
    pub(crate) leading: Leading,
    /// How it ended, for the history.
    pub(crate) how: String,
}

/// As the variable has it: numbers, then words.
impl fmt::Display for Order {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [slot, epoch, low, high] = self.leading.words();
        write!(out, "{} {slot} {epoch} {low} {high} {}", self.from.as_raw_nonzero(), self.how)
    }
}

impl Order {
    fn read(text: &str) -> Option<Self> {
        let mut words = text.splitn(6, ' ');
        let from = Pid::from_raw(words.next()?.parse().ok()?)?;
        let mut numbers = [0; 4];
        for number in &mut numbers {
            *number = words.next()?.parse().ok()?;
        }
        Some(Self { from, leading: Leading::of_words(numbers)?, how: words.next()?.to_owned() })
    }
}

/// Why nothing was released.
#[derive(Debug, thiserror::Error)]
enum ReleaseError {
    #[error(transparent)]
    Storage(#[from] InspectError),
    #[error(transparent)]
    Refused(#[from] WriteError),
}

/// Releases the record that [`VARIABLE`] names.
pub(crate) fn main(args: &RunArgs) -> ExitCode {
    let Some(order) = env::var(VARIABLE).ok().as_deref().and_then(Order::read) else {
        return conclude(&StageError::NotAStage);
    };
    announce::start_log(args.candidate.log_format);
    let dies_with_guardian = set_parent_process_death_signal(Some(Signal::KILL));
    // The kernel does not report a guardian that died before the line above.
    if dies_with_guardian.is_err() || getppid() != Some(order.from) {
        return conclude(&StageError::Abandoned);
    }
    match release(&args.candidate, order.leading, ("guardian", &order.how)) {
        true => ExitCode::SUCCESS,
        false => exit::STORAGE.into(),
    }
}

/// Releases the record of a dead leader for the process `by`, and reports `how` to the history and the log.
/// Returns false if the record may stand.
pub(crate) fn release(candidate: &CandidateArgs, leading: Leading, (by, how): (&str, &str)) -> bool {
    let name = candidate.name.as_str();
    match try_to_release(candidate, leading, how) {
        Ok(true) => report(name, leading, (by, how)),
        // The host had released it, its claim was not applied, or another process leads.
        Ok(false) => {}
        Err(refusal) => {
            say!("{name}: the record is not released and expires by its TTL: {refusal}");
            return false;
        }
    }
    true
}

fn try_to_release(candidate: &CandidateArgs, leading: Leading, how: &str) -> Result<bool, ReleaseError> {
    let Leading { slot, epoch, incarnation } = leading;
    let Some(number) = NonZeroU32::new(slot) else { return Ok(false) };
    let left = LeftBehind { slot: SlotNumber::new(number), epoch, incarnation, ttl: candidate.ttl };
    inspect((&candidate.storage, &candidate.name), Purpose::Ask, async |storage| {
        let released = left.release(storage, how).await?;
        storage.wake_candidates(candidate.local_dir.as_ref());
        Ok(released)
    })
}

fn report(name: &str, leading: Leading, (by, how): (&str, &str)) {
    let Leading { slot, epoch, .. } = leading;
    say_text!("{name} slot {slot}: {how}; its epoch was {epoch}");
    if is_json() {
        let members = [
            ("name".into(), name.into()),
            ("slot".into(), slot.into()),
            ("epoch".into(), epoch.get().into()),
            ("by".into(), by.into()),
            ("reason".into(), how.into()),
        ];
        write_event("info", "released", Map::from_iter(members));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ielections::{Epoch, Incarnation};
    use rustix::process::getpid;

    #[test]
    fn order_is_read_as_it_was_written() {
        let incarnation = Incarnation::from_bytes(std::array::from_fn(|place| 0xf0 | place as u8));
        let leading = Leading { slot: 4, epoch: Epoch::new(1 << 60).unwrap(), incarnation };
        let order = Order { from: getpid(), leading, how: "released by the guardian".into() };
        assert_eq!(Order::read(&order.to_string()), Some(order));
        assert_eq!(Order::read("1 2 3"), None);
    }
}
