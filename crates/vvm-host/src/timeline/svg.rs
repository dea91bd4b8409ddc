//! Draws a [`Timeline`] as SVG. The picture has a row for each holder, and below the rows of a slot one with all its
//! leaderships, where an overlap would show. It follows the reader's light or dark scheme, and is readable without
//! colours: kinds differ in shape and pattern.

use super::{Bar, BarKind, Mark, MarkKind, Timeline};
use std::{
    fmt::{self, Write as _},
    ops::Range,
    time::Duration,
};

/// Marks with the names of their classes, the words of the legend, and their shapes around the moment.
const MARKS: [(MarkKind, &str, &str, &str); 5] = [
    (MarkKind::Kill, "kill", "killed", "M-6-6L6 6M-6 6L6-6"),
    (MarkKind::Hang, "hang", "hangs", "M-3-7V7M3-7V7"),
    (MarkKind::Loss, "loss", "lost, or its end is unknown", "M-7-6H7L0 7Z"),
    (MarkKind::Stop, "stop", "stops", "M-5-5H5V5H-5Z"),
    (MarkKind::HandOver, "next", "takes over", "M-4-7L6 0L-4 7Z"),
];

/// Classes of bars, the words of the legend, and their heights. In this order they cover each other.
const BARS: [(&str, &str, f64); 4] = [
    ("ttl", "TTL since its last renewal", BAR + 8.0),
    ("dead", "past its kill deadline", BAR + 8.0),
    ("runs", "runs, stands by", 4.0),
    ("leads", "leads, with its epoch", BAR),
];

