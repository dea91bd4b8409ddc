//! `--report DIR`: one page with plots, all of it from one run of the measurements. A row has the median as a point,
//! and minimum and maximum as the ends of a line, on an axis by powers of ten: what is compared differs by more than
//! bars could show. Every value stands there as text, too.

use super::{Failure, Figure, Unit};
use crate::{
    beside_peers::{self, NotRun},
    setup::Server,
};
use jiff::Timestamp;
use servers::{objects::CREDENTIALS, owned};
use std::{env, fmt::Write as _, fs, path::Path, process::Command};
use vvm_clock::{SystemWallClock, WallClock as _};

#[derive(Clone)]
struct Plot {
    title: &'static str,
    note: String,
    /// Rows below a heading.
    groups: Vec<(String, Vec<Row>)>,
}

#[derive(Clone)]
struct Row {
    label: String,
    figure: Figure,
    shape: Shape,
    remark: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Vvm,
    Peer,
    Bare,
}

/// Measures, and writes the page to `folder`: `vvm` beside its peers, SQLite, and these servers.
pub(crate) fn write(folder: &Path, servers: &[Server], quick: bool) -> Result<(), Failure> {
    fs::create_dir_all(folder)?;
    let (began, load) = (now(), load());
    let (beside_peers, not_run) = beside_peers::measure_those_that_run(quick)?;
    let files = tempfile::tempdir()?;
    let file = format!("sqlite:{}?allow=overlay", files.path().join("report.db").display());
    let mut storages = vec![measure(&file, quick)?];
    for server in servers {
        let started = server.start(quick)?;
        storages.push(measure(&started.url, quick)?);
    }
    let plots =
        [beside_peers_plots(&beside_peers, &not_run), storage_plots(&storages, names(quick))].concat();
    let file = folder.join("index.html");
    fs::write(&file, page(&plots, &conditions(&began, &load, quick)))?;
    println!("{}", file.display());
    Ok(())
}

fn names(quick: bool) -> &'static [u32] {
    if quick { &[5] } else { &[10, 100, 1000] }
}

/// Returns the scheme of a storage, and what was measured on it: each in a process of its own, with its own CPU time.
fn measure(url: &str, quick: bool) -> Result<(String, Vec<Figure>), Failure> {
    let held = names(quick).iter().map(|names| Some(format!("--held={names}")));
    let mut figures = Vec::new();
    for option in [None].into_iter().chain(held) {
        let mut bench = Command::new(env::current_exe()?);
        // DynamoDB Local accepts any.
        bench.envs(CREDENTIALS).args(["--json", "--storage", url]).args(option);
        bench.args(quick.then_some("--quick"));
        figures.extend(serde_json::from_str::<Vec<_>>(&owned::run(&mut bench, "this program")?)?);
    }
    Ok((url.split(':').next().unwrap_or_default().into(), figures))
}

/// The figures of `beside-peers` by what they measure: their names end with the program.
fn beside_peers_plots(figures: &[Figure], not_run: &[NotRun]) -> Vec<Plot> {
    const BOTH: &str = "  the former command was still at work";
    let (mut deaths, mut costs) = (Vec::<(String, Vec<Row>)>::new(), Vec::<(String, Vec<Row>)>::new());
    for figure in figures {
        let (what, program) = figure.name.rsplit_once(": ").unwrap_or((&figure.name, ""));
        if what.starts_with(BOTH) {
            let rows = deaths.last_mut().into_iter().flat_map(|(_, rows)| rows);
            for row in rows.filter(|row| row.label == program && figure.median > 0.0) {
                row.remark = format!("; both ran {}×", figure.median);
            }
            continue;
        }
        let (heading, groups) = match what.split_once(" after ") {
            Some((_, death)) => (death.to_owned(), &mut deaths),
            None => (what.to_owned(), &mut costs),
        };
        let shape = if program.starts_with("vvm") { Shape::Vvm } else { Shape::Peer };
        let row = Row { label: program.to_owned(), figure: figure.clone(), shape, remark: String::new() };
        match groups.last_mut() {
            Some((last, rows)) if *last == heading => rows.push(row),
            _ => groups.push((heading, vec![row])),
        }
    }
    let ttl = figures.iter().find_map(|figure| figure.name.split_once("TTL ")?.1.split_once(','));
    let ttl = ttl.map_or("", |(ttl, _)| ttl);
    let not_run = not_run.iter().map(|NotRun { what, why }| format!(" Not run: {what} ({why})."));
    let not_run = not_run.collect::<Vec<_>>();
    vec![
        Plot {
            title: "Time until the next command works, by what happens to the leader",
            note: format!(
                "One leads and one waits, on one machine, with a TTL of {ttl}. “Both ran”: the former command was still at \
                 work, in so many trials.{}",
                not_run.concat()
            ),
            groups: deaths,
        },
        Plot {
            title: "Cost of waiting for leadership",
            note: "Of each of three that wait.".into(),
            groups: costs,
        },
    ]
}

