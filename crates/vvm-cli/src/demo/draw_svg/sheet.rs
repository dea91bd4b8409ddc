//! The elements of a drawing, as text.

use std::fmt;

/// What the style sheet calls it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Class(pub(super) &'static str);

/// Where a text stands, seen from its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A drawing under way.
#[derive(Clone, Default, Debug)]
pub(super) struct Sheet(String);

impl Sheet {
    /// A rectangle with round corners, from `left` to `right`, `height` high around `middle`.
    pub(super) fn bar(&mut self, class: &str, [left, right]: [f64; 2], middle: f64, height: f64) {
        // What lasted less than a pixel is still to be seen.
        let (width, top) = ((right - left).max(1.5), middle - height / 2.0);
        let round = (width / 2.0).min(5.0);
        self.add(format_args!(r#"<rect class="{class}" x="{left:.1}" y="{top:.1}" width="{width:.1}" height="{height:.1}" rx="{round:.1}"/>"#));
    }

    /// A straight line.
    pub(super) fn line(&mut self, Class(class): Class, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2]) {
        self.add(format_args!(
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        ));
    }

    /// A dot.
    pub(super) fn dot(&mut self, Class(class): Class, [x, y]: [f64; 2], radius: f64) {
        self.add(format_args!(r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="{radius:.1}"/>"#));
    }

    /// A path, in SVG's own words, seen from `x`, `y`.
    pub(super) fn path(&mut self, Class(class): Class, [x, y]: [f64; 2], path: &str) {
        self.add(format_args!(r#"<path class="{class}" transform="translate({x:.1} {y:.1})" d="{path}"/>"#));
    }

    /// A line of text whose foot stands at `y`.
    pub(super) fn text(&mut self, class: &str, [x, y]: [f64; 2], anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        self.add(format_args!(
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#
        ));
    }

    fn add(&mut self, element: fmt::Arguments<'_>) {
        self.0.push_str(&element.to_string());
        self.0.push('\n');
    }

    /// The whole file.
    pub(super) fn finish(self, width: f64, height: f64, title: &str, style: &str) -> String {
        let body = self.0;
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">
<title>{title}</title>
<style>{style}</style>
<defs><pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><line class="stripe" x1="0" y1="0" x2="0" y2="7"/></pattern></defs>
{body}</svg>
"#
        )
    }
}
