//! [`Row`]: a row of text in one style, and how much of a text fits into columns.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// How a row looks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Style {
    #[default]
    Plain,
    Strong,
    Dim,
    Good,
    Bad,
    // Colours without a meaning of their own.
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

/// A row of text.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Row(pub(crate) String, pub(crate) Style);

impl Row {
    /// Drops what lies beyond `columns`.
    pub(crate) fn cut(&mut self, columns: usize) {
        self.0.truncate(prefix(&self.0, columns).len());
    }

    /// Returns the row as a terminal takes it, in one of the 256 colours that every terminal has.
    pub(crate) fn to_text(&self, palette: Palette) -> String {
        let Self(text, style) = self;
        let codes = match style {
            Style::Plain => return text.clone(),
            _ if palette == Palette::Plain => return text.clone(),
            Style::Strong => "1",
            Style::Dim => "38;5;245",
            Style::Good => "38;5;35",
            Style::Bad => "1;38;5;160",
            Style::Teal => "38;5;37",
            Style::Violet => "38;5;134",
            Style::Orange => "38;5;172",
        };
        format!("\x1b[{codes}m{text}\x1b[0m")
    }
}

/// Returns as much of `text` as fits into `columns`. Some letters take two.
pub(crate) fn prefix(text: &str, columns: usize) -> &str {
    let mut used = 0;
    let fits = |(_, letter): &(usize, char)| {
        used += letter.width().unwrap_or(0);
        used <= columns
    };
    let last = text.char_indices().take_while(fits).last();
    &text[..last.map_or(0, |(at, letter)| at + letter.len_utf8())]
}

/// Returns `text` in exactly `columns`: filled up with spaces, or cut, with a sign that it was.
pub(crate) fn fitted(text: &str, columns: usize) -> String {
    let is_whole = text.width() <= columns;
    let shown =
        if is_whole { text.to_owned() } else { format!("{}…", prefix(text, columns.saturating_sub(1))) };
    let gap = columns.saturating_sub(shown.width());
    format!("{shown}{:gap$}", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_character_takes_two_columns_and_is_never_cut_in_half() {
        for (columns, expected) in [(0, ""), (1, "a"), (2, "a"), (3, "a漢"), (4, "a漢"), (9, "a漢字e")] {
            let mut row = Row("a漢字e".into(), Style::Plain);
            row.cut(columns);
            assert_eq!(row.0, expected, "{columns}");
        }
        let fitted = [2, 4, 5, 8].map(|columns| fitted("a漢字e", columns));
        assert_eq!(fitted, ["a…", "a漢…", "a漢… ", "a漢字e  "]);
    }

    #[test]
    fn colours_end_with_the_row_and_can_be_turned_off() {
        let row = Row("a".into(), Style::Strong);
        assert_eq!(row.to_text(Palette::Colours), "\x1b[1ma\x1b[0m");
        assert_eq!(row.to_text(Palette::Plain), "a");
        assert_eq!(Row("a".into(), Style::Plain).to_text(Palette::Colours), "a");
    }
}
