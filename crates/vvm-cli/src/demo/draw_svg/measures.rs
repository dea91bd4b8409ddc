//! The strip under the lanes: from what was done to one until the next one worked, and how long that took.

use super::{
    LEFT, MEASURES, Picture, RIGHT, Scale,
    sheet::{Anchor, Class, Sheet},
    y,
};
use crate::demo::{
    measured::seconds,
    timeline::MarkKind,
    verdict::{longest_failover, longest_handover},
};

pub(super) fn draw(sheet: &mut Sheet, picture: &Picture<'_>, scale: &Scale) {
    let measured = &picture.verdict.measured;
    if let Some(found) = measured.crash_failover {
        let bound = format!("at most {}", seconds(longest_failover(picture.ttl)));
        span(sheet, picture, scale, MarkKind::Crashed, [&format!("fail-over {}", seconds(found)), &bound]);
    }
    if let Some(found) = measured.handover {
        let bound = format!("at most {}", seconds(longest_handover(picture.ttl)));
        span(
            sheet,
            picture,
            scale,
            MarkKind::AskedToStop,
            [&format!("hand-over {}", seconds(found)), &bound],
        );
    }
    if let Some((late, next)) = measured.kill_after_deadline.zip(measured.next_after_kill) {
        let late = format!("dead at deadline + {:.1} ms", late.millis());
        let next = format!("the next one works {:.0} ms later", next.millis());
        span(sheet, picture, scale, MarkKind::HostStopped, [&late, &next]);
    }
}

/// From the mark until the next one works, with guides to both.
fn span(sheet: &mut Sheet, picture: &Picture<'_>, scale: &Scale, kind: MarkKind, [figure, note]: [&str; 2]) {
    let Some(mark) = picture.timeline.mark(kind) else { return };
    let Some((next, began)) = picture.timeline.next_at_work(mark.at) else { return };
    let (from, to) = (scale.x(mark.at), scale.x(began));
    for (x, lane) in [(from, mark.lane), (to, next.lane)] {
        sheet.line(Class("guide"), [x, y(lane) + 16.0], [x, MEASURES]);
    }
    sheet.line(Class("arrow"), [from, MEASURES], [to, MEASURES]);
    sheet.path(Class("arrow"), [to, MEASURES], "M-6 -4 L0 0 L-6 4");
    sheet.dot(Class("muted"), [from, MEASURES], 2.5);
    // So that a text at the edge stays on the page.
    const HALF_A_TEXT: f64 = 100.0;
    let middle = ((from + to) / 2.0).clamp(LEFT + HALF_A_TEXT, RIGHT - HALF_A_TEXT);
    sheet.text("text figure", [middle, MEASURES + 22.0], Anchor::Middle, figure);
    sheet.text("muted small", [middle, MEASURES + 39.0], Anchor::Middle, note);
}
