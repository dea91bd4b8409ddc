//! Rows of cells, each with a style, and how they become text with colours or without.

use crate::demo::event::Lane;

/// How a cell looks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Style {
    #[default]
    Plain,
    Strong,
    Dim,
    Good,
    Bad,
    /// In the colour of a lane.
    Of(Lane),
    /// On the colour of a lane.
    On(Lane),
}

/// Whether there are colours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Palette {
    Colours,
    Plain,
}

impl Palette {
    /// Colours, unless whoever started us wishes that there are none (no-color.org).
    pub(crate) fn of_environment() -> Self {
        let colours = std::env::var_os("NO_COLOR").is_none_or(|wish| wish.is_empty());
        if colours { Self::Colours } else { Self::Plain }
    }
}

/// A row of cells.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Row(Vec<(char, Style)>);

impl Row {
    /// Adds `text` at the end.
    pub(crate) fn write(&mut self, text: &str, style: Style) {
        self.0.extend(text.chars().map(|letter| (letter, style)));
    }

    /// Puts `text` at `column`, over what is there.
    pub(crate) fn put(&mut self, column: usize, text: &str, style: Style) {
        for (column, letter) in (column..).zip(text.chars()) {
            if self.0.len() <= column {
                self.0.resize(column + 1, (' ', Style::Plain));
            }
            self.0[column] = (letter, style);
        }
    }

    /// How many columns are in use.
    pub(crate) fn width(&self) -> usize {
        self.0.len()
    }

    /// Drops what lies beyond `width`.
    pub(crate) fn cut(&mut self, width: usize) {
        self.0.truncate(width);
    }

    /// Each cell, for who draws them elsewhere than on a terminal.
    #[cfg(test)]
    pub(crate) fn cells(&self) -> &[(char, Style)] {
        &self.0
    }

    /// The row as a terminal takes it.
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

/// Of the 256 that every terminal has, such as can be read on black and on white.
fn colour(lane: Lane) -> u8 {
    match lane {
        Lane::A => 37,
        Lane::B => 134,
        Lane::C => 172,
    }
}

fn codes(style: Style) -> String {
    match style {
        Style::Plain => String::new(),
        Style::Strong => ";1".into(),
        Style::Dim => ";38;5;245".into(),
        Style::Good => ";38;5;35".into(),
        Style::Bad => ";1;38;5;160".into(),
        Style::Of(lane) => format!(";38;5;{}", colour(lane)),
        Style::On(lane) => format!(";38;5;231;48;5;{}", colour(lane)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_put_over_text_and_cut() {
        let mut row = Row::default();
        row.write("abc", Style::Plain);
        row.put(5, "xy", Style::Dim);
        row.put(1, "B", Style::Strong);
        assert_eq!((row.to_text(Palette::Plain).as_str(), row.width()), ("aBc  xy", 7));
        row.cut(6);
        assert_eq!(row.to_text(Palette::Plain), "aBc  x");
    }

    #[test]
    fn colours_change_only_where_the_style_does_and_end_with_the_row() {
        let mut row = Row::default();
        row.write("a", Style::Plain);
        row.write("bc", Style::Strong);
        assert_eq!(row.to_text(Palette::Colours), "a\x1b[0;1mbc\x1b[0m");
    }
}
