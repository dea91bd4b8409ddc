//! `vvm demo` as a whole: its output and its checks. It leaves no process and no file.

use crate::VVM;
use harness::{Lines, Trial, eventually};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _},
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};
use vvm_clock::SystemClock;

fn demo(trial: &Trial, options: &[&str]) -> Command {
    let mut command = VVM.command(&[]);
    command.arg("demo").args(options);
    // The demo must ignore settings for `vvm run`.
    command.env("VVM_SLOTS", "2").env("VVM_TTL", "soon");
    command.env("TRIAL", trial.mark()).env_remove("TMPDIR").stdin(Stdio::null());
    command
}

fn summary(output: &Output) -> Value {
    let summary = serde_json::from_slice::<Value>(&output.stdout).unwrap();
    assert_eq!(summary["event"], "summary");
    summary
}

fn check_safety(trial: &Trial, output: &Output, summary: &Value) {
    assert_eq!(summary["overlaps"], 0, "{summary}");
    let epochs = summary["epochs"].as_array().unwrap().iter().map(|epoch| epoch.as_u64().unwrap());
    let epochs = epochs.collect::<Vec<_>>();
    assert!(epochs.is_sorted_by(|earlier, later| earlier < later), "{summary}");
    let early = summary["kill_after_deadline_ms"].as_f64().is_some_and(|late| late < 0.0);
    assert!(!early, "{summary}");
    let held = summary["held"].as_bool().unwrap();
    assert_eq!(output.status.code(), Some(if held { 0 } else { 1 }));
    assert_eq!(held, summary["failures"].as_array().unwrap().is_empty(), "{summary}");
    assert!(trial.processes().0.is_empty(), "{:?}", trial.processes().describe());
}

#[test]
fn demo_whose_reader_has_gone_ends_without_a_word() {
    let trial = VVM.trial();
    let mut child = demo(&trial, &[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap()), (Some(0), String::new()));
    assert!(trial.processes().0.is_empty(), "{:?}", trial.processes().describe());
}

struct Running {
    child: Child,
    stdout: Lines,
    trial: Trial,
}

impl Running {
    fn at_work() -> Self {
        let trial = VVM.trial();
        let temporary = trial.folder().join("temporary");
        fs::create_dir(&temporary).unwrap();
        let mut command = demo(&trial, &["--ttl", "20s"]);
        let mut child = command.env("TMPDIR", &temporary).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = Lines::of("stdout", child.stdout.take().unwrap());
        stdout.wait_for("its worker begins (process");
        assert_eq!(fs::read_dir(temporary).unwrap().count(), 1);
        // The demo, three guardians with their hosts, and a worker.
        eventually("all processes are up", || trial.processes().0.len() >= 8);
        Self { child, stdout, trial }
    }
}

#[test]
fn interrupted_or_killed_demo_leaves_no_process_and_no_file() {
    std::thread::scope(|scope| {
        for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::KILL] {
            scope.spawn(move || {
                let mut running = Running::at_work();
                kill_process(Pid::from_child(&running.child), signal).unwrap();
                assert_eq!(running.child.wait().unwrap().signal(), Some(signal.as_raw()));
                if signal == Signal::KILL {
                    eventually("no process is left", || running.trial.processes().0.is_empty());
                    return;
                }
                assert!(running.trial.processes().0.is_empty(), "{:?}", running.trial.processes().describe());
                assert_eq!(fs::read_dir(running.trial.folder().join("temporary")).unwrap().count(), 0);
            });
        }
    });
}

#[test]
fn vvm_run_that_ends_unasked_fails_a_check_that_names_it() {
    let mut running = Running::at_work();
    let guardians = running.trial.processes().with("vvm run ");
    kill_process(guardians[0], Signal::KILL).unwrap();
    let line = running.stdout.wait_for("✗ every step was done");
    assert!(line.contains("was ended by SIGKILL, and should not have"), "{line}");
    assert_eq!(running.child.wait().unwrap().code(), Some(1));
    assert!(running.trial.processes().0.is_empty());
}

#[test]
fn demo_on_a_machine_that_stalled_begins_again_and_says_so() {
    let trial = VVM.trial();
    let mut child = demo(&trial, &["--ttl", "2s"]);
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = Lines::of("stdout", child.stdout.take().unwrap());
    let mut stderr = Lines::of("stderr", child.stderr.take().unwrap());
    stdout.wait_for("its worker begins (process");
    // Past the kill deadline of the leader, which is 0.8 TTL.
    let all = trial.processes();
    for signal in [Signal::STOP, Signal::CONT] {
        for process in &all.0 {
            let _gone = kill_process(*process, signal);
        }
        if signal == Signal::STOP {
            SystemClock::block_for(Duration::from_millis(1_700));
        }
    }
    let line = stderr.wait_for("this machine did not run for");
    assert!(line.contains(" in step ") && line.contains("try 2 of 3"), "{line}");
    stdout.wait_for("two workers at the same time");
    child.wait().unwrap();
    assert!(trial.processes().0.is_empty(), "{:?}", trial.processes().describe());
}

