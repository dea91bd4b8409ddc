//! Pictures made of rows of text: on a terminal, or as an SVG file. `watch` and `demo` draw with it.
//!
//! `canvas` has rows and colours, `screen` the terminal, `svg` the file. What a picture shows is its caller's
//! part.

mod canvas;
mod screen;
#[cfg(test)]
mod svg;

pub(crate) use canvas::{Colour, Palette, Row, Style};
pub(crate) use screen::{Screen, palette_of_standard_output};
#[cfg(test)]
pub(crate) use svg::svg;
