//! Rows of cells, each with a style, and how a row becomes text for a terminal.

use std::ops::Range;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Stands in the second column of a wide character.
const CONTINUED: char = '\0';

/// Returns how many columns `text` takes on a terminal.
pub(crate) fn text_width(text: &str) -> usize {
    text.width()
}

/// How a cell looks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Style {
    #[default]
    Plain,
    Strong,
    Dim,
    Good,
    Bad,
    /// Letters in this colour.
    In(Colour),
    /// White letters on this colour.
    On(Colour),
}

/// A colour without a meaning of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Colour {
    Teal,
    Violet,
    Orange,
}

/// Whether the terminal gets colours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Palette {
    Colours,
    Plain,
}

/// A row of cells, one for each column.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Row(Vec<(char, Style)>);

impl Row {
    /// Returns a row that begins with `text`.
    pub(crate) fn of(text: &str, style: Style) -> Self {
        let mut row = Self::default();
        row.write(text, style);
        row
    }

    /// Appends `text`.
    pub(crate) fn write(&mut self, text: &str, style: Style) {
        self.put(self.width(), text, style);
    }

    /// Writes `text` at `column`, over what is there. Leaves out characters without a width of their own.
    pub(crate) fn put(&mut self, mut column: usize, text: &str, style: Style) {
        for letter in text.chars() {
            let end = column + letter.width().unwrap_or(0);
            if end > column {
                self.fill(column..end, letter, style);
                self.0[column + 1..end].fill((CONTINUED, style));
                column = end;
            }
        }
    }

    /// Writes `letter` into each of `columns`, over what is there.
    pub(crate) fn fill(&mut self, columns: Range<usize>, letter: char, style: Style) {
        if columns.is_empty() {
            return;
        }
        if self.0.len() < columns.end {
            self.0.resize(columns.end, (' ', Style::Plain));
        }
        self.blank_half(columns.start);
        self.blank_half(columns.end);
        self.0[columns].fill((letter, style));
    }

    /// Replaces a wide character on both sides of `boundary` by spaces: half of it can't be shown.
    fn blank_half(&mut self, boundary: usize) {
        if self.0.get(boundary).is_some_and(|(letter, _)| *letter == CONTINUED) {
            (self.0[boundary - 1].0, self.0[boundary].0) = (' ', ' ');
        }
    }

    /// Returns how many columns are in use.
    pub(crate) fn width(&self) -> usize {
        self.0.len()
    }

    /// Drops what lies beyond `width`.
    pub(crate) fn cut(&mut self, width: usize) {
        self.blank_half(width);
        self.0.truncate(width);
    }

    /// Returns the row as a terminal takes it.
    pub(crate) fn to_text(&self, palette: Palette) -> String {
        let mut text = String::new();
        let mut current = Style::Plain;
        for &(letter, style) in self.0.iter().filter(|(letter, _)| *letter != CONTINUED) {
            if palette == Palette::Colours && style != current {
                text.push_str(&format!("\x1b[0{}m", codes(style)));
                current = style;
            }
            text.push(letter);
        }
        if current != Style::Plain {
            text.push_str("\x1b[0m");
        }
        text
    }
}

/// One of the 256 colours that every terminal has, legible on black and on white.
fn number(colour: Colour) -> u8 {
    match colour {
        Colour::Teal => 37,
        Colour::Violet => 134,
        Colour::Orange => 172,
    }
}

fn codes(style: Style) -> String {
    match style {
        Style::Plain => String::new(),
        Style::Strong => ";1".into(),
        Style::Dim => ";38;5;245".into(),
        Style::Good => ";38;5;35".into(),
        Style::Bad => ";1;38;5;160".into(),
        Style::In(colour) => format!(";38;5;{}", number(colour)),
        Style::On(colour) => format!(";38;5;231;48;5;{}", number(colour)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_put_over_text_and_cut() {
        let mut row = Row::of("abc", Style::Plain);
        row.put(5, "xy", Style::Dim);
        row.put(1, "B", Style::Strong);
        assert_eq!((row.to_text(Palette::Plain).as_str(), row.width()), ("aBc  xy", 7));
        row.cut(6);
        assert_eq!(row.to_text(Palette::Plain), "aBc  x");
    }

    #[test]
    fn fill_beyond_the_end_pads_and_an_empty_range_changes_nothing() {
        let mut row = Row::of("a", Style::Plain);
        row.fill(3..5, '█', Style::Good);
        row.fill(9..9, 'x', Style::Bad);
        assert_eq!(row.to_text(Palette::Plain), "a  ██");
    }

    #[test]
    fn wide_character_takes_two_columns_and_is_never_cut_in_half() {
        let row = || Row::of("a漢字e\u{301}", Style::Plain);
        assert_eq!((row().to_text(Palette::Plain).as_str(), row().width()), ("a漢字e", 6));
        let mut cut = row();
        cut.cut(4);
        assert_eq!((cut.to_text(Palette::Plain).as_str(), cut.width()), ("a漢 ", 4));
        let mut over = row();
        over.put(2, "xy", Style::Plain);
        assert_eq!((over.to_text(Palette::Plain).as_str(), over.width()), ("a xy e", 6));
    }

    #[test]
    fn colours_change_only_where_the_style_does_and_end_with_the_row() {
        let mut row = Row::of("a", Style::Plain);
        row.write("bc", Style::Strong);
        assert_eq!(row.to_text(Palette::Colours), "a\x1b[0;1mbc\x1b[0m");
    }
}
