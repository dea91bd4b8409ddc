//! The picture of a run: one SVG file that needs nothing else, legible on a light page and on a dark one.
//!
//! What lives here: where the parts stand. What does not: the parts (`lanes`, `measures`, `surroundings`), the elements
//! that they are made of (`sheet`), colours (`style`).

mod lanes;
mod measures;
mod sheet;
mod style;
mod surroundings;

use super::{event::Lane, timeline::Timeline, verdict::Verdict};
use ielections::Ttl;
use sheet::{Class, Sheet};
use std::time::Duration;
use vvm_clock::Instant;

/// What a picture is drawn of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Picture<'run> {
    pub(crate) timeline: &'run Timeline,
    pub(crate) verdict: &'run Verdict,
    pub(crate) ttl: Ttl,
    /// When it was over.
    pub(crate) end: Instant,
}

/// All lengths in the units of the drawing, which is about as wide as a page of text: letters keep their size there.
const WIDTH: f64 = 980.0;
const HEIGHT: f64 = 640.0;
const LEFT: f64 = 68.0;
const RIGHT: f64 = 946.0;
const LANES_TOP: f64 = 96.0;
const LANE_HEIGHT: f64 = 112.0;
const LANES_BOTTOM: f64 = LANES_TOP + 3.0 * LANE_HEIGHT;
const MEASURES: f64 = LANES_BOTTOM + 22.0;
const AXIS: f64 = MEASURES + 68.0;
const LEGEND: f64 = AXIS + 58.0;
const CLAIMS: f64 = LEGEND + 34.0;

/// From moments to places.
#[derive(Clone, Copy, Debug)]
struct Scale {
    began: Instant,
    length: Duration,
}

impl Scale {
    fn x(&self, moment: Instant) -> f64 {
        let share = self.began.until(moment).as_secs_f64() / self.length.as_secs_f64();
        LEFT + (RIGHT - LEFT) * share.min(1.0)
    }
}

/// The middle of a lane's bar.
fn y(lane: Lane) -> f64 {
    let above = Lane::ALL.iter().take_while(|other| **other != lane).count();
    LANES_TOP + LANE_HEIGHT * above as f64 + 56.0
}

impl Picture<'_> {
    /// The file's text.
    pub(crate) fn to_svg(self) -> String {
        let began = self.timeline.began;
        // Never nothing, so that a run that was over at once divides by something.
        let length = began.until(self.end).max(Duration::from_millis(100));
        let scale = Scale { began, length };
        let mut sheet = Sheet::default();
        surroundings::draw(&mut sheet, &self, &scale);
        lanes::draw(&mut sheet, &self, &scale);
        measures::draw(&mut sheet, &self, &scale);
        sheet.finish(WIDTH, HEIGHT, "A run of vvm demo", style::STYLE)
    }
}

/// The colour of a lane.
fn class(lane: Lane) -> Class {
    match lane {
        Lane::A => Class("a"),
        Lane::B => Class("b"),
        Lane::C => Class("c"),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{rehearsal, timeline::MarkKind},
        *,
    };

    fn svg(timeline: &Timeline) -> String {
        let verdict = Verdict::on(timeline, &rehearsal::evidence(), rehearsal::ttl(), None);
        Picture { timeline, verdict: &verdict, ttl: rehearsal::ttl(), end: rehearsal::at(9_300) }.to_svg()
    }

    /// The names of the elements that are open at the end; a closing one that closes another is an error.
    fn open_elements(svg: &str) -> Vec<&str> {
        let mut open = Vec::new();
        for tag in svg.split('<').skip(1) {
            let tag = tag.split('>').next().unwrap();
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name), "</{name}>"),
                None if tag.ends_with('/') => {}
                None => open.push(tag.split(' ').next().unwrap()),
            }
        }
        open
    }

    #[test]
    fn elements_close_and_nothing_is_loaded() {
        for timeline in [rehearsal::whole(), rehearsal::until(0), Timeline::beginning_at(rehearsal::BEGAN)] {
            let svg = svg(&timeline);
            assert_eq!(open_elements(&svg), [""; 0]);
            for loading in ["href", "url(http", "@import", "<image", "<script", "<foreignObject"] {
                assert!(!svg.contains(loading), "{loading}");
            }
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "a place that is no number");
        }
    }

    #[test]
    fn what_happened_stands_in_it() {
        let svg = svg(&rehearsal::whole());
        for said in
            ["kill -9", "SIGTERM", "SIGSTOP", "deadline", "TTL 2 s", "fail-over 2.01 s", "hand-over 0.33 s"]
        {
            assert!(svg.contains(said), "{said}");
        }
        let renewals = svg.matches("class=\"tick\"").count();
        assert_eq!(renewals, 3 + 2 + 2 + 2 + 1, "each renewal, and the legend");
        assert_eq!(svg.matches("class=\"a work\"").count(), 2 + 1, "A worked twice, and the legend");
    }

    #[test]
    fn both_colour_schemes_have_a_colour_for_everything() {
        let (light, dark) = style::STYLE.split_once("prefers-color-scheme: dark").unwrap();
        for class in ["page", "text", "muted", "grid", "life", "tick", "bad", "good", "a", "b", "c"] {
            let rule = format!(".{class} {{");
            assert!(light.contains(&rule) && dark.contains(&rule), "{class}");
        }
    }

    #[test]
    fn moments_stand_in_their_order_from_left_to_right() {
        let timeline = rehearsal::whole();
        let scale = Scale { began: timeline.began, length: Duration::from_millis(9_300) };
        let x = |kind| scale.x(timeline.mark(kind).unwrap().at);
        assert!(LEFT < x(MarkKind::Crashed) && x(MarkKind::Crashed) < x(MarkKind::AskedToStop));
        assert!(x(MarkKind::HostDied) < RIGHT && scale.x(Instant::NEVER) == RIGHT);
    }
}
