//! `cargo xtask mutants`: whether tests notice small changes of the code on which one leader depends. cargo-mutants lists
//! the changes, called mutants. [`planting`] puts them into one copy of the tree, so that one build serves hundreds.
//!
//! Each mutant meets the tests of its package, the quick ones first. One that lives needs a line in `argued.txt`.

mod planting;

use crate::{
    broken::{BrokenError, copy_tree, output_of_build, programs_of, read, said},
    ci::{limit, needs::scratch_variable},
    workspace::{self, Workspace, cargo},
};
use clap::{Args, ValueEnum};
use planting::{Planted, Source, VARIABLE};
use serde::Deserialize;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};
use vvm_clock::SystemClock;

/// What is changed, and what has to notice.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Other files than those of a group.
    files: Vec<String>,
    /// Protocol, timing and the decision about a step; or deadman, guardian and keeper.
    #[arg(long, value_enum, default_value = "first")]
    group: Group,
    /// Only one of several parts, counted from 0: `--shard 0/4`.
    #[arg(long, value_parser = shard, default_value = "0/1")]
    shard: (usize, usize),
    /// Only mutants whose text contains this.
    #[arg(long, default_value = "")]
    only: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Group {
    First,
    Second,
}

impl Group {
    fn files(self) -> &'static [&'static str] {
        match self {
            Self::First => &[
                "crates/ielections/src/protocol.rs",
                "crates/ielections/src/protocol/**/*.rs",
                "crates/ielections/src/timing.rs",
                "crates/vvm-storage/src/step.rs",
            ],
            Self::Second => &[
                "crates/deadman/src/**/*.rs",
                "crates/containment/src/rules.rs",
                "crates/containment/src/guard.rs",
                "crates/containment/src/keeper.rs",
            ],
        }
    }
}

fn shard(text: &str) -> Result<(usize, usize), String> {
    let parts = text.split_once('/').and_then(|(part, of)| Some((part.parse().ok()?, of.parse().ok()?)));
    parts.filter(|(part, of)| part < of).ok_or_else(|| "a part and their number: 0/4".into())
}

/// A package whose mutants can be judged.
struct Part {
    package: &'static str,
    /// How its tests are built.
    tests: &'static [&'static str],
    /// The search of all orders of events that judges them, too: arguments of `check`.
    search: &'static [&'static str],
}

const ALL: &[&str] = &["--all-features", "--lib", "--tests"];
const SOME: &[&str] =
    &["--no-default-features", "--features", "mem,cells,testing", "--lib", "--test", "storage"];

const PARTS: [Part; 4] = [
    Part { package: "ielections", tests: ALL, search: &[] },
    Part { package: "vvm-storage", tests: SOME, search: &[] },
    Part { package: "vvm-deadman", tests: ALL, search: &[] },
    Part { package: CONTAINMENT, tests: ALL, search: &["--only-check", "containment"] },
];

/// How long a program may take beyond ten times what it takes without a mutant.
const LIMIT: Duration = Duration::from_secs(15);

/// What a program is taken to need until it has run without a mutant.
const UNMEASURED: Duration = Duration::from_secs(30);

/// Its mutants may kill any process that they see, so they see only their own.
const CONTAINMENT: &str = "vvm-containment";
const ALONE: [&str; 5] = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];

/// The list of cargo-mutants.
#[derive(Debug, Deserialize)]
struct Mutant {
    name: String,
    package: String,
    file: PathBuf,
    function: Option<Function>,
    span: Span,
    replacement: String,
}

