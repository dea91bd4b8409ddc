//! Pictures made of rows of text: on a terminal, or as an SVG file. `watch` and `demo` draw with it.
//!
//! `canvas` has rows and colours, `lanes` bars over time, `screen` the terminal, `svg` the file. What a
//! picture shows is its caller's part.

mod canvas;
mod lanes;
mod screen;
mod svg;

pub(crate) use canvas::{Colour, Palette, Row, Style};
pub(crate) use lanes::{Bar, Scale};
pub(crate) use screen::{Screen, palette_of_standard_output, screen_size};
pub(crate) use svg::{check_writable, svg};
