//! One line per event, for files and pipes.

use super::{Audience, Finale, sign};
use crate::demo::{act::Act, draw_terminal::Scene, event::Event};
use std::io::{self, Write as _};
use vvm_clock::Instant;

/// Lines on standard output.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines;

/// An event as a line, without its newline.
pub(super) fn line(event: &Event, began: Instant) -> String {
    format!("{:>8.3} s  {event}", began.until(event.at).as_secs_f64())
}

impl Audience for Lines {
    fn act(&mut self, act: Act) -> io::Result<()> {
        writeln!(io::stdout(), "{}/{}  {act}", act.number(), Act::COUNT)
    }

    fn event(&mut self, event: &Event, began: Instant) -> io::Result<()> {
        writeln!(io::stdout(), "{}", line(event, began))
    }

    fn moment(&mut self, _: &Scene<'_>) -> io::Result<()> {
        Ok(())
    }

    fn verdict(&mut self, finale: &Finale<'_>) -> io::Result<()> {
        let mut out = io::stdout();
        for claim in &finale.verdict.claims {
            writeln!(out, "{} {claim}", sign(claim.held))?;
        }
        writeln!(out, "picture: {}", finale.picture.display())
    }
}
