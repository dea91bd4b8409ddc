//! Rows as an SVG file that needs no other file, for a light page and for a dark one.

use super::{Colour, Row, Style};
use std::{fmt::Write as _, fs::File, io, path::Path};

/// Size of a cell, in the units of the drawing.
const WIDTH: usize = 8;
const HEIGHT: usize = 18;
/// Height of a bar, and how far its top lies above the foot of a letter.
const BAR: usize = 13;
const ABOVE: usize = 11;

const STYLE: &str = "\
svg { font: 13px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; background: #fff }
rect.w { fill: #fff } text { white-space: pre } .p { fill: #16191d } .s { fill: #16191d; font-weight: bold }
.d { fill: #667079 } .g { fill: #0b7a55 } .b { fill: #b3261e; font-weight: bold }
.t { fill: #0b7f83 } .v { fill: #7a46cf } .o { fill: #b65a06 }
@media (prefers-color-scheme: dark) {
svg { background: #111417 } rect.w { fill: #111417 } .p { fill: #e8ebee } .s { fill: #e8ebee }
.d { fill: #98a2ac } .g { fill: #4cc79a } .b { fill: #ff8a80 }
.t { fill: #35c4bd } .v { fill: #b18af8 } .o { fill: #f0964a } }
";

/// Returns the file: `rows` on a screen of this many columns, and `label` for readers that see no pictures.
pub(crate) fn svg(rows: &[Row], columns: usize, label: &str) -> String {
    let (width, height) = ((columns + 2) * WIDTH, (rows.len() + 1) * HEIGHT);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-label=\"{}\">\n<style>\n{STYLE}</style>\n\
         <rect class=\"w\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>\n",
        escaped(label)
    );
    for (line, row) in rows.iter().enumerate() {
        let (mut column, foot) = (1, (line + 1) * HEIGHT + HEIGHT / 3);
        for run in row.cells().chunk_by(|one, next| one.1 == next.1 && Shape::of(one.0) == Shape::of(next.0))
        {
            match Shape::of(run[0].0) {
                Some(shape) => shape.draw(&mut out, column..column + run.len(), foot, class(run[0].1)),
                None => letters(&mut out, run, column, foot),
            }
            column += run.len();
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Fails early if a file can't be written later. Leaves no new file, and an existing one as it is.
pub(crate) fn check_writable(file: &Path) -> io::Result<()> {
    match File::options().append(true).open(file) {
        Err(refusal) if refusal.kind() == io::ErrorKind::NotFound => {
            let file = std::path::absolute(file)?;
            tempfile::tempfile_in(file.parent().unwrap_or(&file)).map(drop)
        }
        opened => opened.map(drop),
    }
}

/// A character that is drawn, since fonts leave gaps between blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// A bar, opaque to this percentage.
    Bar(u8),
    /// A bar with an upright line in it.
    Tick,
    /// A thin line.
    Line,
}

impl Shape {
    fn of(letter: char) -> Option<Self> {
        match letter {
            '█' => Some(Self::Bar(100)),
            '▒' => Some(Self::Bar(55)),
            '░' => Some(Self::Bar(25)),
            '┃' => Some(Self::Tick),
            '─' => Some(Self::Line),
            _ => None,
        }
    }

    fn draw(self, out: &mut String, columns: std::ops::Range<usize>, foot: usize, class: &str) {
        let (x, width, top) = (columns.start * WIDTH, columns.len() * WIDTH, foot - ABOVE);
        let mut bar = |class: &str, [x, top, width, height]: [usize; 4], rest: &str| {
            // Writing to a string does not fail.
            let _ = writeln!(
                out,
                r#"<rect class="{class}" x="{x}" y="{top}" width="{width}" height="{height}"{rest}/>"#
            );
        };
        match self {
            Self::Bar(100) => bar(class, [x, top, width, BAR], ""),
            Self::Bar(percent) => bar(class, [x, top, width, BAR], &format!(" opacity=\".{percent}\"")),
            Self::Line => bar(class, [x, top + BAR / 2, width, 1], ""),
            Self::Tick => {
                bar(class, [x, top, width, BAR], "");
                for column in columns {
                    bar("w", [column * WIDTH + WIDTH / 2 - 1, top + 2, 2, BAR - 4], "");
                }
            }
        }
    }
}

/// Draws the words of `run`, each group at its column and as wide as its letters, whatever the font.
fn letters(out: &mut String, run: &[(char, Style)], mut column: usize, foot: usize) {
    let text = run.iter().map(|cell| cell.0).collect::<String>();
    for words in text.split("  ") {
        let lead = words.chars().take_while(|letter| *letter == ' ').count();
        let (x, wide) = ((column + lead) * WIDTH, words.trim().chars().count() * WIDTH);
        if wide > 0 {
            let _ = writeln!(
                out,
                r#"<text class="{}" x="{x}" y="{foot}" textLength="{wide}" lengthAdjust="spacingAndGlyphs">{}</text>"#,
                class(run[0].1),
                escaped(words.trim())
            );
        }
        column += words.chars().count() + 2;
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn class(style: Style) -> &'static str {
    match style {
        Style::Plain => "p",
        Style::Strong => "s",
        Style::Dim => "d",
        Style::Good => "g",
        Style::Bad => "b",
        Style::In(Colour::Teal) | Style::On(Colour::Teal) => "t",
        Style::In(Colour::Violet) | Style::On(Colour::Violet) => "v",
        Style::In(Colour::Orange) | Style::On(Colour::Orange) => "o",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_style() -> Vec<Row> {
        use Colour::{Orange, Teal, Violet};
        use Style::{Bad, Dim, Good, In, On, Plain, Strong};
        let styles = [Plain, Strong, Dim, Good, Bad, In(Teal), In(Violet), In(Orange), On(Teal), On(Violet)];
        styles.map(|style| Row::of("a <b> & \"c\"  d█▒░┃─", style)).into()
    }

    #[test]
    fn file_is_well_formed_and_loads_nothing() {
        let file = svg(&every_style(), 40, "a \"label\"");
        let mut open = Vec::new();
        for tag in file.split('<').skip(1) {
            let tag = tag.split('>').next().unwrap();
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name), "</{name}>"),
                None if tag.ends_with('/') => {}
                None => open.push(tag.split(' ').next().unwrap()),
            }
        }
        assert_eq!(open, [""; 0]);
        for loading in ["href", "url(", "@import", "<image", "<script", "<foreignObject"] {
            assert!(!file.contains(loading), "{loading}");
        }
        assert!(file.contains("a &lt;b&gt; &amp; &quot;c&quot;</text>"), "{file}");
    }

    #[test]
    fn both_colour_schemes_have_a_colour_for_every_style() {
        let file = svg(&every_style(), 40, "");
        let (light, dark) = STYLE.split_once("prefers-color-scheme: dark").unwrap();
        for used in file.split("class=\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
            let rule = format!(".{used} {{ fill: ");
            assert!(light.contains(&rule) && dark.contains(&rule), "{used}");
        }
    }

    #[test]
    fn words_that_stand_apart_keep_their_columns() {
        let file = svg(&[Row::of("  one two   three", Style::Plain)], 20, "");
        assert!(
            file.contains(r#"x="24" y="24" textLength="56" lengthAdjust="spacingAndGlyphs">one two<"#),
            "{file}"
        );
        assert!(
            file.contains(r#"x="104" y="24" textLength="40" lengthAdjust="spacingAndGlyphs">three<"#),
            "{file}"
        );
    }
}
