//! What a terminal shows: the slots, and under them what has changed, the latest first. Draws anew whatever
//! the moment.

use super::{
    change::{Change, readable},
    slots::{Seen, Slots},
};
use crate::{
    calendar::{Moment, Span},
    terminal_view::{Row, Style},
};
use vvm_clock::Instant;

/// What is drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene<'watch> {
    pub(super) name: &'watch str,
    pub(super) slots: &'watch Slots,
    /// The latest last.
    pub(super) history: &'watch [Change],
    pub(super) now: Instant,
}

/// From how many columns on a slot has a line; else it has two.
const WIDE: usize = 76;

/// More columns would only draw what belongs together further apart.
const USEFUL: usize = 132;

/// From how many columns on there is room for epochs, too.
const WIDEST: usize = 96;

/// Columns of the parts of a line.
const SLOT: usize = 6;
const EPOCH: usize = 15;
const SEEN: usize = 16;
const BAR: usize = 20;
const WORDS: usize = 14;

/// Columns of the time of day before a change, and of what stands between the two.
const MOMENT: usize = "00:00:00Z  ".len();

/// How much of the TTL must be left for all to be well: a leader renews each quarter, and is at risk at a
/// half.
const WELL: f64 = 0.5;

/// Returns the rows of a picture, no larger than this.
pub(super) fn picture(scene: &Scene<'_>, columns: usize, rows: usize) -> Vec<Row> {
    let mut drawn = vec![title(scene)];
    drawn.extend(notice(scene, columns));
    drawn.push(Row::default());
    let table = columns.min(USEFUL);
    let each = if table >= WIDE { 1 } else { 2 };
    if table >= WIDE {
        drawn.push(heads(table));
    }
    let changes = changes(scene.history, columns, rows);
    // Half of the picture, or what the changes leave of it: they need their title and a row apart, and the
    // rest of the slots a row.
    let left = rows.saturating_sub(drawn.len() + changes.len() + 3);
    let shown = (left.max(rows / 2).max(3) / each).max(1);
    for (number, seen) in scene.slots.iter().take(shown) {
        drawn.extend(slot(number, seen, scene, table));
    }
    drawn.extend(hidden(scene, shown));
    if scene.slots.iter().len() == 0 {
        drawn.push(Row::of("  looking…", Style::Dim));
    }
    drawn.extend([Row::default(), Row::of("  CHANGES SEEN (UTC)", Style::Dim)]);
    drawn.extend(changes);
    drawn.truncate(rows);
    drawn.iter_mut().for_each(|row| row.cut(columns));
    drawn
}

/// What concerns all slots: that nothing can be seen of them now, that nobody is to lead.
fn notice(scene: &Scene<'_>, columns: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    if let Some(cause) = scene.slots.trouble() {
        let blind =
            scene.slots.answered().map(|answered| format!(" for {}", Span(answered.until(scene.now))));
        let line = format!("can't look{}: {}", blind.unwrap_or_default(), cause.escape_debug());
        rows.extend(wrapped(&line, [2, 2], columns, Style::Bad));
    }
    if let Some(paused) = scene.slots.paused() {
        let line = format!("paused by {}, since {}", paused.by.escape_debug(), Moment(paused.since));
        rows.extend(wrapped(&line, [2, 2], columns, Style::Bad));
    }
    rows
}

/// What has changed, the latest first, as far as there are rows for it.
fn changes(history: &[Change], columns: usize, rows: usize) -> Vec<Row> {
    let lines = history.iter().rev().flat_map(|change| {
        let style = if change.what.is_alarming() { Style::Bad } else { Style::Plain };
        wrapped(&change.of_today(), [2, MOMENT + 2], columns, style)
    });
    lines.take(rows).collect()
}

/// What there is no room for, in numbers.
fn hidden(scene: &Scene<'_>, shown: usize) -> Option<Row> {
    let hidden = scene.slots.iter().skip(shown).map(|(_, seen)| seen).collect::<Vec<_>>();
    let free = hidden.iter().filter(|seen| seen.slot.entry().is_none()).count();
    let late =
        hidden.iter().filter(|seen| seen.left(scene.now).is_some_and(|(left, _)| left.is_zero())).count();
    let style = if late > 0 { Style::Bad } else { Style::Dim };
    let line = format!("  … and {} more slots, {free} of them free, {late} expired", hidden.len());
    (!hidden.is_empty()).then(|| Row::of(&line, style))
}

