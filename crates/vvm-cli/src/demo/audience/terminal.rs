//! A terminal: the timeline, drawn anew in its place several times a second, and under it what happened last.

use super::{Audience, Finale, lines::line, sign};
use crate::{
    demo::{
        act::Act,
        draw_terminal::{self, NARROWEST, Scene},
        event::{Event, What},
    },
    terminal_view::{Palette, Row, Style},
};
use rustix::termios::tcgetwinsize;
use std::{
    collections::VecDeque,
    io::{self, Write as _},
    time::Duration,
};
use vvm_clock::Instant;

/// How long a frame stands at least: faster, nobody could read it.
const FRAME: Duration = Duration::from_millis(50);

/// How many of the last events stand under the timeline.
const REMEMBERED: usize = 6;

/// Rows of a frame, what happened last included, with room for the prompt.
const ROWS: u16 = 22;

/// Standard output, which is a terminal.
#[derive(Debug)]
pub(super) struct Terminal {
    palette: Palette,
    /// In the order in which they happened, which is not always that in which they became known.
    last_events: VecDeque<(Instant, Row)>,
    /// How many rows of ours stand above the cursor.
    rows: usize,
    drawn: Option<Instant>,
}

/// Columns and rows. Unknown is as good as none.
fn size() -> (usize, u16) {
    tcgetwinsize(rustix::stdio::stdout()).map_or((0, 0), |size| (usize::from(size.ws_col), size.ws_row))
}

/// Whether a timeline has room.
pub(super) fn is_large_enough() -> bool {
    let (columns, rows) = size();
    columns >= NARROWEST && rows >= ROWS
}

impl Terminal {
    pub(super) fn new(palette: Palette) -> Self {
        Self { palette, last_events: VecDeque::new(), rows: 0, drawn: None }
    }

    /// Puts `rows` in the place of those that stand there.
    fn replace(&mut self, rows: &[Row]) -> io::Result<()> {
        let text = frame(rows, self.rows, self.palette);
        self.rows = rows.len();
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    fn draw(&mut self, scene: &Scene<'_>) -> io::Result<()> {
        let (columns, _) = size();
        let mut rows = draw_terminal::frame(scene, columns);
        let blank = std::iter::repeat_n(Row::default(), REMEMBERED - self.last_events.len());
        rows.extend(self.last_events.iter().map(|(_, row)| row.clone()).chain(blank));
        rows.iter_mut().for_each(|row| row.cut(columns));
        self.drawn = Some(scene.now);
        self.replace(&rows)
    }
}

/// `rows` in the place of the `above` that stand above the cursor.
fn frame(rows: &[Row], above: usize, palette: Palette) -> String {
    // Shown at once and without a cursor where the terminal knows how (modes 2026 and 25); else ignored.
    let mut text = String::from("\x1b[?2026h\x1b[?25l");
    if above > 0 {
        text.push_str(&format!("\x1b[{above}F"));
    }
    for row in rows {
        text.push_str(&row.to_text(palette));
        // What stood further right before.
        text.push_str("\x1b[K\n");
    }
    // With the cursor again: whoever stops or kills the demo types on, and wants to see where.
    text.push_str("\x1b[J\x1b[?25h\x1b[?2026l");
    text
}

impl Audience for Terminal {
    fn act(&mut self, _: Act) -> io::Result<()> {
        Ok(())
    }

    fn event(&mut self, event: &Event, began: Instant) -> io::Result<()> {
        let style = match event.what {
            // The timeline shows these, and there are many.
            What::Renewed(_) | What::WorkEnded(..) | What::Deadline => return Ok(()),
            What::Crashed | What::AskedToStop | What::HostStopped => Style::Strong,
            What::HostDied => Style::Bad,
            What::Elected(_) | What::WorkBegan(..) => Style::In(event.lane.colour()),
            What::Started(_) | What::Released(_) | What::Left(_) => Style::Plain,
        };
        let mut row = Row::default();
        row.write(&line(event, began), style);
        if self.last_events.len() == REMEMBERED {
            self.last_events.pop_front();
        }
        let place = self.last_events.partition_point(|(at, _)| *at <= event.at);
        self.last_events.insert(place, (event.at, row));
        Ok(())
    }

    fn moment(&mut self, scene: &Scene<'_>) -> io::Result<()> {
        match self.drawn {
            Some(drawn) if drawn.until(scene.now) < FRAME => Ok(()),
            _ => self.draw(scene),
        }
    }

    fn verdict(&mut self, finale: &Finale<'_>) -> io::Result<()> {
        self.draw(&finale.scene)?;
        let mut out = io::stdout();
        writeln!(out)?;
        for claim in &finale.verdict.claims {
            let mut row = Row::default();
            row.write("  ", Style::Plain);
            row.write(sign(claim.held), if claim.held { Style::Good } else { Style::Bad });
            row.write(&format!(" {claim}"), Style::Plain);
            writeln!(out, "{}", row.to_text(self.palette))?;
        }
        writeln!(out, "\n  picture: {}", finale.picture.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever ends or stops the demo between two frames.
    #[test]
    fn each_frame_leaves_the_cursor_where_it_can_be_seen() {
        let frame = frame(&[Row::default()], 3, Palette::Plain);
        assert!(frame.rfind("\x1b[?25h") > frame.rfind("\x1b[?25l"), "{frame:?}");
    }
}