const STYLE: &str = "
text{fill:#16191d;font:12px system-ui,'DejaVu Sans',sans-serif}
.title{font-size:15px;font-weight:600}.dim{fill:#5c666f}.name{font-weight:600}.end{text-anchor:end}.middle{text-anchor:middle}
.back{fill:#fff;stroke:#dfe3e7}.tick{stroke:#e6eaed}.stem{stroke:#8a949d;stroke-dasharray:2 2}
.runs{fill:#8a949d}.leads,.all{fill:#00697a}.in{fill:#fff;font-weight:600}.ttl{fill:#f3dfb4;stroke:#9a5b00;stroke-dasharray:4 3}
.dead{fill:url(#hatch);stroke:#9a5b00}.hatch{stroke:#9a5b00;stroke-width:2}.overlap{fill:#b3261e;stroke:#16191d;stroke-width:2}
.mark{stroke:#fff;stroke-width:1.5;paint-order:stroke;stroke-linejoin:round}.halo{fill:none;stroke:#fff;stroke-width:7}
.kill,.hang{fill:none;stroke-width:3.5}.kill{stroke:#b3261e}.hang{stroke:#9a5b00}.loss{fill:#7d3cb5}.stop{fill:#2b5fc2}.next{fill:#0b7a55}
@media(prefers-color-scheme:dark){
text{fill:#e8ebee}.dim{fill:#98a2ac}.back{fill:#14181b;stroke:#2c3238}.tick{stroke:#252b30}.in{fill:#06171a}
.leads,.all{fill:#3fb6c8}.ttl{fill:#463a22;stroke:#e5a64a}.dead{stroke:#e5a64a}.hatch{stroke:#e5a64a}.overlap{fill:#ff8a80;stroke:#fff}
.mark,.halo{stroke:#14181b}.kill{stroke:#ff8a80}.hang{stroke:#e5a64a}.loss{fill:#c79bf2}.stop{fill:#8fb4ff}.next{fill:#4cc79a}}
";

/// All lengths are in pixels of a picture that is this wide.
const WIDTH: f64 = 900.0;
const RIGHT: f64 = WIDTH - 24.0;
const BAR: f64 = 24.0;
const LINE: f64 = 16.0;
/// Lines of texts above a row. What finds no room in them is shown by its shape alone, and when pointed at.
const LINES: usize = 3;

/// About the width of a text, in the size of most of them.
fn width(text: &str) -> f64 {
    text.chars().count() as f64 * 6.7
}

/// A text in XML. Names of holders may contain anything.
struct Text<'a>(&'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|letter| match letter {
            '&' => out.write_str("&amp;"),
            '<' => out.write_str("&lt;"),
            '>' => out.write_str("&gt;"),
            '"' => out.write_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => out.write_char(char::REPLACEMENT_CHARACTER),
            letter if letter.is_control() => out.write_char(char::REPLACEMENT_CHARACTER),
            letter => out.write_char(letter),
        })
    }
}

fn shortened(name: &str, most: usize) -> String {
    let kept = name.char_indices().nth(most).map(|_| name.chars().take(most - 1).chain(['…']).collect());
    kept.unwrap_or_else(|| name.to_owned())
}

impl MarkKind {
    fn parts(self) -> (&'static str, &'static str, &'static str) {
        let (_, class, words, shape) = MARKS.into_iter().find(|(kind, ..)| *kind == self).unwrap_or(MARKS[0]);
        (class, words, shape)
    }
}

impl BarKind {
    fn class(self) -> &'static str {
        match self {
            Self::Ttl => "ttl",
            Self::Dead => "dead",
            Self::Runs => "runs",
            Self::Leads(_) => "leads",
        }
    }
}

struct Drawing<'a> {
    of: &'a Timeline,
    out: String,
    left: f64,
    y: f64,
}

macro_rules! draw {
    // Writing to a String does not fail.
    ($to:expr, $($text:tt)*) => { let _ = writeln!($to.out, $($text)*); };
}

impl Timeline {
    /// Returns the picture.
    pub fn to_svg(&self) -> String {
        let names = self.rows().into_iter().map(|(_, name)| width(&shortened(name, 24)));
        let left = names.fold(width("who leads"), f64::max) * 1.1 + 28.0;
        let mut drawing = Drawing { of: self, out: String::new(), left, y: 60.0 };
        let rows = self.rows();
        let mut slots = rows.iter().map(|(slot, _)| *slot).collect::<Vec<_>>();
        slots.dedup();
        for slot in &slots {
            let holders = rows.iter().filter(|(of, _)| of == slot);
            holders.clone().for_each(|(_, holder)| drawing.row(*slot, holder));
            if holders.count() > 1 {
                let title = if slots.len() > 1 { format!("slot {slot}") } else { "who leads".into() };
                drawing.all(*slot, &title);
            }
        }
        drawing.finish()
    }
}

impl Drawing<'_> {
    fn x(&self, at: Duration) -> f64 {
        let Range { start, end } = self.of.span;
        let long = end.saturating_sub(start).as_secs_f64().max(1e-3);
        self.left + (at.clamp(start, end.max(start)) - start).as_secs_f64() / long * (RIGHT - self.left)
    }

    fn rect(&mut self, class: &str, span: &Range<Duration>, (y, high): (f64, f64), says: &str) -> (f64, f64) {
        let (from, until) = (self.x(span.start), self.x(span.end));
        // A leadership of seconds stays visible in a picture of a day.
        let wide = (until - from).max(1.0);
        let says = Text(says);
        draw!(
            self,
            "<rect class=\"{class}\" x=\"{from:.2}\" y=\"{y}\" width=\"{wide:.2}\" height=\"{high}\"><title>{says}</title></rect>"
        );
        (from, wide)
    }

    /// The first of these texts that fits, in the middle of a bar.
    fn inside(&mut self, (from, wide): (f64, f64), y: f64, texts: &[String]) {
        if let Some(text) = texts.iter().find(|text| width(text) * 1.1 + 10.0 <= wide) {
            let (x, text) = (from + wide / 2.0, Text(text));
            draw!(self, "<text class=\"in middle\" x=\"{x:.2}\" y=\"{}\">{text}</text>", y + 16.5);
        }
    }

    fn widest_gap(&self, (from, wide): (f64, f64), marks: &[&Mark]) -> (f64, f64) {
        let between = marks.iter().map(|mark| self.x(mark.at)).filter(|x| (from..from + wide).contains(x));
        let mut edges = between.collect::<Vec<_>>();
        edges.insert(0, from);
        edges.push(from + wide);
        // Shapes are about as wide as this.
        let gaps = edges.windows(2).map(|edges| (edges[0] + 7.0, edges[1] - edges[0] - 14.0));
        gaps.max_by(|one, other| one.1.total_cmp(&other.1)).unwrap_or((from, wide))
    }

    fn name(&mut self, name: &str, class: &str, y: f64) {
        let (x, shown) = (self.left - 14.0, shortened(name, 24));
        let (shown, name) = (Text(&shown), Text(name));
        draw!(
            self,
            "<text class=\"{class} end\" x=\"{x:.2}\" y=\"{}\">{shown}<title>{name}</title></text>",
            y + 16.5
        );
    }

    fn row(&mut self, slot: u32, holder: &str) {
        let is_of =
            |mark: &&Mark| mark.slot == slot && mark.holder == holder && self.of.span.contains(&mark.at);
        let mut marks = self.of.marks.iter().filter(is_of).collect::<Vec<_>>();
        marks.sort_by_key(|mark| mark.at);
        // How far each line of texts is filled.
        let mut filled = [0.0; LINES];
        let mut texts = Vec::new();
        for mark in &marks {
            let (x, wide) = (self.x(mark.at), width(&mark.text));
            let from = (x - 6.0).min(RIGHT - wide).max(self.left);
            if let Some(line) = filled.iter().position(|end| *end <= from) {
                filled[line] = from + wide + 10.0;
                texts.push((x, from, line as f64 * LINE, &mark.text));
            }
        }
        let lines = filled.iter().filter(|end| **end > 0.0).count();
        let y = self.y + lines as f64 * LINE + 10.0;
        for (class, words, high) in BARS {
            let is_of = |bar: &&Bar| bar.slot == slot && bar.holder == holder && bar.kind.class() == class;
            for bar in self.of.bars.iter().filter(is_of) {
                let place = (y + (BAR - high) / 2.0, high);
                let BarKind::Leads(epoch) = bar.kind else {
                    self.rect(class, &bar.span, place, &format!("{holder}: {words}"));
                    continue;
                };
                let epoch = epoch.to_string();
                let drawn = self.rect(class, &bar.span, place, &format!("{holder} leads, epoch {epoch}"));
                let last = epoch.char_indices().nth_back(4).map_or(0, |(at, _)| at);
                let texts = [format!("epoch {epoch}"), epoch.clone(), format!("…{}", &epoch[last..])];
                self.inside(self.widest_gap(drawn, &marks), y, &texts);
            }
        }
        for (x, from, above, text) in texts {
            let base = y - 8.0 - above;
            draw!(self, "<path class=\"stem\" d=\"M{x:.2} {}V{}\"/>", base + 2.0, y + BAR / 2.0);
            draw!(self, "<text x=\"{from:.2}\" y=\"{base}\">{}</text>", Text(text));
        }
        for mark in marks {
            let x = self.x(mark.at);
            self.mark(mark.kind, x, y + BAR / 2.0, &format!("{holder}: {}", mark.text));
        }
        self.name(holder, "name", y);
        self.y = y + BAR + 8.0;
    }

    fn mark(&mut self, kind: MarkKind, x: f64, y: f64, says: &str) {
        let ((class, _, shape), says) = (kind.parts(), Text(says));
        draw!(
            self,
            "<g transform=\"translate({x:.2} {y})\"><path class=\"halo\" d=\"{shape}\"/><path class=\"mark {class}\" d=\"{shape}\"><title>{says}</title></path></g>"
        );
    }

    /// The row in which two leaders at once would show.
    fn all(&mut self, slot: u32, title: &str) {
        let y = self.y + 8.0;
        let mut led_until = Duration::ZERO;
        for bar in self.of.leaderships(slot) {
            let drawn = self.rect("all", &bar.span, (y, BAR), &format!("{} leads", bar.holder));
            self.inside(
                drawn,
                y,
                &[bar.holder.clone(), shortened(&bar.holder, 9), shortened(&bar.holder, 4)],
            );
            if bar.span.start < led_until {
                let both = bar.span.start..led_until.min(bar.span.end);
                self.rect("overlap", &both, (y - 4.0, BAR + 8.0), "two at once");
            }
            led_until = led_until.max(bar.span.end);
        }
        self.name(title, "dim", y);
        self.y = y + BAR + 8.0;
    }

    /// The legend has what occurs.
    fn legend(&mut self) {
        let (mut x, mut y) = (24.0, self.y + 48.0);
        let bars =
            BARS.into_iter().filter(|(class, ..)| self.of.bars.iter().any(|bar| bar.kind.class() == *class));
        let bars = bars.map(|(class, words, high)| (None, class, words, high.min(14.0)));
        let marks =
            MARKS.into_iter().filter(|(kind, ..)| self.of.marks.iter().any(|mark| mark.kind == *kind));
        let marks = marks.map(|(kind, class, words, _)| (Some(kind), class, words, 14.0));
        draw!(self, "<g class=\"legend\">");
        for (kind, class, words, high) in bars.chain(marks) {
            let sample = if kind.is_some() { 14.0 } else { 26.0 };
            let wide = sample + 6.0 + width(words);
            if x + wide > RIGHT {
                (x, y) = (24.0, y + 22.0);
            }
            match kind {
                Some(kind) => self.mark(kind, x + 7.0, y, words),
                None => {
                    draw!(self, "<path class=\"{class}\" d=\"M{x} {}h26v{high}h-26Z\"/>", y - high / 2.0);
                }
            }
            draw!(self, "<text x=\"{:.2}\" y=\"{}\">{words}</text>", x + sample + 6.0, y + 4.0);
            x += wide + 18.0;
        }
        draw!(self, "</g>");
        self.y = y + 22.0;
    }

    fn finish(mut self) -> String {
        let (rows, bottom) = (std::mem::take(&mut self.out), self.y);
        for (at, text) in self.of.ticks() {
            let x = self.x(at);
            draw!(self, "<path class=\"tick\" d=\"M{x:.2} 58V{}\"/>", bottom + 6.0);
            draw!(self, "<text class=\"dim middle\" x=\"{x:.2}\" y=\"{}\">{text}</text>", bottom + 21.0);
        }
        self.out.push_str(&rows);
        self.legend();
        let (title, note, high) = (Text(&self.of.title), Text(&self.of.note), self.y);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {high}\" role=\"img\">\n<title>{title}</title>\n\
             <style>{STYLE}</style>\n<pattern id=\"hatch\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\" \
             patternTransform=\"rotate(45)\"><path class=\"hatch\" d=\"M0 0V7\"/></pattern>\n\
             <rect class=\"back\" x=\".5\" y=\".5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n\
             <text class=\"title\" x=\"24\" y=\"28\">{title}</text>\n<text class=\"dim\" x=\"24\" y=\"48\">{note}</text>\n{}</svg>\n",
            WIDTH - 1.0,
            high - 1.0,
            self.out
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Axis, *};

    fn second(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    fn leads(holder: &str, epoch: u64, span: Range<u64>) -> Bar {
        let span = second(span.start)..second(span.end);
        Bar { slot: 1, holder: holder.into(), kind: BarKind::Leads(epoch), span }
    }

    fn picture(span: Range<Duration>, bars: Vec<Bar>) -> Timeline {
        let marks = bars.iter().map(|bar| Mark {
            slot: bar.slot,
            holder: bar.holder.clone(),
            kind: MarkKind::Loss,
            at: bar.span.end,
            text: "lost".into(),
        });
        let marks = marks.collect();
        Timeline { title: "t".into(), note: "n".into(), axis: Axis::Utc, span, bars, marks }
    }

    fn count(svg: &str, class: &str) -> usize {
        svg.matches(&format!("class=\"{class}\"")).count()
    }

    #[test]
    fn overlap_is_drawn_where_it_is_and_touching_leaderships_are_none() {
        let beside = |from| {
            let bars = vec![leads("a", 1, 0..10), leads("b", 2, from..20)];
            picture(second(0)..second(20), bars).to_svg()
        };
        assert_eq!(count(&beside(10), "overlap"), 0);
        let both = beside(9);
        assert_eq!((count(&both, "overlap"), count(&both, "leads")), (1, 3), "two bars and the legend");
        let x = |svg: &str, class| {
            let (_, rest) = svg.split_once(&format!("<rect class=\"{class}\" x=\"")).unwrap();
            rest.split('"').next().unwrap().parse::<f64>().unwrap()
        };
        let at_9 = x(&both, "leads") + (RIGHT - x(&both, "leads")) * 9.0 / 20.0;
        assert!((x(&both, "overlap") - at_9).abs() < 0.01, "{both}");
    }

    #[test]
    fn slots_have_rows_of_their_own_and_are_not_compared() {
        let other = Bar { slot: 2, ..leads("b", 2, 5..15) };
        let svg = picture(second(0)..second(20), vec![leads("a", 1, 0..10), other]).to_svg();
        assert_eq!((count(&svg, "overlap"), count(&svg, "name end")), (0, 2));
    }

    #[test]
    fn holder_of_any_text_stays_text() {
        let svg = picture(second(0)..second(9), vec![leads("</text>\u{1b}<script>&\"", 1, 0..9)]).to_svg();
        assert!(
            svg.contains("&lt;/text&gt;\u{fffd}&lt;script&gt;&amp;&quot;") && !svg.contains("<script"),
            "{svg}"
        );
    }

    /// A damaged document may have any number.
    #[test]
    fn strange_times_are_drawn_in_bounds() {
        let end = Duration::from_millis(u64::MAX);
        for span in [second(0)..end, end..end, second(5)..second(3), second(0)..Duration::MAX] {
            let bar = Bar { span: second(7)..end, ..leads("a", u64::MAX, 0..0) };
            let svg = picture(span, vec![bar]).to_svg();
            assert!(svg.len() < 20_000 && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
