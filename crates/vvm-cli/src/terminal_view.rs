//! Pictures of rows of text on a terminal, for `watch` and `demo`.
//!
//! `row` is a row of text, `lanes` bars over time, `screen` the terminal.

mod lanes;
mod row;
mod screen;

pub(crate) use lanes::{Bar, Scale};
pub(crate) use row::{Palette, Row, Style, fitted, prefix};
pub(crate) use screen::{Screen, palette_of_standard_output, screen_size};