fn storage_plots(storages: &[(String, Vec<Figure>)], names: &[u32]) -> Vec<Plot> {
    let row = |label: String, shape, figures: &[Figure], name: &str| {
        let figure = figures.iter().find(|figure| figure.name == name)?.clone();
        Some(Row { label, figure, shape, remark: String::new() })
    };
    // Not every storage has bare statements.
    let beside_bare = |ours: &dyn Fn(&str) -> String, bare: &str| -> Vec<Row> {
        let rows = storages.iter().flat_map(|(scheme, figures)| {
            [
                row(scheme.clone(), Shape::Vvm, figures, &ours(scheme)),
                row(format!("{scheme}, bare"), Shape::Bare, figures, bare),
            ]
        });
        rows.flatten().collect()
    };
    let verbs = ["acquire", "renew", "release"].map(|verb| {
        let ours = |scheme: &str| format!("{verb} on {scheme}");
        (verb.to_owned(), beside_bare(&ours, &format!("{verb}, the bare statement")))
    });
    let renewals = beside_bare(&|_| "64 leaders at once: renewals".into(), "64 bare writers at once");
    let by_names = |what: &str| -> Vec<(String, Vec<Row>)> {
        let rows = storages.iter().map(|(scheme, figures)| {
            let named = names.iter().map(|names| format!("{names} names"));
            let rows = named
                .filter_map(|names| row(names.clone(), Shape::Vvm, figures, &format!("{names}: {what}")));
            (scheme.clone(), rows.collect())
        });
        rows.collect()
    };
    let plot = |title, note: &str, groups| Plot { title, note: note.into(), groups };
    let led = "Names that one process leads, with a TTL of 20 s.";
    let cpu = "Of that process, without a server: 100 % is one core.";
    vec![
        plot("Cost by storage: one call", "Beside the bare statement of the storage's client.", verbs.into()),
        plot(
            "Cost by storage: renewals of 64 leaders at once",
            "",
            vec![("as fast as they can".into(), renewals)],
        ),
        plot("Writes by number of names", led, by_names("writes")),
        plot("CPU time by number of names", cpu, by_names("CPU time of this process")),
    ]
}

fn now() -> String {
    let since = SystemWallClock.since_unix_epoch();
    Timestamp::default().checked_add(since).map_or_else(|error| error.to_string(), |now| format!("{now:.0}"))
}

fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').take(3).collect::<Vec<_>>().join(", ")
}

fn conditions(began: &str, load_before: &str, quick: bool) -> Vec<(&'static str, String)> {
    let machine = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = machine.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let git = |arguments: &[&str]| owned::run(Command::new("git").args(arguments), "git").ok();
    let commit =
        git(&["rev-parse", "--short=12", "HEAD"]).map_or("unknown".into(), |id| id.trim().to_owned());
    let changes = git(&["status", "--porcelain", "--untracked-files=no"]).unwrap_or_default();
    let changes = if changes.trim().is_empty() { "" } else { ", with changes" };
    let mut build = vec![if cfg!(debug_assertions) {
        "without optimisation, so no figures to quote"
    } else {
        "optimised"
    }];
    build.extend(quick.then_some("few and short rounds (--quick)"));
    vec![
        ("Machine", format!("{model}, {cores} cores")),
        ("Date", format!("{began} to {}", now())),
        ("Load average", format!("{load_before} before, {} after (1, 5, 15 minutes)", load())),
        ("Commit", format!("{commit}{changes}")),
        ("Program", build.join("; ")),
    ]
}

