//! The processes that a command has left behind: they are named, and told to end.

use super::message::{FromKeeper, NAME};
use crate::processes::{Family, Member};
use rustix::process::Signal;
use std::fs;

/// How many are named.
const NAMED: usize = 8;

/// Sends TERM to all descendants. Calls `name` for the first of those that live, and with their number.
pub(super) fn tell_to_end(family: Family, name: impl Fn(&FromKeeper)) {
    let rest = family.descendants();
    let names = rest.iter().filter_map(name_of).collect::<Vec<_>>();
    let total = u32::try_from(names.len()).unwrap_or(u32::MAX);
    for (place, one) in names.iter().take(NAMED).enumerate() {
        let is_last = place + 1 == names.len().min(NAMED);
        name(&FromKeeper::LeftOver { total, is_last, name: *one });
    }
    for member in rest {
        for signal in [Signal::TERM, Signal::CONT] {
            // Gone, or out of reach: the kill reports that.
            let _ = family.signal(member, signal);
        }
    }
}

/// Returns the name of a process that has not ended.
fn name_of(member: &Member) -> Option<[u8; NAME]> {
    let stat = fs::read(format!("/proc/{}/stat", member.pid)).ok()?;
    let opens = stat.iter().position(|byte| *byte == b'(')? + 1;
    let closes = stat.iter().rposition(|byte| *byte == b')')?;
    let state = *stat.get(closes + 2)?;
    let mut name = [0; NAME];
    name.iter_mut().zip(stat.get(opens..closes)?).for_each(|(place, byte)| *place = *byte);
    (!matches!(state, b'Z' | b'X')).then_some(name)
}
