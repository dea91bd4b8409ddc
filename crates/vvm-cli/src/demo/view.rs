//! The picture of a run: a lane for each candidate. [`Output`]: that picture, live on a terminal; else a line
//! per event, or for programs a summary.

use super::{
    checks::{Results, seconds},
    timeline::{CandidateId, Event, Timeline, What},
};
use crate::terminal_view::{Bar, Palette, Row, Scale, Screen, Style, screen_size};
use ielections::Ttl;
use std::{
    io::{self, Write as _},
    time::Duration,
};
use vvm_clock::Instant;

/// Columns to the left of a lane, for its name.
const MARGIN: usize = 5;

#[derive(Clone, Copy, Debug)]
pub(super) struct Scene<'run> {
    pub(super) timeline: &'run Timeline,
    pub(super) step: &'run str,
    pub(super) ttl: Ttl,
    pub(super) now: Instant,
}

/// Returns the rows of the picture, none wider than `columns`.
pub(super) fn picture(scene: &Scene<'_>, columns: usize) -> Vec<Row> {
    // What a run usually takes, and more by leaps: a scale that changes moves the whole picture.
    let mut length = scene.ttl.get() * 5 + Duration::from_millis(500);
    while length < scene.timeline.began.until(scene.now) {
        length = length * 5 / 4;
    }
    let columns_of_lane = columns.saturating_sub(MARGIN + 1).max(1);
    let scale = Scale { began: scene.timeline.began, length, margin: MARGIN, columns: columns_of_lane };
    let ttl = scene.ttl.get().as_secs_f64();
    let title = format!("  vvm demo   three `vvm run` on one SQLite file, TTL {ttl} s");
    let step = Row(format!("  {}", scene.step), Style::Plain);
    let mut rows = vec![Row(title, Style::Strong), step, Row::default()];
    for id in CandidateId::ALL {
        rows.extend([lane(scene, id, &scale), captions(scene.timeline, id, &scale)]);
    }
    let legend = ["█ at work", "┃ renewal", "▒ hangs", "░ record stands", "─ stands by"].join("   ");
    let legend = Row(format!("{:MARGIN$}{legend}", ""), Style::Dim);
    let axis = Row(scale.axis(scene.ttl.get()), Style::Dim);
    rows.extend([axis, Row::default(), legend, Row::default()]);
    rows.iter_mut().for_each(|row| row.cut(columns));
    rows
}

/// Returns a row for each check.
pub(super) fn checks(results: &Results) -> impl Iterator<Item = Row> {
    results.checks.iter().map(|check| {
        let (sign, style) = if check.holds { ("✓", Style::Good) } else { ("✗", Style::Bad) };
        Row(format!("  {sign} {}", check.text), style)
    })
}

/// Returns the sign of an event that was done to a candidate or became of it, and its meaning.
fn mark(what: What) -> Option<(char, &'static str)> {
    match what {
        What::Crashed => Some(('╳', "kill -9")),
        What::AskedToStop => Some(('■', "SIGTERM")),
        What::HostStopped => Some(('║', "SIGSTOP")),
        What::HostDied => Some(('╳', "deadline")),
        _ => None,
    }
}

fn lane(scene: &Scene<'_>, id: CandidateId, scale: &Scale) -> Row {
    let Scene { timeline, now, .. } = *scene;
    // Layer, end, sign.
    let span = |event: &Event| match event.what {
        What::Started(_) => Some((0, timeline.left(id, event.at), '─')),
        What::Elected(epoch) => Some((1, timeline.gone(epoch), '░')),
        What::WorkBegan(..) => Some((2, timeline.left(id, event.at), '█')),
        What::HostStopped => Some((3, timeline.mark(What::HostDied).map(|died| died.at), '▒')),
        What::Renewed(_) => Some((4, Some(event.at), '┃')),
        _ => None,
    };
    let mut layers = Vec::new();
    for event in timeline.events.iter().filter(|event| event.id == id) {
        let sign = mark(event.what).map(|(sign, _)| (5, Some(event.at), sign));
        for (layer, end, sign) in [span(event), sign].into_iter().flatten() {
            layers.push((layer, Bar { from: event.at, to: end.unwrap_or(now).min(now), sign }));
        }
    }
    layers.sort_by_key(|(layer, _)| *layer);
    let bars = layers.into_iter().map(|(_, bar)| bar);
    Row(scale.lane(&format!("  {}", id.name()), bars), id.colour())
}

