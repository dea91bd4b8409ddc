//! What stands around the lanes: page, title, seconds, legend, claims.

use super::{
    AXIS, CLAIMS, HEIGHT, LANES_BOTTOM, LANES_TOP, LEFT, LEGEND, Picture, RIGHT, Scale, WIDTH,
    sheet::{Anchor, Class, Sheet},
};
use crate::demo::measured::chosen;
use std::time::Duration;

pub(super) fn draw(sheet: &mut Sheet, picture: &Picture<'_>, scale: &Scale) {
    sheet.bar("page", [1.0, WIDTH - 1.0], HEIGHT / 2.0, HEIGHT - 2.0);
    sheet.text("text title", [28.0, 44.0], Anchor::Start, "One leads, the others stand by");
    let subtitle = format!(
        "vvm demo: three real `vvm run` on one SQLite file, TTL {}. Each bar is its worker's own log.",
        chosen(picture.ttl.get())
    );
    sheet.text("muted", [28.0, 68.0], Anchor::Start, &subtitle);
    seconds(sheet, scale);
    legend(sheet);
    claims(sheet, picture);
}

fn seconds(sheet: &mut Sheet, scale: &Scale) {
    let steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].map(Duration::from_secs);
    let few = |step: &Duration| scale.length.as_secs_f64() / step.as_secs_f64() <= 16.0;
    let step = steps.into_iter().find(few).unwrap_or(scale.length);
    let mut moment = Duration::ZERO;
    while moment <= scale.length {
        let x = scale.x(scale.began.after(moment));
        sheet.line(Class("grid"), [x, LANES_TOP], [x, AXIS]);
        let label = format!("{} s", moment.as_secs());
        sheet.text("muted small", [x, AXIS + 18.0], Anchor::Middle, &label);
        moment += step;
    }
    sheet.line(Class("grid"), [LEFT, AXIS], [RIGHT, AXIS]);
    sheet.line(Class("grid"), [LEFT, LANES_BOTTOM], [RIGHT, LANES_BOTTOM]);
}

/// Samples, each with the place of its text.
fn legend(sheet: &mut Sheet) {
    let (middle, foot) = (LEGEND - 4.5, LEGEND);
    let mut x = LEFT;
    let mut entry = |sheet: &mut Sheet, text: &str, room: f64| {
        let left = x;
        sheet.text("muted", [left + 36.0, foot], Anchor::Start, text);
        x += 36.0 + room;
        [left, left + 28.0]
    };
    let at = entry(sheet, "at work", 66.0);
    sheet.bar("a work", at, middle, 14.0);
    let at = entry(sheet, "renewal", 68.0);
    sheet.bar("a", at, middle, 14.0);
    sheet.line(Class("tick"), [at[0] + 14.0, middle - 4.0], [at[0] + 14.0, middle + 4.0]);
    let at = entry(sheet, "its host hangs", 106.0);
    sheet.bar("a", at, middle, 14.0);
    sheet.bar("hatch", at, middle, 14.0);
    let at = entry(sheet, "nobody works: the record still stands", 250.0);
    sheet.bar("a record", at, middle, 14.0);
    let at = entry(sheet, "stands by", 0.0);
    sheet.line(Class("life"), [at[0], middle], [at[1], middle]);
}

fn claims(sheet: &mut Sheet, picture: &Picture<'_>) {
    let measured = &picture.verdict.measured;
    let two = match measured.overlaps {
        0 => "never two at work at once".to_owned(),
        overlaps => format!("two at work at once: {overlaps} times"),
    };
    let workers = format!("{} workers, each with a larger epoch", measured.epochs.len());
    let failed = picture.verdict.failures().count();
    let all = match failed {
        0 => format!("all {} claims held", picture.verdict.claims.len()),
        failed => format!("{failed} of {} claims did not hold", picture.verdict.claims.len()),
    };
    let rose = measured.epochs.is_sorted_by(|earlier, later| earlier < later);
    let mut x = LEFT;
    for (held, text, room) in
        [(measured.overlaps == 0, two, 230.0), (rose, workers, 320.0), (failed == 0, all, 0.0)]
    {
        let (class, path) =
            if held { ("check", "M0 0 l5 5 l9 -11") } else { ("cross", "M1 -7 l11 11 m0 -11 l-11 11") };
        sheet.path(Class(class), [x, CLAIMS - 4.0], path);
        sheet.text("text", [x + 24.0, CLAIMS], Anchor::Start, &text);
        x += room;
    }
}