/// `text` in as many rows as it takes: the first one indented by `indents[0]`, the others by `indents[1]`.
/// Broken between words, where there are any.
fn wrapped(text: &str, indents: [usize; 2], columns: usize, style: Style) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let indent = if rows.is_empty() { indents[0] } else { indents[1] };
        let room = columns.saturating_sub(indent).max(1);
        let end = rest.char_indices().nth(room).map_or(rest.len(), |(end, _)| end);
        // The word that does not fit begins the next row, unless nothing would be left in this one.
        let fits = rest[end..].is_empty() || rest[end..].starts_with(' ');
        let before_a_word = rest[..end].rfind(' ').filter(|at| *at > 0);
        let cut = if fits { end } else { before_a_word.unwrap_or(end) };
        let mut row = Row::default();
        row.put(indent, &rest[..cut], style);
        rows.push(row);
        rest = rest[cut..].trim_start();
    }
    rows
}

fn title(scene: &Scene<'_>) -> Row {
    let mut row = Row::of(&format!("  vvm watch {}", scene.name.escape_debug()), Style::Strong);
    if let Some(answered) = scene.slots.answered() {
        row.write(&format!("   looked {} ago", Span(answered.until(scene.now))), Style::Dim);
    }
    row.write("   q leaves", Style::Dim);
    row
}

/// Where the columns of a line begin: holder, epoch, when a renewal was seen, what is left.
fn places(columns: usize) -> [usize; 4] {
    let epoch = if columns >= WIDEST { EPOCH } else { 0 };
    let left = columns.saturating_sub(BAR + WORDS).max(SLOT + SEEN + epoch);
    [SLOT + 2, left - SEEN - epoch, left - SEEN, left]
}

fn heads(columns: usize) -> Row {
    let [holder, epoch, seen, left] = places(columns);
    let mut row = Row::of("  SLOT", Style::Dim);
    row.put(holder, "HOLDER", Style::Dim);
    if epoch < seen {
        row.put(epoch, "EPOCH", Style::Dim);
    }
    row.put(seen, "RENEWAL SEEN", Style::Dim);
    row.put(left, "LEFT OF TTL, SEEN FROM HERE", Style::Dim);
    row
}

fn slot(number: u32, seen: &Seen, scene: &Scene<'_>, columns: usize) -> Vec<Row> {
    let now = scene.now;
    let is_blind = scene.slots.trouble().is_some();
    let mut line = Row::of(&format!("{number:>SLOT$}"), Style::Strong);
    let Some(entry) = seen.slot.entry() else {
        let last = seen.slot.last_epoch();
        let last = last.map_or("never led".to_owned(), |epoch| format!("last epoch {epoch}"));
        line.put(SLOT + 2, &format!("free, {last}"), Style::Dim);
        return vec![line];
    };
    let holder = readable(&entry.holder).to_string();
    let ago = if is_blind {
        // That none was seen would be no news of the leader.
        "not known".to_owned()
    } else if seen.moved {
        format!("{} ago", Span(seen.written.until(now)))
    } else {
        // It may have been written long before we began to look.
        format!("none for {}", Span(seen.written.until(now)))
    };
    if columns < WIDE {
        let at_seen = columns.saturating_sub(SEEN).max(SLOT + 2);
        line.put(SLOT + 2, &shortened(&holder, at_seen.saturating_sub(SLOT + 3)), Style::Plain);
        line.put(at_seen, &ago, Style::Dim);
        let mut second = Row::default();
        if !is_blind {
            bar(&mut second, SLOT + 2, columns.saturating_sub(SLOT + 2 + WORDS).min(BAR), seen, now);
        }
        return vec![line, second];
    }
    let [at_holder, at_epoch, at_seen, at_left] = places(columns);
    line.put(at_holder, &shortened(&holder, at_epoch.saturating_sub(at_holder + 1)), Style::Plain);
    if at_epoch < at_seen {
        line.put(at_epoch, &entry.epoch.to_string(), Style::Dim);
    }
    line.put(at_seen, &ago, Style::Plain);
    if !is_blind {
        bar(&mut line, at_left, BAR, seen, now);
    }
    vec![line]
}

/// A bar, and in words what it shows. Its end stands for the TTL's.
fn bar(row: &mut Row, at: usize, width: usize, seen: &Seen, now: Instant) {
    let Some((left, ttl)) = seen.left(now) else { return };
    let share = left.as_secs_f64() / ttl.as_secs_f64();
    // A float beyond what there is saturates.
    let full = ((share * width as f64).ceil() as usize).min(width);
    let style = if share > WELL { Style::Good } else { Style::Bad };
    row.fill(at..at + full, '█', style);
    row.fill(at + full..at + width, '░', Style::Dim);
    let words = if left.is_zero() { "expired".to_owned() } else { format!("{} of {ttl:?}", Span(left)) };
    row.put(at + width + 1, &words, if left.is_zero() { Style::Bad } else { Style::Plain });
}

/// Cut to `room` with a sign that it is.
fn shortened(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    text.chars().take(room.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests;