#[derive(Debug, Deserialize)]
struct Function {
    return_type: String,
    span: Span,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
struct Span {
    start: Position,
    end: Position,
}

/// Counted from 1, in characters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
struct Position {
    line: usize,
    column: usize,
}

impl Mutant {
    /// Its text without line and column.
    fn text(&self) -> String {
        let place = format!(":{}:{}: ", self.span.start.line, self.span.start.column);
        self.name.replacen(&place, ": ", 1)
    }
}

/// Judges the mutants. Returns whether each that lives is argued, and each that is argued lives.
pub(crate) fn run(options: &Options) -> bool {
    workspace::holds("mutants", run_chosen(options))
}

fn run_chosen(options: &Options) -> Result<bool, Box<dyn Error>> {
    let (argued, root) = (argued()?, Workspace::read()?.root);
    let group = || options.group.files().iter().map(|file| (*file).to_owned()).collect();
    let mutants = list(&root, &if options.files.is_empty() { group() } else { options.files.clone() })?;
    let mut sources = BTreeMap::new();
    for mutant in &mutants {
        if !sources.contains_key(&*mutant.file) {
            sources.insert(&*mutant.file, Source::of(read(&root.join(&mutant.file))?)?);
        }
    }
    let (part, parts) = options.shard;
    let is_chosen =
        |mutant: &(usize, &Mutant)| mutant.0 % parts == part && mutant.1.name.contains(&options.only);
    let chosen: Vec<_> = mutants.iter().enumerate().filter(is_chosen).collect();
    if let Some((_, mutant)) =
        chosen.iter().find(|(_, mutant)| PARTS.iter().all(|part| part.package != mutant.package))
    {
        return Err(format!("it is not known which tests judge {}", mutant.package).into());
    }
    let (together, alone): (Vec<_>, Vec<_>) =
        chosen.iter().copied().partition(|(_, mutant)| sources[&*mutant.file].body(mutant).is_some());
    let mut run = Run { root, sources: &sources, verdicts: BTreeMap::new() };
    run.judge(together, true)?;
    for mutant in alone {
        run.judge(vec![mutant], false)?;
    }
    let names: Vec<_> = chosen
        .iter()
        .map(|(number, mutant)| (number, mutant.text(), sources[&*mutant.file].line(mutant)))
        .collect();
    let are = |verdict| run.verdicts.values().filter(|given| **given == verdict).count();
    let missed = names.iter().filter(|(number, ..)| run.verdicts[*number] == Verdict::Missed);
    let missed: BTreeSet<_> = missed.map(|(_, text, line)| (&**text, *line)).collect();
    let every: BTreeSet<_> =
        mutants.iter().map(|mutant| (mutant.text(), sources[&*mutant.file].line(mutant))).collect();
    let of_run = |mutant: &str, line: &str| names.iter().any(|(_, text, at)| text == mutant && *at == line);
    let faults = faults(&argued, &missed, |argued| {
        let is_of_file =
            sources.keys().any(|file| argued.mutant.starts_with(&format!("{}: ", file.display())));
        of_run(argued.mutant, argued.line)
            || is_of_file && !every.contains(&(argued.mutant.to_owned(), argued.line))
    });
    faults.iter().for_each(|(what, text, line)| println!("{what}\nmutant {text}\nat     {line}"));
    let (caught, slow, lived) = (are(Verdict::Caught), are(Verdict::TimedOut), are(Verdict::Missed));
    println!(
        "{} viable mutants, {caught} caught, {slow} timed out, {lived} lived; {} do not compile; {} faults of the list",
        caught + slow + lived,
        are(Verdict::Unviable),
        faults.len()
    );
    Ok(faults.is_empty() && !chosen.is_empty())
}

/// What is built for tests alone, and texts for people.
const LEFT_OUT: [&str; 4] = ["::rebase", "Rebase::", "Display for", "Debug for"];

/// Returns the mutants of the files.
fn list(root: &Path, files: &[String]) -> Result<Vec<Mutant>, Box<dyn Error>> {
    let mut command = cargo();
    command.args(["mutants", "--list", "--json", "--workspace"]).current_dir(root);
    files.iter().for_each(|file| {
        command.args(["--file", file]);
    });
    let listed = output_of_build(&mut command)?;
    if !listed.status.success() {
        let how = "cargo install cargo-mutants --locked --version 27.1.0";
        return Err(
            format!("{}cargo-mutants lists nothing. If it is missing: {how}", said(&listed.stderr)).into()
        );
    }
    let mut mutants: Vec<Mutant> = serde_json::from_slice(&listed.stdout)?;
    // A package that depends on itself for its tests is listed twice.
    let mut seen = BTreeSet::new();
    mutants.retain(|mutant| {
        !LEFT_OUT.iter().any(|part| mutant.name.contains(part)) && seen.insert(mutant.name.clone())
    });
    Ok(mutants)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Caught,
    TimedOut,
    Missed,
    Unviable,
}

/// A test program.
struct Program {
    command: Vec<OsString>,
    folder: PathBuf,
    /// The package whose mutants it judges.
    package: &'static str,
    took: Duration,
}

/// Mutants with their numbers.
type Numbered<'a> = Vec<(usize, &'a Mutant)>;

struct Run<'a> {
    root: PathBuf,
    sources: &'a BTreeMap<&'a Path, Source>,
    verdicts: BTreeMap<usize, Verdict>,
}