/// Returns the row under a lane: the meaning of its marks, and the time until the next worker began.
fn captions(timeline: &Timeline, id: CandidateId, scale: &Scale) -> Row {
    let marks = timeline.events.iter().filter(|event| event.id == id);
    let meanings = marks.filter_map(|event| Some((event.at, mark(event.what)?.1.to_owned())));
    let successions = [What::Crashed, What::AskedToStop].into_iter().filter_map(|what| {
        let mark = timeline.mark(what)?;
        let next = timeline.next_at_work(mark.at).filter(|next| next.id == id)?;
        Some((next.at, format!("after {}", seconds(mark.at.until(next.at)))))
    });
    Row(scale.captions(meanings.chain(successions).collect()), Style::Dim)
}

/// Where a run is shown. Each function fails when standard output is gone.
#[derive(Debug)]
pub(super) enum Output {
    Terminal { screen: Screen, drawn: Option<Instant> },
    Lines,
    Json,
}

impl Output {
    /// Prints an event, if lines are shown.
    pub(super) fn line(&self, line: &str) -> io::Result<()> {
        if let Self::Lines = self { writeln!(io::stdout(), "{line}") } else { Ok(()) }
    }

    /// Draws the present moment, if the last picture has stood long enough.
    pub(super) fn draw(&mut self, scene: &Scene<'_>) -> io::Result<()> {
        let Self::Terminal { screen, drawn, .. } = self else { return Ok(()) };
        // Pictures that follow each other faster are not legible.
        if drawn.is_some_and(|drawn| drawn.until(scene.now) < Duration::from_millis(50)) {
            return Ok(());
        }
        *drawn = Some(scene.now);
        screen.draw(|columns, rows| {
            let mut drawn = picture(scene, columns);
            drawn.extend(last_events(scene, rows.saturating_sub(drawn.len())));
            drawn.truncate(rows);
            drawn.iter_mut().for_each(|row| row.cut(columns));
            drawn
        })
    }

    /// Handles Ctrl-Z.
    pub(super) fn suspend(&self) -> io::Result<()> {
        if let Self::Terminal { screen, .. } = self { screen.suspend() } else { Ok(()) }
    }

    /// Shows the results. A terminal is restored first, and keeps the last picture.
    pub(super) fn finish(self, scene: &Scene<'_>, results: &Results) -> io::Result<()> {
        let (drawn, palette) = match self {
            Self::Json => return writeln!(io::stdout(), "{}", results.summary),
            Self::Lines => (Vec::new(), Palette::Plain),
            Self::Terminal { screen, .. } => {
                let (palette, (columns, _)) = (screen.leave(), screen_size());
                (picture(scene, columns), palette)
            }
        };
        let mut rows = drawn.into_iter().chain(checks(results));
        rows.try_for_each(|row| writeln!(io::stdout(), "{}", row.to_text(palette)))
    }
}

/// Returns the last events, at most so many. The lanes show renewals well enough.
fn last_events(scene: &Scene<'_>, most: usize) -> impl Iterator<Item = Row> {
    let events = scene.timeline.events.iter().filter(|event| !matches!(event.what, What::Renewed(_)));
    let last = events.rev().take(most).collect::<Vec<_>>().into_iter().rev();
    last.map(|event| Row(event.to_line(scene.timeline.began), event.id.colour()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::sample;

    fn plain(millis: u64, columns: usize) -> Vec<String> {
        let timeline = sample::until(millis);
        let scene = Scene { timeline: &timeline, step: "", ttl: sample::ttl(), now: sample::at(millis) };
        picture(&scene, columns).into_iter().map(|row| row.0).collect()
    }

    #[test]
    fn picture_shows_workers_standbys_and_marks() {
        // 10.5 s in 84 columns (90 less the margins): 0.125 s each.
        let rows = plain(4_000, 90);
        assert_eq!(rows[3].trim_end(), "  A  ░███┃███┃███╳░░░░░░░░░░░░░░░░────");
        assert_eq!(rows[4].trim_end(), "                 kill -9");
        assert_eq!(rows[5].trim_end(), "  B  ────────────────────────────█████");
        assert_eq!(rows[6].trim_end(), "                                 after 2.01 s");
        assert_eq!(rows[7].trim_end(), "  C  ─────────────────────────────────");
        let rows = plain(9_300, 90);
        assert!(rows[7].contains("║▒▒▒▒▒▒▒▒▒▒╳░░"), "{}", rows[7]);
        assert_eq!(rows[8].trim(), "after 0.33 s SIGSTOP deadline");
    }

    #[test]
    fn no_row_is_wider_than_the_terminal_and_the_height_stays() {
        for (columns, millis) in [(1, 0), (40, 10), (80, 1_700), (80, 9_300), (300, 60_000)] {
            let rows = plain(millis, columns);
            assert_eq!(rows.len(), plain(0, 90).len());
            assert!(rows.iter().all(|row| row.chars().count() <= columns), "{rows:#?}");
        }
    }
}