const STYLE: &str = "
:root{color-scheme:light dark;--text:#16191d;--dim:#5c666f;--back:#fff;--line:#dfe3e7;--vvm:#00697a;--peer:#9a5b00}
@media(prefers-color-scheme:dark){:root{--text:#e8ebee;--dim:#98a2ac;--back:#14181b;--line:#2c3238;--vvm:#3fb6c8;--peer:#e5a64a}}
body{margin:0 auto;max-width:900px;padding:16px;font:15px/1.5 system-ui,'DejaVu Sans',sans-serif;color:var(--text);background:var(--back)}
h1{font-size:22px}h2{font-size:17px;margin:32px 0 0}p{margin:2px 0 8px;color:var(--dim)}dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px}
dt{color:var(--dim)}dd{margin:0}.plot{overflow-x:auto}svg{display:block;min-width:760px;width:100%}
text{fill:var(--text);font-size:12.5px}.head{font-weight:600}.dim{fill:var(--dim)}.end{text-anchor:end}.middle{text-anchor:middle}
.tick{stroke:var(--line)}.range{stroke-width:2}.vvm{stroke:var(--vvm);fill:var(--vvm)}.peer{stroke:var(--peer);fill:var(--peer)}
.bare{stroke:var(--dim);fill:var(--back);stroke-width:2}";

/// In pixels of a plot: where labels end, and where the axis begins and ends.
const LABELS: f64 = 192.0;
const AXIS: [f64; 2] = [208.0, 588.0];
const WIDTH: f64 = 900.0;
const ROW: f64 = 20.0;

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

macro_rules! draw {
    ($out:expr, $($text:tt)*) => { let _ = writeln!($out, $($text)*); };
}

fn page(plots: &[Plot], conditions: &[(&'static str, String)]) -> String {
    let title = "What elections cost, and how long fail-over takes";
    let mut out = String::from("<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n");
    draw!(out, "<meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>");
    draw!(out, "<style>{STYLE}</style>\n<h1>{title}</h1>\n<dl>");
    for (name, value) in conditions {
        draw!(out, "<dt>{name}</dt><dd>{}</dd>", escaped(value));
    }
    draw!(
        out,
        "</dl>\n<p>A point is the median; a line reaches from minimum to maximum; axes are by powers of ten."
    );
    draw!(out, "● vvm &ensp; ◆ another program &ensp; ○ bare statements of the storage's client</p>");
    for plot in plots {
        draw!(out, "<h2>{}</h2>\n<p>{}</p>", plot.title, escaped(&plot.note));
        // A group with a unit of its own has an axis of its own.
        for groups in plot.groups.chunk_by(|one, other| unit(&one.1) == unit(&other.1)) {
            draw!(out, "<div class=\"plot\">{}</div>", svg(groups));
        }
    }
    out
}

fn unit(rows: &[Row]) -> Option<Unit> {
    rows.first().map(|row| row.figure.unit)
}

fn svg(groups: &[(String, Vec<Row>)]) -> String {
    let figures = || groups.iter().flat_map(|(_, rows)| rows).map(|row| &row.figure);
    let values = figures().flat_map(|of| [of.min, of.median, of.max]);
    let powers = values.filter(|value| value.is_finite() && *value > 0.0).map(f64::log10);
    let (low, high) = powers.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), power| {
        (low.min(power.floor()), high.max(power.ceil()))
    });
    let (low, high) = if low <= high { (low, high.max(low + 1.0)) } else { (0.0, 1.0) };
    // Zero is at the left end, and what never happened at the right one.
    let x = |value: f64| {
        let part = (value.max(1e-12).log10() - low) / (high - low);
        AXIS[0] + part.clamp(0.0, 1.0) * (AXIS[1] - AXIS[0])
    };
    let (mut out, mut y) = (String::new(), 8.0);
    for (heading, rows) in groups {
        if !heading.is_empty() {
            draw!(out, "<text class=\"head\" x=\"8\" y=\"{}\">{}</text>", y + 15.0, escaped(heading));
            y += ROW;
        }
        for row in rows {
            draw_row(&mut out, row, y, &x);
            y += ROW;
        }
        y += 6.0;
    }
    let mut ticks = String::new();
    if let Some(Figure { unit, .. }) = figures().next() {
        for power in low as i32..=high as i32 {
            let value = 10_f64.powi(power);
            let text = format!("{value}{}", unit.written(1.0).trim_start_matches(['1', '.', '0']));
            draw!(ticks, "<path class=\"tick\" d=\"M{0:.1} 4V{y}\"/>", x(value));
            draw!(ticks, "<text class=\"dim middle\" x=\"{:.1}\" y=\"{}\">{text}</text>", x(value), y + 14.0);
        }
    }
    format!("<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\">\n{ticks}{out}</svg>", y + 24.0)
}

fn draw_row(out: &mut String, row: &Row, top: f64, x: &dyn Fn(f64) -> f64) {
    let (y, base) = (top + ROW / 2.0, top + 14.5);
    draw!(out, "<text class=\"end\" x=\"{LABELS}\" y=\"{base}\">{}</text>", escaped(&row.label));
    let figure = &row.figure;
    if figure.median.is_nan() {
        draw!(out, "<text class=\"dim\" x=\"{}\" y=\"{base}\">no sample</text>", AXIS[0]);
        return;
    }
    let [min, median, max] = [figure.min, figure.median, figure.max].map(|value| figure.unit.written(value));
    let class = match row.shape {
        Shape::Vvm => "vvm",
        Shape::Peer => "peer",
        Shape::Bare => "bare",
    };
    draw!(out, "<path class=\"range {class}\" d=\"M{:.1} {y}H{:.1}\"/>", x(figure.min), x(figure.max));
    let at = x(figure.median);
    match row.shape {
        _ if figure.median.is_infinite() => {
            draw!(out, "<path class=\"{class}\" d=\"M{at:.1} {}l9 5l-9 5z\"/>", y - 5.0);
        }
        Shape::Peer => {
            draw!(out, "<path class=\"{class}\" d=\"M{at:.1} {}l6 6l-6 6l-6-6z\"/>", y - 6.0);
        }
        Shape::Vvm | Shape::Bare => {
            draw!(out, "<circle class=\"{class}\" cx=\"{at:.1}\" cy=\"{y}\" r=\"5\"/>");
        }
    }
    let range = if min == max { String::new() } else { format!(", {min} to {max}") };
    let remark = &row.remark;
    draw!(
        out,
        "<text x=\"{}\" y=\"{base}\"><tspan class=\"head\">{median}</tspan>{range}{remark}</text>",
        AXIS[1] + 16.0
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_without_a_value_say_so_and_draw_no_number_that_is_none() {
        let row = |label: &str, figure| Row {
            label: label.into(),
            figure,
            shape: Shape::Peer,
            remark: String::new(),
        };
        let seconds = |samples: &[f64]| Figure::new("x", Unit::Seconds, samples.to_vec());
        let rows = vec![
            row("a<b", seconds(&[f64::INFINITY])),
            row("none", seconds(&[])),
            row("zero", seconds(&[0.0])),
            row("fast", seconds(&[0.02, 0.03, 0.2])),
        ];
        let plot = Plot { title: "Deaths", note: String::new(), groups: vec![("kill -9".into(), rows)] };
        let page = page(&[plot], &[("Machine", "here & now".into())]);
        for expected in [
            "a&lt;b</text>",
            ">never</tspan>",
            ">no sample</text>",
            ">0.03 s</tspan>, 0.02 s to 0.20 s",
            "here &amp; now",
            ">0.01 s</text>",
            ">1 s</text>",
        ] {
            assert!(page.contains(expected), "no {expected} in {page}");
        }
        for none in ["NaN", "inf"] {
            assert!(!page.contains(none), "{none} in {page}");
        }
    }
}
