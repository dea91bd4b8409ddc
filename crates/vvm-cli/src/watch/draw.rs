//! The picture of `vvm watch`: the slots, and below them the changes, the latest first.

use super::changes::{Change, Seen, Slots, readable};
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
mod tests {
    use super::*;
    use crate::watch::{
        Found, Look, Paused,
        changes::tests::{look, many, record, three},
    };
    use ielections::ReadError;
    use std::time::Duration;
    use unicode_width::UnicodeWidthStr as _;

    fn drawn(now: u64, columns: usize, rows: usize) -> Vec<String> {
        let (slots, history, now) = three(now);
        let scene = Scene { name: "payroll", slots: &slots, history: &history, now };
        let picture = picture(&scene, columns, rows);
        picture.iter().map(|row| row.0.trim_end().to_owned()).collect()
    }

    #[test]
    fn wide_picture_has_a_line_with_all_parts_for_each_slot() {
        let expected = [
            "  vvm watch payroll   looked 0ms ago   q leaves",
            "",
            "  SLOT  HOLDER                     EPOCH          RENEWAL SEEN    LEFT OF TTL, SEEN FROM HERE",
            "     1  here:2040                  1795299437000  2.0s ago        ██████████████████░░ 18.0s of 20s",
            "     2  there:77                   1795299437014  none for 11.0s  █████████░░░░░░░░░░░ 9.0s of 20s",
            "     3  free, last epoch 5",
            "",
            "  CHANGES SEEN (UTC)",
            "  00:00:00Z  slot 3: free, last epoch 5",
            "  00:00:00Z  slot 2: held by there:77, epoch 1795299437014, TTL 20s",
            "  00:00:00Z  slot 1: held by here:2040, epoch 1795299437000, TTL 20s",
        ];
        assert_eq!(drawn(11, 100, 24), expected);
    }

    #[test]
    fn narrow_picture_is_cut_and_its_changes_are_wrapped() {
        let expected = [
            "  vvm watch payroll   looked 0ms ago   q",
            "",
            "  SLOT  HOLDER            RENEWAL SEEN",
            "     1  here:2040         12.0s ago",
            "     2  there:77          none for 21.0s",
            "     3  free, last epoch 5",
            "",
            "  CHANGES SEEN (UTC)",
            "  00:00:21Z  slot 2: no renewal of",
            "             there:77 seen for 21.0s:",
            "             candidates may take over",
        ];
        assert_eq!(drawn(21, 40, 14)[..expected.len()], expected);
    }

    #[test]
    fn wide_characters_of_a_holder_do_not_move_the_columns() {
        let mut slots = Slots::default();
        let found = [(1, record("東京の機械", 5, 1)), (2, record("tokyo", 5, 1))];
        let found = Ok(Found { slots: found.into(), paused: None });
        slots.changes(Look { found, ..look(0, Err(ReadError::Unavailable("".into()))) }).unwrap();
        let now = Instant::ORIGIN.after(Duration::from_secs(101));
        let rows = picture(&Scene { name: "a", slots: &slots, history: &[], now }, 80, 24);
        let before_seen = |row: &Row| row.0.split_once("none for").unwrap().0.width();
        assert_eq!(before_seen(&rows[3]), before_seen(&rows[4]));
    }

    #[test]
    fn picture_is_no_larger_than_its_terminal() {
        for (columns, rows) in
            [(1, 1), (7, 3), (20, 5), (39, 10), (75, 24), (76, 24), (95, 24), (96, 8), (300, 90)]
        {
            let picture = drawn(25, columns, rows);
            assert!(picture.len() <= rows, "{columns}×{rows}: {picture:#?}");
            assert!(
                picture.iter().all(|row| row.chars().count() <= columns),
                "{columns}×{rows}: {picture:#?}"
            );
        }
    }

    #[test]
    fn failure_and_pause_are_shown_whole_above_the_slots() {
        let (mut slots, history, now) = three(11);
        let at = |found, second| Look {
            found,
            settled: None,
            at: now.after(Duration::from_secs(second)),
            wall: Duration::from_secs(second),
        };
        let paused = Some(Paused { by: "alice: new schema".into(), since: Duration::from_secs(60) });
        slots.changes(at(Ok(Found { slots: Vec::new(), paused }), 1)).unwrap();
        let lost = "the disk of the database is gone, and so is the file on it";
        slots.changes(at(Err(ReadError::Unavailable(lost.into())), 2)).unwrap();
        let now = now.after(Duration::from_secs(4));
        let scene = Scene { name: "payroll", slots: &slots, history: &history, now };
        let rows = picture(&scene, 78, 24);
        let rows = rows.iter().map(|row| row.0.trim_end()).collect::<Vec<_>>();
        let expected = [
            "  vvm watch payroll   looked 3.0s ago   q leaves",
            "  can't be read for 3.0s: the storage did not answer: the disk of the database",
            "  is gone, and so is the file on it",
            "  paused by alice: new schema, since 1970-01-01T00:01:00Z",
            "",
            "  SLOT  HOLDER              RENEWAL SEEN    LEFT OF TTL, SEEN FROM HERE",
            "     1  here:2040           not known",
            "     2  there:77            not known",
            "     3  free, last epoch 5",
        ];
        assert_eq!(rows[..expected.len()], expected);
    }

    #[test]
    fn slots_beyond_the_picture_are_counted() {
        let slots = many(200);
        let now = Instant::ORIGIN.after(Duration::from_secs(1_000));
        let scene = Scene { name: "payroll", slots: &slots, history: &[], now };
        let rows = picture(&scene, 100, 50);
        let rows = rows.iter().map(|row| row.0.trim_end()).collect::<Vec<_>>();
        assert_eq!(rows.len(), 50);
        assert!(rows[46].starts_with("    44  free"), "{rows:#?}");
        assert_eq!(rows[47], "  … and 156 more slots, 78 of them free, 78 expired");
    }
}
