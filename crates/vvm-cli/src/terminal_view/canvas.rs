//! Rows of cells, each with a style, and how a row becomes text for a terminal.

use std::ops::Range;

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

/// A row of cells. A character counts as one column.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Row(Vec<(char, Style)>);

impl Row {
    /// A row that begins with `text`.
    pub(crate) fn of(text: &str, style: Style) -> Self {
        let mut row = Self::default();
        row.write(text, style);
        row
    }

    /// Appends `text`.
    pub(crate) fn write(&mut self, text: &str, style: Style) {
        self.put(self.width(), text, style);
    }

    /// Writes `text` at `column`, over what is there.
    pub(crate) fn put(&mut self, column: usize, text: &str, style: Style) {
        for (column, letter) in (column..).zip(text.chars()) {
            self.fill(column..column + 1, letter, style);
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
        self.0[columns].fill((letter, style));
    }

    /// Returns how many columns are in use.
    pub(crate) fn width(&self) -> usize {
        self.0.len()
    }

    /// Drops what lies beyond `width`.
    pub(crate) fn cut(&mut self, width: usize) {
        self.0.truncate(width);
    }

    /// Returns all cells, from left to right.
    pub(super) fn cells(&self) -> &[(char, Style)] {
        &self.0
    }

    /// Returns the row as a terminal takes it.
    pub(crate) fn to_text(&self, palette: Palette) -> String {
        let mut text = String::new();
        let mut current = Style::Plain;
        for &(letter, style) in &self.0 {
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
    fn colours_change_only_where_the_style_does_and_end_with_the_row() {
        let mut row = Row::of("a", Style::Plain);
        row.write("bc", Style::Strong);
        assert_eq!(row.to_text(Palette::Colours), "a\x1b[0;1mbc\x1b[0m");
    }
}
