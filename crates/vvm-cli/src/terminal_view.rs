//! Pictures of rows of text on a terminal, for `watch` and `demo`.
//!
//! `canvas` has rows and colours, `lanes` bars over time, `screen` the terminal.

mod canvas;
mod lanes;
mod screen;

pub(crate) use canvas::{Colour, Palette, Row, Style, text_width};
pub(crate) use lanes::{Bar, Scale};
pub(crate) use screen::{Screen, palette_of_standard_output, screen_size};
