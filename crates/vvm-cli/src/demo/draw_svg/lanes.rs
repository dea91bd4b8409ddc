//! The lanes: who was there, whose record stood, who worked, and what was done to whom.

use super::{
    LANE_HEIGHT, LANES_TOP, LEFT, Picture, RIGHT, Scale, WIDTH, class,
    sheet::{Anchor, Class, Sheet},
    y,
};
use crate::demo::{
    event::Lane,
    measured::chosen,
    timeline::{Leadership, Mark, MarkKind},
};
use ielections::Timing;

const BAR: f64 = 28.0;

pub(super) fn draw(sheet: &mut Sheet, picture: &Picture<'_>, scale: &Scale) {
    for (above, lane) in Lane::ALL.into_iter().enumerate() {
        let middle = y(lane);
        let Class(colour) = class(lane);
        let top = LANES_TOP + LANE_HEIGHT * above as f64;
        sheet.line(Class("grid"), [LEFT, top], [RIGHT, top]);
        sheet.text(&format!("{colour} name"), [LEFT - 36.0, middle + 6.0], Anchor::Middle, lane.name());
        for life in picture.timeline.lives.iter().filter(|life| life.lane == lane) {
            let (from, to) = (scale.x(life.started), scale.x(life.left.unwrap_or(picture.end)));
            sheet.line(Class("life"), [from, middle], [to, middle]);
            sheet.dot(Class("life"), [from, middle], 3.5);
        }
    }
    for leadership in &picture.timeline.leaderships {
        draw_leadership(sheet, picture, scale, leadership);
    }
    for mark in &picture.timeline.marks {
        draw_mark(sheet, scale, *mark);
    }
    // Last, so that no line runs through them.
    for leadership in &picture.timeline.leaderships {
        draw_epoch(sheet, scale, leadership);
    }
}

fn draw_epoch(sheet: &mut Sheet, scale: &Scale, leadership: &Leadership) {
    // About what the word and thirteen digits take.
    const ROOM: f64 = 150.0;
    let Class(colour) = class(leadership.lane);
    let (x, foot) = (scale.x(leadership.elected), y(leadership.lane) - 20.0);
    let (x, anchor) = if x + ROOM < WIDTH { (x, Anchor::Start) } else { (WIDTH - 12.0, Anchor::End) };
    let epoch = format!("epoch {}", leadership.epoch);
    sheet.text(&format!("{colour} small halo"), [x, foot], anchor, &epoch);
}

fn draw_leadership(sheet: &mut Sheet, picture: &Picture<'_>, scale: &Scale, leadership: &Leadership) {
    let middle = y(leadership.lane);
    let Class(colour) = class(leadership.lane);
    let gone = leadership.gone.unwrap_or(picture.end);
    let stands = [scale.x(leadership.elected), scale.x(gone)];
    sheet.bar(&format!("{colour} record"), stands, middle, BAR);
    if let Some(work) = leadership.work {
        let ended = work.ended.unwrap_or(picture.end);
        let at_work = [scale.x(work.began), scale.x(ended)];
        sheet.bar(&format!("{colour} work"), at_work, middle, BAR);
        if let Some(stopped) = stopped_under(picture, leadership) {
            sheet.bar("hatch", [scale.x(stopped.at), at_work[1]], middle, BAR);
        }
    }
    for renewal in &leadership.renewals {
        let x = scale.x(*renewal);
        sheet.line(Class("tick"), [x, middle - 8.0], [x, middle + 8.0]);
    }
    draw_terms(sheet, picture, scale, leadership);
}

/// SIGSTOP to the host of this very leadership.
fn stopped_under(picture: &Picture<'_>, leadership: &Leadership) -> Option<Mark> {
    let stopped = picture.timeline.mark(MarkKind::HostStopped)?;
    let led = picture.timeline.led_by(stopped.lane, stopped.at)?;
    (led.epoch == leadership.epoch).then_some(stopped)
}

/// Under the bar of a leader that did not hand back: how long its record stands, and by when it has to be dead.
fn draw_terms(sheet: &mut Sheet, picture: &Picture<'_>, scale: &Scale, leadership: &Leadership) {
    let lane = leadership.lane;
    let crashed = picture.timeline.mark(MarkKind::Crashed).and_then(|mark| {
        picture.timeline.led_by(mark.lane, mark.at).filter(|led| led.epoch == leadership.epoch)
    });
    let stopped = stopped_under(picture, leadership);
    if crashed.is_none() && stopped.is_none() {
        return;
    }
    let ttl = picture.ttl.get();
    // Known to the nanosecond where the deadline is; else the record was seen to change right after it was sent.
    let until_kill =
        Timing::of(picture.ttl).kill_at(vvm_clock::Instant::ORIGIN).since(vvm_clock::Instant::ORIGIN);
    let deadline = stopped.and(picture.timeline.mark(MarkKind::Deadline)).map(|mark| mark.at);
    let sent = deadline.map_or(leadership.last_written(), |deadline| deadline.before(until_kill));
    let mut foot = y(lane) + 26.0;
    if let Some(deadline) = deadline {
        bracket(sheet, [scale.x(sent), scale.x(deadline)], foot, "deadline: 0.8 TTL");
        foot += 19.0;
    }
    bracket(sheet, [scale.x(sent), scale.x(sent.after(ttl))], foot, &format!("TTL {}", chosen(ttl)));
}

/// A span with ends, and a word to its left.
fn bracket(sheet: &mut Sheet, [left, right]: [f64; 2], middle: f64, text: &str) {
    sheet.line(Class("arrow"), [left, middle], [right, middle]);
    for end in [left, right] {
        sheet.line(Class("arrow"), [end, middle - 5.0], [end, middle + 5.0]);
    }
    sheet.text("muted small halo", [left - 8.0, middle + 4.0], Anchor::End, text);
}

fn draw_mark(sheet: &mut Sheet, scale: &Scale, mark: Mark) {
    let text = match mark.kind {
        MarkKind::Crashed => "kill -9",
        MarkKind::AskedToStop => "SIGTERM",
        MarkKind::HostStopped => "SIGSTOP",
        MarkKind::HostDied => "ended by the kernel",
        // It stands under the bar, as the end of its span.
        MarkKind::Deadline => return,
    };
    let (x, middle) = (scale.x(mark.at), y(mark.lane));
    sheet.line(Class("flag"), [x, middle - 34.0], [x, middle + BAR / 2.0]);
    sheet.text("bad small", [x, middle - 39.0], Anchor::Middle, text);
    if matches!(mark.kind, MarkKind::Crashed | MarkKind::HostDied) {
        sheet.path(Class("cross"), [x, middle], "M-5 -5 L5 5 M5 -5 L-5 5");
    }
}