/// Ctrl-C reaches the whole process group of the terminal. A candidate leaves it just after its start.
#[test]
fn ctrl_c_while_candidates_start_is_an_interruption() {
    for _ in 0..2 {
        let trial = VVM.trial();
        let mut command = demo(&trial, &["--ttl", "20s"]);
        let mut child = command.process_group(0).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = Lines::of("stdout", child.stdout.take().unwrap());
        lines.wait_for("is started");
        kill_process_group(Pid::from_child(&child), Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::INT.as_raw()));
        assert!(trial.processes().0.is_empty(), "{:?}", trial.processes().describe());
    }
}

/// What a picture shows, by its geometry: rows by their names, times by the ticks of the axis, in seconds.
struct Picture {
    /// Class, row, from, until, and what it says when pointed at.
    bars: Vec<(String, String, f64, f64, String)>,
    /// Class, row, moment.
    marks: Vec<(String, String, f64)>,
}

impl Picture {
    fn read(svg: &str) -> Self {
        let (svg, _) = svg.split_once("<g class=\"legend\">").unwrap();
        let value = |line: &str, name: &str| {
            let rest =
                line.split_once(&format!(" {name}=\"")).unwrap_or_else(|| panic!("no {name}: {line}")).1;
            rest.split('"').next().unwrap().to_owned()
        };
        let number = |line: &str, name| value(line, name).parse::<f64>().unwrap();
        let content = |line: &str| line.split('>').nth(1).unwrap().split('<').next().unwrap().to_owned();
        let of_class = |class: &str| {
            let class = format!("class=\"{class}\"");
            svg.lines().filter(move |line| line.contains(&class))
        };
        let ticks = of_class("dim middle").map(|line| {
            let seconds = content(line).trim_end_matches(" s").parse::<f64>().unwrap();
            (number(line, "x"), seconds)
        });
        let ticks = ticks.collect::<Vec<_>>();
        let (first, last) = (ticks[0], ticks[ticks.len() - 1]);
        let time = |x: f64| first.1 + (x - first.0) / (last.0 - first.0) * (last.1 - first.1);
        let names = of_class("name end").chain(of_class("dim end"));
        let rows = names.map(|line| (number(line, "y"), content(line))).collect::<Vec<_>>();
        // The middle of a row is a little above the base of its name.
        let row = |y: f64| rows.iter().find(|(base, _)| (base - 4.5 - y).abs() < 1.0).unwrap().1.clone();
        let bars =
            svg.lines().filter(|line| line.starts_with("<rect ") && line.contains("<title>")).map(|line| {
                let (x, y) = (number(line, "x"), number(line, "y") + number(line, "height") / 2.0);
                let says = line.split("<title>").nth(1).unwrap().split('<').next().unwrap().to_owned();
                (value(line, "class"), row(y), time(x), time(x + number(line, "width")), says)
            });
        let marks = svg.lines().filter(|line| line.contains("<path class=\"mark ")).map(|line| {
            let place = line.split("translate(").nth(1).unwrap().split(')').next().unwrap();
            let (x, y) = place.split_once(' ').unwrap();
            let class = line.split("class=\"mark ").nth(1).unwrap().split('"').next().unwrap();
            (class.to_owned(), row(y.parse().unwrap()), time(x.parse().unwrap()))
        });
        Self { bars: bars.collect(), marks: marks.collect() }
    }

    fn bars(&self, class: &str) -> impl Iterator<Item = &(String, String, f64, f64, String)> {
        self.bars.iter().filter(move |(of, ..)| of == class)
    }
}

/// A pixel is a hundredth of a second or more, and coordinates have two decimals.
fn is_equal(one: f64, other: f64) -> bool {
    (one - other).abs() < 0.001
}

/// The workers' logs are read here as they are written, and kept open until the demo has removed them. Each line of
/// the demo tells its time before it acts, so a moment lies between its line and the next one.
///
/// On a machine that is so busy that a step of the demo fails, it is tried again.
#[test]
fn picture_shows_every_bar_and_mark_of_the_logs_and_nothing_else() {
    let is_last = |tries| tries == 3;
    (1..).find(|tries| picture_is_that_of_the_logs(is_last(*tries)));
}

