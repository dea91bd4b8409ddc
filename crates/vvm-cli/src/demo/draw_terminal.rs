//! The timeline on a terminal: a frame of text, one lane per candidate. Draws anew whatever the moment; nothing is kept.
//!
//! What lives here: what stands where in a frame. What does not: what a lane looks like (`bar`), and when a frame is
//! drawn (`audience`).

mod bar;

use super::{act::Act, event::Lane, measured::chosen, timeline::Timeline};
use crate::terminal_view::{Row, Style};
use bar::Scale;
use ielections::Ttl;
use std::time::Duration;
use vvm_clock::Instant;

/// The narrowest terminal in which a lane still shows something.
pub(crate) const NARROWEST: usize = 60;

/// Wider, a lane only gets harder to read.
const WIDEST: usize = 132;

/// Left of each lane: its name.
const MARGIN: usize = 5;

/// What a frame is drawn of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene<'run> {
    pub(crate) timeline: &'run Timeline,
    pub(crate) act: Act,
    pub(crate) ttl: Ttl,
    pub(crate) now: Instant,
}

/// A little more than what a run usually takes: what the first frame leaves room for.
fn usual_length(ttl: Ttl) -> Duration {
    ttl.get() * 5 + Duration::from_millis(500)
}

/// The rows of a frame, none wider than `columns`.
pub(crate) fn frame(scene: &Scene<'_>, columns: usize) -> Vec<Row> {
    let width = columns.min(WIDEST);
    let scale = scale(scene, width);
    let mut rows = vec![title(scene), act(scene.act), Row::default()];
    for lane in Lane::ALL {
        rows.push(bar::lane(scene.timeline, lane, scene.now, &scale));
        rows.push(bar::captions(scene.timeline, lane, &scale));
    }
    rows.extend([axis(&scale), Row::default(), legend(), Row::default()]);
    rows.iter_mut().for_each(|row| row.cut(width));
    rows
}

fn scale(scene: &Scene<'_>, width: usize) -> Scale {
    let elapsed = scene.timeline.began.until(scene.now);
    let mut length = usual_length(scene.ttl);
    // By leaps, so that what is drawn does not move with every frame.
    while length < elapsed {
        length = length * 5 / 4;
    }
    Scale { began: scene.timeline.began, length, columns: width.saturating_sub(MARGIN + 1).max(1) }
}

fn title(scene: &Scene<'_>) -> Row {
    let mut row = Row::default();
    row.write("  vvm demo", Style::Strong);
    row.write(&format!("   three `vvm run` on one SQLite file, TTL {}", chosen(scene.ttl.get())), Style::Dim);
    row
}

fn act(act: Act) -> Row {
    let mut row = Row::default();
    row.write(&format!("  {}/{}  ", act.number(), Act::COUNT), Style::Dim);
    row.write(&act.to_string(), Style::Plain);
    row
}

/// Seconds, where at least this many columns lie between two of them.
fn axis(scale: &Scale) -> Row {
    const APART: u32 = 10;
    let steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000]
        .map(|tenths| Duration::from_millis(100) * tenths);
    let roomy = |step: &Duration| scale.column_of(scale.began.after(*step)) >= APART as usize;
    let step = steps.into_iter().find(roomy).unwrap_or(scale.length);
    let mut row = Row::default();
    let mut moment = Duration::ZERO;
    while moment < scale.length {
        let label = if step < Duration::from_secs(1) {
            format!("╵{:.1} s", moment.as_secs_f64())
        } else {
            format!("╵{} s", moment.as_secs())
        };
        row.put(MARGIN + scale.column_of(scale.began.after(moment)), &label, Style::Dim);
        moment += step;
    }
    row
}

fn legend() -> Row {
    let mut row = Row::default();
    row.write(&" ".repeat(MARGIN), Style::Plain);
    let signs =
        [("█", "at work"), ("┃", "renewal"), ("▒", "hangs"), ("░", "record stands"), ("─", "stands by")];
    for (sign, meaning) in signs {
        row.write(&format!("{sign} {meaning}   "), Style::Dim);
    }
    row
}

#[cfg(test)]
mod tests {
    use super::{super::rehearsal, *};
    use crate::terminal_view::Palette;

    fn plain(millis: u64, columns: usize) -> Vec<String> {
        let timeline = rehearsal::until(millis);
        let scene =
            Scene { timeline: &timeline, act: Act::Crash, ttl: rehearsal::ttl(), now: rehearsal::at(millis) };
        frame(&scene, columns).iter().map(|row| row.to_text(Palette::Plain)).collect()
    }

    #[test]
    fn a_frame_shows_who_works_who_stands_by_and_what_was_done() {
        // 10.5 s in 84 columns (90 less the margins): 0.125 s each.
        let rows = plain(4_000, 90);
        assert_eq!(rows[3].trim_end(), "  A  ░███┃███┃███╳░░░░░░░░░░░░░░░░────");
        assert_eq!(rows[4].trim_end(), "                 kill -9");
        assert_eq!(rows[5].trim_end(), "  B  ────────────────────────────█████");
        assert_eq!(rows[6].trim_end(), "                                 after 2.01 s");
        assert_eq!(rows[7].trim_end(), "  C  ─────────────────────────────────");
    }

    #[test]
    fn captions_do_not_run_into_each_other() {
        let rows = plain(9_300, 90);
        assert_eq!(rows[6].trim(), "after 2.01 s SIGTERM                         SIGTERM");
        assert_eq!(rows[8].trim(), "after 0.33 s SIGSTOP deadline");
    }

    #[test]
    fn no_row_is_wider_than_the_terminal_or_than_one_can_read() {
        for (columns, widest) in [(NARROWEST, NARROWEST), (80, 80), (500, WIDEST)] {
            for millis in [0, 10, 1_700, 9_300, 60_000] {
                let rows = plain(millis, columns);
                assert_eq!(rows.len(), plain(0, columns).len(), "the height stays");
                let width = rows.iter().map(|row| row.chars().count()).max().unwrap();
                assert!(width <= widest, "{width} columns of {columns} at {millis} ms");
            }
        }
    }
}
