//! What one lane looks like: a sign per column, and captions under what was done.

use super::MARGIN;
use crate::{
    demo::{
        event::Lane,
        measured::seconds,
        timeline::{Leadership, MarkKind, Timeline},
    },
    terminal_view::{Row, Style},
};
use std::time::Duration;
use vvm_clock::Instant;

/// Which moment stands in which column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    pub(super) began: Instant,
    pub(super) length: Duration,
    pub(super) columns: usize,
}

impl Scale {
    /// The column in which `moment` lies; beyond the last one when it is beyond the end.
    pub(super) fn column_of(&self, moment: Instant) -> usize {
        let share = self.began.until(moment).as_secs_f64() / self.length.as_secs_f64();
        // A float that is no column saturates, and the frame cuts what lies beyond.
        (share * self.columns as f64) as usize
    }

    /// The columns from `first` to `last`, both included.
    fn columns(&self, first: Instant, last: Instant) -> std::ops::RangeInclusive<usize> {
        self.column_of(first)..=self.column_of(last)
    }
}

/// The bar of `lane` until `now`: later layers lie over earlier ones, what is more important over what is less.
pub(super) fn lane(timeline: &Timeline, lane: Lane, now: Instant, scale: &Scale) -> Row {
    let mut row = Row::default();
    row.put(2, lane.name(), Style::In(lane.colour()));
    let mut fill = |first: Instant, last: Instant, sign: &str, style| {
        for column in scale.columns(first, last.min(now)) {
            row.put(MARGIN + column, sign, style);
        }
    };
    for life in timeline.lives.iter().filter(|life| life.lane == lane) {
        fill(life.started, life.left.unwrap_or(now), "─", Style::Dim);
    }
    let leaderships = || timeline.leaderships.iter().filter(|leadership| leadership.lane == lane);
    for leadership in leaderships() {
        fill(leadership.elected, leadership.gone.unwrap_or(now), "░", Style::In(lane.colour()));
    }
    for leadership in leaderships() {
        if let Some(work) = leadership.work {
            fill(work.began, work.ended.unwrap_or(now), "█", Style::In(lane.colour()));
        }
        if let Some((stopped, ended)) = hanging(timeline, leadership, now) {
            fill(stopped, ended, "▒", Style::In(lane.colour()));
        }
        for renewal in &leadership.renewals {
            fill(*renewal, *renewal, "┃", Style::On(lane.colour()));
        }
    }
    for mark in timeline.marks.iter().filter(|mark| mark.lane == lane) {
        if let Some((sign, _)) = sign(mark.kind) {
            fill(mark.at, mark.at, sign, Style::Bad);
        }
    }
    row
}

/// From when to when the host of `leadership` was stopped while its worker went on.
fn hanging(timeline: &Timeline, leadership: &Leadership, now: Instant) -> Option<(Instant, Instant)> {
    let stopped = timeline.mark(MarkKind::HostStopped)?;
    let led = timeline.led_by(stopped.lane, stopped.at)?;
    (led.epoch == leadership.epoch)
        .then(|| (stopped.at, timeline.mark(MarkKind::HostDied).map_or(now, |mark| mark.at)))
}

/// Under the bar: what its marks mean, and how long it took until it was this lane's turn.
pub(super) fn captions(timeline: &Timeline, lane: Lane, scale: &Scale) -> Row {
    let marks = timeline.marks.iter().filter(|mark| mark.lane == lane);
    let meanings = marks.filter_map(|mark| Some((mark.at, sign(mark.kind)?.1.to_owned(), Style::Dim)));
    let turns = [MarkKind::Crashed, MarkKind::AskedToStop].into_iter().filter_map(|kind| {
        let mark = timeline.mark(kind)?;
        let (_, began) = timeline.next_at_work(mark.at).filter(|(next, _)| next.lane == lane)?;
        Some((began, format!("after {}", seconds(mark.at.until(began))), Style::Good))
    });
    let mut captions = meanings.chain(turns).collect::<Vec<_>>();
    captions.sort_by_key(|(at, ..)| *at);
    let mut row = Row::default();
    for (at, caption, style) in captions {
        // One blank between two captions; where there is no room, the later one moves.
        let free = if row.width() == 0 { 0 } else { row.width() + 1 };
        row.put((MARGIN + scale.column_of(at)).max(free), &caption, style);
    }
    row
}

fn sign(kind: MarkKind) -> Option<(&'static str, &'static str)> {
    match kind {
        MarkKind::Crashed => Some(("╳", "kill -9")),
        MarkKind::AskedToStop => Some(("■", "SIGTERM")),
        MarkKind::HostStopped => Some(("║", "SIGSTOP")),
        MarkKind::HostDied => Some(("╳", "deadline")),
        // In a column of its own only by a fraction of a millisecond.
        MarkKind::Deadline => None,
    }
}
