//! Who watches: a terminal, a file or pipe, or a program. Each is told the same and shows it in its own way.

mod json;
mod lines;
mod terminal;

use super::{act::Act, draw_terminal::Scene, event::Event, verdict::Verdict};
use crate::terminal_view::palette_of_standard_output;
use std::{fmt, io, path::Path};
use vvm_clock::Instant;

/// Somebody who watches.
pub(crate) trait Audience: fmt::Debug {
    /// A new act begins.
    ///
    /// # Errors
    /// When standard output is gone; so for all of these.
    fn act(&mut self, act: Act) -> io::Result<()>;

    /// Something has happened, in a run that began at `began`.
    fn event(&mut self, event: &Event, began: Instant) -> io::Result<()>;

    /// Nothing has happened, but time goes by.
    fn moment(&mut self, scene: &Scene<'_>) -> io::Result<()>;

    /// The run is over, and this came of it.
    fn verdict(&mut self, finale: &Finale<'_>) -> io::Result<()>;
}

/// What came of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finale<'run> {
    pub(crate) scene: Scene<'run>,
    pub(crate) verdict: &'run Verdict,
    pub(crate) picture: &'run Path,
}

/// Whoever reads our standard output.
pub(crate) fn of_standard_output(json: bool) -> Box<dyn Audience> {
    match palette_of_standard_output() {
        _ if json => Box::new(json::Json),
        Some(palette) if terminal::is_large_enough() => Box::new(terminal::Terminal::new(palette)),
        _ => Box::new(lines::Lines),
    }
}

/// A claim with a sign before it.
fn sign(held: bool) -> &'static str {
    if held { "✓" } else { "✗" }
}
