//! A [`World`] on cells: what its processes ask of them, and what is observed of their writes.

use super::{
    cells::CellWorld,
    message::{Answer, Failure, Request},
    settings::Context,
    world::World,
};
use ielections::Entry;
use std::sync::Arc;

impl World {
    pub(super) fn arrive_at_cells(
        &mut self,
        number: usize,
        request: &Request,
        keeps: bool,
        cx: &mut Context<'_>,
    ) -> Result<Answer, Failure> {
        let Some(cells) = &mut self.cells else { return Err(Failure::Unanswered) };
        let around = Arc::clone(cx.around);
        let answer = cells.arrive(number, self.now, &around, (request, keeps));
        cx.notes.tell(|| format!("    the handle of {} answers {answer:?}", self.processes[number].name));
        if matches!(answer, Err(Failure::Fatal)) {
            cx.notes.reach("a cell that can't be read");
        }
        self.observe_cells(cx);
        answer
    }

    pub(super) fn cell_lands(&mut self, late: usize, cx: &mut Context<'_>) {
        let Some(cells) = &mut self.cells else { return };
        cx.notes.reach(if cells.land(late) {
            "a late write of a cell that applies"
        } else {
            "a late write of a cell that is refused"
        });
        self.observe_cells(cx);
    }

    /// What was written since the last look: epochs rise, and no write lands after the next acquisition (I2).
    pub(super) fn observe_cells(&mut self, cx: &mut Context<'_>) {
        let written = self.cells.as_mut().map(CellWorld::take_written).unwrap_or_default();
        let is_placeholder = |entry: &Entry| entry.holder.as_str().starts_with("none:");
        for (before, after) in written {
            cx.notes.tell(|| format!("    the cell has {after:?}"));
            let was = before.as_ref().is_some_and(is_placeholder);
            match (&before, &after) {
                (Some(before), Some(after)) if before.incarnation() == after.incarnation() => {
                    cx.notes.reach("a cell is renewed");
                    self.landed(after.epoch, after.incarnation(), cx);
                }
                (_, Some(after)) => {
                    let follows = self.last_was_placeholder;
                    self.last_was_placeholder = is_placeholder(after);
                    cx.notes.reach(match (is_placeholder(after), was) {
                        (true, _) if follows => "a placeholder after a placeholder",
                        (true, _) => "a placeholder",
                        (false, true) => "a claim over a placeholder",
                        (false, false) if before.is_none() => "a claim of a vacant cell",
                        (false, false) => "a claim over a record",
                    });
                    // Two placeholders within a millisecond may have one epoch. Nothing leads under them.
                    if !is_placeholder(after) {
                        self.claimed(after, cx);
                    }
                }
                (Some(before), None) => {
                    cx.notes.reach("a cell is released");
                    self.landed(before.epoch, before.incarnation(), cx);
                }
                (None, None) => {}
            }
            for sent in self.processes.iter_mut().flat_map(|process| &mut process.sent) {
                sent.applied |= after.as_ref().is_some_and(|after| sent.version == after.version);
            }
        }
    }
}
