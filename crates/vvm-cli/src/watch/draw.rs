//! The picture of `vvm watch`: the slots, and below them the changes, the latest first.

use super::{
    change::{Change, readable},
    slots::{Seen, Slots},
};
use crate::{
    calendar::{Moment, Span},
    terminal_view::{Row, Style, fitted, prefix},
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

/// Columns of the table of slots. A narrower terminal shows its left part.
const TABLE: std::ops::RangeInclusive<usize> = 76..=132;

/// From this width on the table has epochs.
const WITH_EPOCHS: usize = 96;

/// Columns of the parts of a line.
const SLOT: usize = 6;
const EPOCH: usize = 15;
const SEEN: usize = 16;
const BAR: usize = 20;
const WORDS: usize = 14;

/// Columns of the time of day before a change.
const MOMENT: usize = "00:00:00Z  ".len();

/// The part of the TTL that is left if all is well: a leader renews after a quarter.
const WELL: f64 = 0.5;

/// Returns the rows of a picture of at most this size.
pub(super) fn picture(scene: &Scene<'_>, columns: usize, rows: usize) -> Vec<Row> {
    let mut drawn = vec![title(scene)];
    drawn.extend(notice(scene, columns));
    let table = columns.clamp(*TABLE.start(), *TABLE.end());
    drawn.extend([Row::default(), heads(table)]);
    let changes = changes(scene.history, columns, rows);
    // The slots take half of the picture, or what the changes leave. Three rows are for the count of hidden
    // slots, a gap and a title.
    let left = rows.saturating_sub(drawn.len() + changes.len() + 3);
    let shown = left.max(rows / 2).max(3);
    drawn.extend(scene.slots.iter().take(shown).map(|(number, seen)| slot(number, seen, scene, table)));
    drawn.extend(hidden(scene, shown));
    if scene.slots.iter().len() == 0 {
        drawn.push(Row("  looking…".into(), Style::Dim));
    }
    drawn.extend([Row::default(), Row("  CHANGES SEEN (UTC)".into(), Style::Dim)]);
    drawn.extend(changes);
    drawn.truncate(rows);
    drawn.iter_mut().for_each(|row| row.cut(columns));
    drawn
}

/// Returns what concerns all slots: that they can't be read, that the name is paused.
fn notice(scene: &Scene<'_>, columns: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    if let Some(cause) = &scene.slots.failure {
        let blind = scene.slots.answered.map(|answered| format!(" for {}", Span(answered.until(scene.now))));
        let line = format!("can't be read{}: {}", blind.unwrap_or_default(), cause.escape_debug());
        rows.extend(wrapped(&line, [2, 2], columns, Style::Bad));
    }
    if let Some(paused) = &scene.slots.paused {
        let line = format!("paused by {}, since {}", paused.by.escape_debug(), Moment(paused.since));
        rows.extend(wrapped(&line, [2, 2], columns, Style::Bad));
    }
    rows
}

/// Returns the changes, the latest first, on at most this many rows.
fn changes(history: &[Change], columns: usize, rows: usize) -> Vec<Row> {
    let lines = history.iter().rev().flat_map(|change| {
        let style = if change.what.is_alarming() { Style::Bad } else { Style::Plain };
        wrapped(&change.without_date(), [2, MOMENT + 2], columns, style)
    });
    lines.take(rows).collect()
}

/// Returns the counts of slots that have no row.
fn hidden(scene: &Scene<'_>, shown: usize) -> Option<Row> {
    let hidden = scene.slots.iter().skip(shown).map(|(_, seen)| seen).collect::<Vec<_>>();
    let free = hidden.iter().filter(|seen| seen.slot.entry().is_none()).count();
    let expired = |seen: &&&Seen| seen.left(scene.now).is_some_and(|(left, _)| left.is_zero());
    let late = hidden.iter().filter(expired).count();
    let style = if late > 0 { Style::Bad } else { Style::Dim };
    let line = format!("  … and {} more slots, {free} of them free, {late} expired", hidden.len());
    (!hidden.is_empty()).then_some(Row(line, style))
}

/// Returns `text` in rows, broken between words if possible. `indents` are of the first and of other rows.
fn wrapped(text: &str, indents: [usize; 2], columns: usize, style: Style) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let indent = if rows.is_empty() { indents[0] } else { indents[1] };
        let end = prefix(rest, columns.saturating_sub(indent).max(2)).len();
        // A word that does not fit begins the next row, unless this row would be empty.
        let fits = rest[end..].is_empty() || rest[end..].starts_with(' ');
        let before_a_word = rest[..end].rfind(' ').filter(|at| *at > 0);
        let cut = if fits { end } else { before_a_word.unwrap_or(end) };
        rows.push(Row(format!("{:indent$}{}", "", &rest[..cut]), style));
        rest = rest[cut..].trim_start();
    }
    rows
}

fn title(scene: &Scene<'_>) -> Row {
    let looked =
        scene.slots.answered.map(|answered| format!("   looked {} ago", Span(answered.until(scene.now))));
    let name = scene.name.escape_debug();
    Row(format!("  vvm watch {name}{}   q leaves", looked.unwrap_or_default()), Style::Strong)
}

/// Returns a line of the table, `columns` wide.
fn line(columns: usize, slot: &str, [holder, epoch, seen, left]: [&str; 4]) -> String {
    let epoch = if columns < WITH_EPOCHS { String::new() } else { fitted(epoch, EPOCH) };
    let room = columns.saturating_sub(SLOT + 3 + epoch.len() + SEEN + BAR + WORDS);
    format!("{slot:>SLOT$}  {} {epoch}{}{left}", fitted(holder, room), fitted(seen, SEEN))
}

fn heads(columns: usize) -> Row {
    let heads = ["HOLDER", "EPOCH", "RENEWAL SEEN", "LEFT OF TTL, SEEN FROM HERE"];
    Row(line(columns, "SLOT", heads), Style::Dim)
}

fn slot(number: u32, seen: &Seen, scene: &Scene<'_>, columns: usize) -> Row {
    let Some(entry) = seen.slot.entry() else {
        let last = seen.slot.last_epoch();
        let last = last.map_or("never led".to_owned(), |epoch| format!("last epoch {epoch}"));
        return Row(format!("{number:>SLOT$}  free, {last}"), Style::Dim);
    };
    let silent = Span(seen.written.until(scene.now));
    let (ago, (left, style)) = if scene.slots.failure.is_some() {
        // Without looks, silence proves nothing about the leader.
        ("not known".to_owned(), (String::new(), Style::Plain))
    } else {
        let ago = if seen.moved { format!("{silent} ago") } else { format!("none for {silent}") };
        (ago, left(seen, scene.now))
    };
    let parts = [&*readable(&entry.holder), &entry.epoch.to_string(), &ago, &left];
    Row(line(columns, &number.to_string(), parts), style)
}

/// Returns a bar of the whole TTL, and its meaning in words.
fn left(seen: &Seen, now: Instant) -> (String, Style) {
    let Some((left, ttl)) = seen.left(now) else { return (String::new(), Style::Plain) };
    let share = left.as_secs_f64() / ttl.as_secs_f64();
    let full = ((share * BAR as f64).ceil() as usize).min(BAR);
    let words = if left.is_zero() { "expired".to_owned() } else { format!("{} of {ttl:?}", Span(left)) };
    let bar = format!("{}{} {words}", "█".repeat(full), "░".repeat(BAR - full));
    (bar, if share > WELL { Style::Plain } else { Style::Bad })
}

#[cfg(test)]
mod tests;