/// Returns whether the demo did all its steps, which it must if `is_last`.
fn picture_is_that_of_the_logs(is_last: bool) -> bool {
    let trial = VVM.trial();
    let (temporary, path) = (trial.folder().join("temporary"), trial.folder().join("demo.svg"));
    fs::create_dir(&temporary).unwrap();
    fs::write(&path, "of an earlier run").unwrap();
    let mut command = demo(&trial, &["--ttl", "2s", "--svg", path.to_str().unwrap()]);
    let mut child = command.env("TMPDIR", &temporary).stdout(Stdio::piped()).spawn().unwrap();
    let (mut said, mut logs, mut printed) = (Vec::new(), Vec::new(), Vec::new());
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        printed.push(line.clone());
        // Also where the demo begins again.
        if line.starts_with("1/6") {
            let folder = fs::read_dir(&temporary).unwrap().next().unwrap().unwrap().path();
            logs = ["A", "B", "C"]
                .map(|name| (name, File::open(folder.join(format!("{name}.log"))).unwrap()))
                .into();
            said.clear();
        }
        if let Some((time, (name, text))) = line
            .split_once(" s  ")
            .and_then(|(time, rest)| Some((time.trim().parse::<f64>().ok()?, rest.split_once("  ")?)))
        {
            said.push((time, name.to_owned(), text.to_owned()));
        }
    }
    child.wait().unwrap();
    if !printed.iter().any(|line| line.contains("✓ every step was done")) {
        assert!(!is_last, "{printed:#?}");
        return false;
    }
    let picture = Picture::read(&fs::read_to_string(&path).unwrap());

    // The work of each worker, in nanoseconds since boot.
    let mut work: Vec<(&str, u64, u64, u64)> = Vec::new();
    for (name, log) in &mut logs {
        let mut text = String::new();
        log.read_to_string(&mut text).unwrap();
        for line in text.lines() {
            let [at, epoch, _] =
                line.split_whitespace().map(|word| word.parse::<u64>().unwrap()).collect::<Vec<_>>()[..]
            else {
                panic!("{line}")
            };
            match work.last_mut().filter(|last| (last.0, last.1) == (*name, epoch)) {
                Some(last) => last.3 = at,
                None => work.push((name, epoch, at, at)),
            }
        }
    }
    work.sort_by_key(|(_, _, first, _)| *first);
    let leads = picture.bars("leads").collect::<Vec<_>>();
    let mut in_order = leads.clone();
    in_order.sort_by(|one, other| one.2.total_cmp(&other.2));
    assert_eq!(in_order.len(), work.len());
    assert!(work.len() >= 4, "{work:?}");
    // The axis begins with the demo, the log with the boot.
    let zero = work[0].2 as f64 / 1e9 - in_order[0].2;
    for ((name, epoch, first, last), (_, row, from, until, says)) in work.iter().zip(&in_order) {
        assert_eq!((row.as_str(), says.as_str()), (*name, &*format!("{name} leads, epoch {epoch}")));
        let [first, last] = [first, last].map(|at| *at as f64 / 1e9 - zero);
        assert!(is_equal(first, *from) && is_equal(last, *until), "{name}: {first} {from}, {last} {until}");
    }
    let all =
        picture.bars("all").map(|(_, row, from, until, says)| (row.as_str(), *from, *until, says.clone()));
    let expected =
        in_order.iter().map(|(_, row, from, until, _)| ("who leads", *from, *until, format!("{row} leads")));
    assert_eq!(all.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    assert_eq!(picture.bars("overlap").count(), 0);

    // The times of a line and of the next one.
    let until = |place: usize| said.get(place + 1).map_or(f64::INFINITY, |(time, ..)| time + 0.002);
    let lines = |texts: &[&str]| {
        let found =
            said.iter().enumerate().filter(|(_, (.., text))| texts.iter().any(|of| text.starts_with(of)));
        found.map(|(place, (time, name, _))| (place, name.clone(), *time)).collect::<Vec<_>>()
    };
    let mut expected = 0;
    for (class, text) in [("kill", "kill -9 of"), ("stop", "SIGTERM: "), ("hang", "SIGSTOP ")] {
        for (place, name, time) in lines(&[text]) {
            let is_it = |(of, row, at): &&(String, String, f64)| {
                (of.as_str(), row) == (class, &name) && (time - 0.002..=until(place)).contains(at)
            };
            assert_eq!(
                picture.marks.iter().filter(is_it).count(),
                1,
                "{class} of {name} at {time}: {:?}",
                picture.marks
            );
            expected += 1;
        }
    }
    let next = picture.marks.iter().filter(|(class, ..)| class == "next");
    let mut next = next.map(|(_, row, at)| (row.clone(), *at)).collect::<Vec<_>>();
    next.sort_by(|one, other| one.1.total_cmp(&other.1));
    let begun = in_order[1..].iter().map(|(_, row, from, ..)| (row.clone(), *from)).collect::<Vec<_>>();
    assert_eq!(next.len(), begun.len());
    assert!(
        next.iter().zip(&begun).all(|(one, other)| one.0 == other.0 && is_equal(one.1, other.1)),
        "{next:?} {begun:?}"
    );
    expected += next.len();
    // The host that hung has died before the demo says so.
    let (hangs, ends) = (lines(&["SIGSTOP "]), lines(&["exited with status 137"]));
    let is_it = |(class, row, at): &&(String, String, f64)| {
        (class.as_str(), row) == ("kill", &hangs[0].1) && (hangs[0].2..=ends[0].2 + 0.002).contains(at)
    };
    assert_eq!(picture.marks.iter().filter(is_it).count(), 1, "{:?}", picture.marks);
    assert_eq!(picture.marks.len(), expected + 1, "{:?}", picture.marks);

    for name in ["A", "B", "C"] {
        let of_name =
            |lines: Vec<(usize, String, f64)>| lines.into_iter().filter(move |(_, of, _)| of == name);
        let starts = of_name(lines(&["is started (vvm run"])).map(|(.., time)| time);
        let ends = of_name(lines(&["was ended by", "exited with status"])).map(|(.., time)| time);
        let spans = starts.zip(ends).collect::<Vec<_>>();
        let runs = picture.bars("runs").filter(|(_, row, ..)| row == name).collect::<Vec<_>>();
        assert_eq!(runs.len(), spans.len(), "{name}");
        let before =
            |time: f64| said.iter().map(|(at, ..)| *at).rfind(|at| *at < time - 0.002).unwrap_or(0.0) - 0.002;
        for ((started, ended), (_, _, from, until, _)) in spans.iter().zip(runs) {
            for (shown, line) in [(from, started), (until, ended)] {
                assert!((before(*line)..=line + 0.002).contains(shown), "{name}: {shown} {line}");
            }
        }
    }
    // Two outages of a TTL at most, each with its end past the deadline.
    for class in ["ttl", "dead"] {
        let rows = picture.bars(class).map(|(_, row, ..)| row.clone()).collect::<Vec<_>>();
        let expected = [lines(&["kill -9 of"]), hangs.clone()].concat().into_iter().map(|(_, name, _)| name);
        assert_eq!(
            rows.iter().collect::<BTreeSet<_>>(),
            expected.collect::<Vec<_>>().iter().collect(),
            "{class}"
        );
        let most = if class == "ttl" { 2.001 } else { 0.401 };
        assert!(picture.bars(class).all(|(_, _, from, until, _)| until - from <= most), "{class}");
    }
    true
}