impl Run<'_> {
    /// Judges mutants of one copy. Unless the variable chooses among them, it is one.
    fn judge(&mut self, mut left: Numbered<'_>, by_variable: bool) -> Result<(), Box<dyn Error>> {
        let mut programs = loop {
            if left.is_empty() {
                return Ok(());
            }
            let planted = self.plant(&left, by_variable)?;
            if let Some(programs) = self.build(&left, &planted)? {
                break programs;
            }
            left.retain(|(number, _)| !self.verdicts.contains_key(number));
        };
        for program in programs.iter_mut().filter(|_| by_variable) {
            let began = SystemClock::read();
            if self.fails(program, None)? != Some(false) {
                return Err(format!("{:?} fails without a mutant", program.command).into());
            }
            program.took = SystemClock::read().since(began);
        }
        programs.sort_by_key(|program| program.took);
        for (number, mutant) in left {
            let found = self.find(&programs, number, mutant)?;
            let (verdict, by) = found.unwrap_or((Verdict::Missed, String::new()));
            self.tell(number, mutant, verdict, &by);
        }
        Ok(())
    }

    fn tell(&mut self, number: usize, mutant: &Mutant, verdict: Verdict, by: &str) {
        println!("{verdict:?} {}: {by}", mutant.name);
        self.verdicts.insert(number, verdict);
    }

    /// Returns the first program that notices the mutant.
    fn find(
        &self,
        programs: &[Program],
        number: usize,
        mutant: &Mutant,
    ) -> io::Result<Option<(Verdict, String)>> {
        for program in programs.iter().filter(|program| program.package == mutant.package) {
            let verdict = match self.fails(program, Some(number))? {
                Some(false) => continue,
                Some(true) => Verdict::Caught,
                None => Verdict::TimedOut,
            };
            let name = program.command.last().and_then(|path| Path::new(path).file_name());
            return Ok(Some((verdict, name.unwrap_or_default().to_string_lossy().into_owned())));
        }
        Ok(None)
    }

    /// Whether the program fails with a mutant. `None` if it takes too long.
    fn fails(&self, program: &Program, mutant: Option<usize>) -> io::Result<Option<bool>> {
        let mut command = Command::new(&program.command[0]);
        command.args(&program.command[1..]).current_dir(&program.folder).envs(scratch_variable());
        if let Some(number) = mutant {
            command.env(VARIABLE, number.to_string());
        }
        match limit::output(&mut command, LIMIT + program.took * 10) {
            Ok(ran) => Ok(Some(!ran.status.success())),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn copy(&self) -> PathBuf {
        self.root.join("target/mutants")
    }

    /// Copies the tree with these mutants.
    fn plant(
        &self,
        mutants: &Numbered<'_>,
        by_variable: bool,
    ) -> Result<BTreeMap<PathBuf, Planted>, BrokenError> {
        let mut planted = BTreeMap::new();
        for (file, source) in self.sources {
            let of_file: Vec<_> =
                mutants.iter().copied().filter(|(_, mutant)| mutant.file == *file).collect();
            let Some((number, mutant)) = of_file.first() else { continue };
            let text = if by_variable { source.plant(&of_file) } else { source.with(*number, mutant) };
            planted.insert(file.to_path_buf(), text);
        }
        let texts: Vec<_> =
            planted.iter().map(|(file, planted)| (file.clone(), planted.text.clone())).collect();
        copy_tree(&self.root, &self.copy(), &texts)?;
        Ok(planted)
    }

    /// Builds what judges these mutants. Returns `None` if some of them don't compile, after their verdict.
    fn build(
        &mut self,
        mutants: &Numbered<'_>,
        planted: &BTreeMap<PathBuf, Planted>,
    ) -> Result<Option<Vec<Program>>, Box<dyn Error>> {
        let mut programs = Vec::new();
        let is_judge = |part: &&Part| mutants.iter().any(|(_, mutant)| mutant.package == part.package);
        for part in PARTS.iter().filter(is_judge) {
            let tests = [&["test", "--no-run", "--package", part.package], part.tests].concat();
            let search = (!part.search.is_empty()).then(|| vec!["build", "--package", "check"]);
            for (built, arguments) in [(tests, &[][..])].into_iter().chain(search.zip(Some(part.search))) {
                let mut build = cargo();
                build.args(&built).args(["--quiet", "--locked", "--profile", "broken"]);
                build.args(["--message-format=json", "--target-dir"]);
                build.arg(self.root.join("target/broken/target")).current_dir(self.copy());
                let outcome = output_of_build(&mut build)?;
                if !outcome.status.success() {
                    return self.reject(mutants, &outcome, planted).map(|()| None);
                }
                for (path, folder) in programs_of(&outcome, built[0] == "test") {
                    let around = if part.package == CONTAINMENT { &ALONE[..] } else { &[] };
                    let command = around.iter().map(OsString::from).chain([path.into()]);
                    let command = command.chain(arguments.iter().map(OsString::from)).collect();
                    programs.push(Program { command, folder, package: part.package, took: UNMEASURED });
                }
            }
        }
        Ok(Some(programs))
    }

    /// Notes the mutants that errors of the compiler are about.
    fn reject(
        &mut self,
        mutants: &Numbered<'_>,
        outcome: &Output,
        planted: &BTreeMap<PathBuf, Planted>,
    ) -> Result<(), Box<dyn Error>> {
        let text = said(&outcome.stdout);
        let messages: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let errors =
            || messages.iter().map(|message| &message["message"]).filter(|said| said["level"] == "error");
        let at = |span: &Value| {
            let line = usize::try_from(span["line_start"].as_u64()?).ok()?;
            planted.get(Path::new(span["file_name"].as_str()?))?.of_line(line)
        };
        let found: BTreeSet<usize> =
            errors().filter_map(|said| said["spans"].as_array()?.iter().find_map(at)).collect();
        for (number, mutant) in mutants.iter().filter(|(number, _)| found.contains(number)) {
            self.tell(*number, mutant, Verdict::Unviable, "");
        }
        if found.is_empty() {
            let texts: Vec<_> = errors().filter_map(|said| said["rendered"].as_str()).collect();
            return Err(
                format!("the copy does not build:\n{}{}", texts.concat(), said(&outcome.stderr)).into()
            );
        }
        Ok(())
    }
}

/// The text of a mutant, the line in which it begins, and the reason why no test has to notice it.
#[derive(PartialEq, Eq, Debug)]
struct Argued {
    mutant: &'static str,
    line: &'static str,
    reason: &'static str,
}

/// A line of the list has no meaning where it stands.
#[derive(Debug, thiserror::Error)]
#[error("xtask/src/mutants/argued.txt:{number}: what does this mean here? {line}")]
struct Unreadable {
    number: usize,
    line: &'static str,
}

/// Reads the list.
fn argued() -> Result<Vec<Argued>, Unreadable> {
    parse(include_str!("mutants/argued.txt"))
}

fn parse(list: &'static str) -> Result<Vec<Argued>, Unreadable> {
    let mut argued: Vec<Argued> = Vec::new();
    for (number, line) in
        (1..).zip(list.lines()).filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
    {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match (word, argued.last_mut()) {
            ("mutant", last) if last.as_ref().is_none_or(|last| !last.reason.is_empty()) => {
                argued.push(Argued { mutant: rest, line: "", reason: "" });
            }
            ("at", Some(last)) if last.line.is_empty() => last.line = rest.trim(),
            ("since", Some(last)) if !last.line.is_empty() && last.reason.is_empty() => {
                last.reason = rest.trim()
            }
            _ => return Err(Unreadable { number, line }),
        }
    }
    Ok(argued)
}

/// Returns what is wrong: missed mutants without a line in the list, and lines without a missed mutant. A mutant is named by its
/// text and its line. Only lines about `seen` are judged.
fn faults<'a>(
    argued: &'a [Argued],
    missed: &BTreeSet<(&'a str, &'a str)>,
    seen: impl Fn(&Argued) -> bool,
) -> Vec<(&'static str, &'a str, &'a str)> {
    let names: BTreeSet<_> = argued.iter().map(|argued| (argued.mutant, argued.line)).collect();
    let unargued = missed.difference(&names).map(|(mutant, line)| ("MISSED", *mutant, *line));
    let idle = argued.iter().filter(|argued| seen(argued) && !missed.contains(&(argued.mutant, argued.line)));
    unargued
        .chain(idle.map(|argued| ("NOT MISSED, so delete its line:", argued.mutant, argued.line)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_is_read_and_has_a_reason_for_each() {
        assert!(argued().unwrap().iter().all(|argued| !argued.reason.is_empty()));
        let list = "# note\nmutant a.rs: replace < with <= in f\nat   a < b\nsince equal\n\nmutant b\nat c\nsince d\n";
        let [first, _] = &parse(list).unwrap()[..] else { panic!("it has two") };
        let expected = Argued { mutant: "a.rs: replace < with <= in f", line: "a < b", reason: "equal" };
        assert_eq!(first, &expected);
        assert_eq!(parse("mutant a\nat b\nmutant c\n").unwrap_err().number, 3);
    }

    #[test]
    fn missed_mutant_needs_a_line_and_a_line_a_missed_mutant() {
        let of = |mutant| Argued { mutant, line: "x", reason: "y" };
        let argued = [of("a"), of("b"), of("elsewhere")];
        let missed = BTreeSet::from([("a", "x"), ("c", "x")]);
        let faults = faults(&argued, &missed, |argued| argued.mutant != "elsewhere");
        assert_eq!(faults.iter().map(|fault| fault.1).collect::<Vec<_>>(), ["c", "b"]);
    }
}