#[test]
fn file_that_cannot_be_written_is_named_before_the_demo_begins_and_stays_as_it_was() {
    let trial = VVM.trial();
    let missing = trial.folder().join("missing/demo.svg");
    for (path, cause) in
        [(missing.to_str().unwrap(), "no such file or directory"), ("/dev/full", "no regular file")]
    {
        let output = demo(&trial, &["--svg", path]).output().unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(64), 0));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(&format!("--svg: can't write {path} (")) && said.contains(cause), "{said}");
    }
}

#[test]
fn short_ttl_is_refused_at_once() {
    let output = VVM.command(&[]).args(["demo", "--ttl", "200ms"]).output().unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert!(output.stdout.is_empty(), "a step was shown before the refusal");
    assert!(String::from_utf8(output.stderr).unwrap().contains("choose a longer one"));
}

mod timed {
    use super::*;

    #[test]
    fn every_check_holds_and_nothing_is_left_behind() {
        VVM.timed("the demo", |attempt, trial| {
            let temporary = tempfile::tempdir_in("/dev/shm").unwrap();
            let mut command = demo(trial, &["--json", "--ttl", "2s"]);
            let began_at = SystemClock::read();
            let output =
                command.env("TMPDIR", temporary.path()).current_dir(trial.folder()).output().unwrap();
            let summary = summary(&output);
            check_safety(trial, &output, &summary);
            // 1.1 TTL and 200 ms; a poll and 100 ms; what a scheduler needs.
            let bounds = [("crash_failover_ms", 2_400), ("handover_ms", 600), ("kill_after_deadline_ms", 20)];
            for (name, bound) in bounds {
                let Some(took) = summary[name].as_f64() else {
                    // It gave up waiting. A machine that is late for as long as an attempt to renew may take, a
                    // tenth of the TTL, can cause that.
                    let what = format!("{name} is missing. A delay that explains it: {summary}");
                    attempt.reported(&what, Duration::ZERO, Duration::from_millis(200), began_at)?;
                    panic!("{what}");
                };
                let took = Duration::from_secs_f64(took / 1000.0);
                attempt.reported(name, Duration::from_millis(bound), took, began_at)?;
            }
            assert_eq!(summary["held"], true, "{summary}");
            assert!(summary["epochs"].as_array().unwrap().len() >= 4, "{summary}");
            assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
            assert_eq!(fs::read_dir(trial.folder()).unwrap().count(), 0);
            Ok(())
        });
    }
}
