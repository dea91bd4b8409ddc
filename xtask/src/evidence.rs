//! Commands that show what the README claims: each runs a package under `evidence/`, in release where time is measured.
//! And `cargo xtask evidence --smoke`: every command of `docs/contributing/evidence.md` at a small size, with the
//! programs of the tests, unoptimised: it shows that a command works, and no figure.

use crate::{
    left_out::{self, LeftOut},
    limit,
    needs::{Need, Server, scratch_variable},
    side_by_side::side_by_side,
    workspace::{self, Workspace, cargo},
};
use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};
use vvm_clock::SystemClock;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Profile {
    /// Not optimised: where servers take the time, the build would take more of it.
    Dev,
    Release,
    /// As it is given to others, which takes longer: for figures.
    Dist,
}

/// Builds the programs of `package` with features, of which there may be none, for evidence that starts them.
pub(crate) fn build(profile: Profile, package: &str, features: &str) -> bool {
    succeeds("build", profile, package, features, &[])
}

pub(crate) fn run(profile: Profile, package: &str, features: &str, arguments: &[OsString]) -> bool {
    let arguments: Vec<OsString> = [OsString::from("--")].iter().chain(arguments).cloned().collect();
    succeeds("run", profile, package, features, &arguments)
}

fn succeeds(verb: &str, profile: Profile, package: &str, features: &str, arguments: &[OsString]) -> bool {
    let Some(Workspace { root, .. }) = Workspace::read_for(package) else { return false };
    let profile = match profile {
        Profile::Dev => "dev",
        Profile::Release => "release",
        Profile::Dist => "dist",
    };
    let mut command = cargo();
    command.args([verb, "--quiet", "--profile", profile, "--locked", "--package", package]);
    workspace::succeeds(package, command.args(["--features", features]).args(arguments).current_dir(root))
}

/// They mostly wait: two at once keep two processors busy for 39 % of the time.
const AT_ONCE: usize = 3;

enum How {
    /// A program below `evidence/`, with arguments that make it small.
    Small(&'static str),
    /// `cargo xtask ci` runs it as this step of its own.
    OwnStep(&'static str),
}

use How::{OwnStep, Small};

/// The commands behind `cargo xtask`, as on the page. At a small size, late may be what a busy machine delays.
#[rustfmt::skip]
const SMOKES: &[(&str, How, Option<Need>)] = &[
    ("sim --seeds 50000", OwnStep("broken variants"), None),
    ("sim --broken", OwnStep("broken variants"), None),
    ("check", OwnStep("broken variants"), None),
    ("decoders --minutes 10", Small("decoders --minutes 0.005"), None),
    ("safety", Small("kills safety --duration=10 --fault-ms=2500 --at-most-ms=1000"), None),
    ("safety --kills 1000", Small("kills safety --kills=3 --fault-ms=2500 --at-most-ms=1000"), None),
    ("safety --old vvm-b95e06b", Small("kills safety --old=vvm --duration=5 --at-most-ms=1000"), None),
    ("safety --old vvm-f37ca21 --postgres",
        Small("kills safety --old=vvm --postgres --duration=10 --at-most-ms=1000"), JAVA),
    ("safety --warm restart", Small("kills safety --warm=restart --kills=3 --fault-ms=2500 --at-most-ms=1000"), None),
    ("safety --warm keep", Small("kills safety --warm=keep --kills=3 --fault-ms=2500 --at-most-ms=1000"), None),
    ("safety --warm keep --client python",
        Small("kills safety --warm=keep --kills=3 --fault-ms=2500 --at-most-ms=1000 --client python"), PYTHON),
    ("safety --warm keep --client go",
        Small("kills safety --warm=keep --kills=3 --fault-ms=2500 --at-most-ms=1000 --client go"), GO),
    ("safety --warm keep --client node",
        Small("kills safety --warm=keep --kills=3 --fault-ms=2500 --at-most-ms=1000 --client node"), NODE),
    ("resume", Small("kills resume --kills 2 --ttl-ms 2000"), None),
    ("once", Small("kills once --periods 3 --ttl-ms 2000"), None),
    ("test-drivers --only scylla", OwnStep("scylla on a real server"), None),
    ("test-drivers --only dynamodb", OwnStep("dynamodb on a real server"), None),
    ("test-drivers --only postgres", OwnStep("postgres on a real server"), None),
    ("test-drivers --only mysql", OwnStep("mysql on a real server"), None),
    ("test-drivers --only etcd", OwnStep("etcd on a real server"), None),
    ("test-drivers --only kubernetes", OwnStep("kubernetes on a real server"), None),
    ("test-drivers --only sled", OwnStep("other tests"), None),
    ("test-drivers --only s3 --all-servers", OwnStep("s3 on a real server"), None),
    ("test-drivers --faults --only postgres", Small("faults --faults --only=postgres --rounds=1"), JAVA),
    ("test-drivers --faults --only mysql", Small("faults --faults --only=mysql --rounds=1"), JAVA),
    ("test-drivers --faults --only s3", Small("faults --faults --only=s3 --rounds=1"), GO),
    ("test-drivers --faults --only kubernetes", Small("faults --faults --only=kubernetes --rounds=1"), API),
    ("test-drivers --histories", Small("faults --histories --only=mem,sqlite,sled,s3 --duration=5"), GO),
    ("test-drivers --histories", Small("faults --histories --only=scylla --duration=20"), JAVA_AND_GO),
    ("test-drivers --histories", Small("faults --histories --only=dynamodb --duration=20"), JAVA_AND_GO),
    ("test-drivers --histories", Small("faults --histories --only=postgres --duration=20"), JAVA_AND_GO),
    ("test-drivers --histories", Small("faults --histories --only=mysql --duration=20"), JAVA_AND_GO),
    ("test-drivers --histories", Small("faults --histories --only=etcd --duration=20"), GO),
    ("test-drivers --histories", Small("faults --histories --only=kubernetes --duration=20"), API),
    ("test-timed --repeat 12 --test guardian --test pidns --only cases::warm", OwnStep("tests"), None),
    ("test-timed --repeat 3 --test recipes --only gunicorn_replaces", OwnStep("recipes"), None),
    ("bench --only pairs", Small("bench --quick --only pairs"), None),
    ("bench --only held", Small("bench --quick --only held"), None),
    ("bench --only step-up", Small("bench --quick --only step-up"), None),
    ("bench --only sqlite", Small("bench --quick --only sqlite"), None),
    ("bench --only dead-host", Small("bench --quick --only dead-host"), None),
    ("bench --only warm", Small("bench --quick --only warm"), None),
    ("bench --only warm --server postgres", Small("bench --quick --only=warm --server=postgres"), JAVA),
    ("bench --only waiting", Small("bench --quick --only waiting"), None),
    ("bench --only beside-peers", Small("bench --quick --only beside-peers"), ETCD),
    ("bench --report target/report", Small("bench --quick --report target/report"), None),
    ("bench --only between-machines", Small("bench --quick --only between-machines"), NAMESPACES),
    ("bench --only lost-machines", Small("bench --quick --only lost-machines"), NAMESPACES),
    ("bench successors", Small("bench successors --rounds=1 --seconds=4 --support=2"), NAMESPACES),
    ("bench --server scylla --documents", Small("bench --quick --server=scylla --documents"), JAVA),
    ("bench --server etcd", Small("bench --quick --server etcd"), GO),
    ("bench --server postgres", Small("bench --quick --server postgres"), JAVA),
    ("bench --server s3", Small("bench --quick --server s3"), GO),
    ("bench --server postgres --held 1000", Small("bench --server=postgres --held=5 --quick"), JAVA),
    ("bench --server dynamodb --held 1000", Small("bench --server=dynamodb --held=5 --quick"), JAVA),
    ("bench --only standbys", Small("bench --quick --only standbys"), JAVA),
    ("bench --only ui", Small("bench --quick --only ui"), JAVA),
];

const JAVA: Option<Need> = Some(Need { server_at: None, server: Server::OnJava });
const GO: Option<Need> = Some(Need { server_at: None, server: Server::BuiltByGo });
const JAVA_AND_GO: Option<Need> = Some(Need { server_at: None, server: Server::OnJavaWithGo });
const PYTHON: Option<Need> = Some(Need { server_at: None, server: Server::Python });
const NODE: Option<Need> = Some(Need { server_at: None, server: Server::Node });
const API: Option<Need> = Some(Need { server_at: None, server: Server::Kubernetes });
const NAMESPACES: Option<Need> = Some(Need { server_at: None, server: Server::InNamespaces });
const ETCD: Option<Need> = Some(Need { server_at: None, server: Server::Etcd });

/// Runs all of them, and notes those that this machine can't run. With `all`, these have failed. The error names the
/// commands that failed, or says why none could be run.
pub(crate) fn smoke(all: bool, left_out: &mut LeftOut) -> Result<(), String> {
    let root = Workspace::read().map_err(|error| error.to_string())?.root;
    build_all(&root)?;
    let mut runs = Vec::new();
    let before = left_out.len();
    for (command, how, need) in SMOKES {
        match how {
            OwnStep(step) => println!("==> cargo xtask {command}: run by cargo xtask ci, as `{step}`"),
            Small(line) => match need.and_then(Need::missing) {
                Some(missing) => left_out.add(format!("cargo xtask {command}"), missing),
                None => runs.push(Run { command, line }),
            },
        }
    }
    let mut failed = Vec::new();
    for (run, outcome) in runs.iter().zip(side_by_side(&runs, AT_ONCE, |run| run.carry_out(&root))) {
        match outcome {
            Ok(lacks) => left_out.append(lacks),
            Err(()) => failed.push(run.command),
        }
    }
    let left_out = left_out.len() - before;
    println!("evidence: {} commands, {} failed, {left_out} left out", SMOKES.len(), failed.len());
    if !failed.is_empty() {
        return Err(format!("failed: `{}`", failed.join("`, `")));
    }
    if all && left_out > 0 {
        return Err(format!("{left_out} commands were left out"));
    }
    Ok(())
}

/// A command that this machine can run, and what stands for it: a program below `evidence/` and its arguments.
struct Run<'a> {
    command: &'a str,
    line: &'a str,
}

impl Run<'_> {
    /// Prints the time that it took, or its output if it failed. Returns what it left out.
    fn carry_out(&self, root: &Path) -> Result<LeftOut, ()> {
        let Self { command, line } = self;
        let (program, arguments) = line.split_once(' ').unwrap_or((line, ""));
        let mut run = Command::new(self::program(root, program));
        run.args(arguments.split_whitespace()).current_dir(root).envs(scratch_variable());
        let (began, mut text, mut left_out) = (SystemClock::read(), String::new(), LeftOut::default());
        let ended = limit::watch(&mut run, limit::STEP, |line| {
            if let Some(why) = left_out::reason(line) {
                left_out.add(format!("a part of cargo xtask {command}"), why);
            }
            text.push_str(line);
            text.push('\n');
            false
        });
        let took = SystemClock::read().since(began).as_secs_f64();
        let why = match ended {
            Ok(status) if status.success() => {
                println!("==> cargo xtask {command}: {line}: ok, {took:.1} s");
                return Ok(left_out);
            }
            Ok(status) => format!("{text}{status}, after {took:.1} s"),
            Err(error) => format!("{program} can't be run: {error}"),
        };
        println!("==> cargo xtask {command}: {line}\n{why}\n<== FAILED\n");
        Err(())
    }
}

/// With the packages and features of the tests, which share their dependencies.
pub(crate) const BUILD_ALL: &str = "build --quiet --locked --workspace --all-features --all-targets";

fn build_all(root: &Path) -> Result<(), String> {
    match cargo().args(BUILD_ALL.split(' ')).current_dir(root).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err("the programs can't be built, for the reason above".into()),
        Err(error) => Err(format!("cargo could not be started: {error}")),
    }
}

/// Where [`BUILD_ALL`] puts a program.
pub(crate) fn program(root: &Path, name: &str) -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    target.join("debug").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CommandLine;
    use clap::Parser as _;
    use std::collections::BTreeSet;

    const PAGE: &str = include_str!("../../docs/contributing/evidence.md");

    fn commands_of_the_page() -> BTreeSet<&'static str> {
        let cells = PAGE.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").nth(1));
        cells.filter_map(|cell| cell.strip_prefix("`cargo xtask ")?.strip_suffix('`')).collect()
    }

    #[test]
    fn every_command_of_the_page_is_run_and_no_other() {
        let run: BTreeSet<&str> = SMOKES.iter().map(|(command, ..)| *command).collect();
        assert_eq!(run, commands_of_the_page());
    }

    #[test]
    fn every_row_of_the_page_has_claim_command_figure_amount_and_date() {
        let tables = PAGE.split("| claim | command | figure | tried | when |\n").skip(1);
        let rows = tables.flat_map(|table| table.lines().skip(1).take_while(|line| line.starts_with("| ")));
        for row in rows {
            assert!(row.chars().count() <= 220, "{row}");
            let cells: Vec<&str> = row.trim_matches(['|', ' ']).split(" | ").collect();
            assert_eq!(cells.len(), 5, "{row}");
            assert!(cells[1].starts_with("`cargo "), "{row}");
            assert!(cells.iter().all(|cell| !cell.is_empty()) && cells[4].starts_with("20"), "{row}");
        }
    }

    #[test]
    fn every_command_of_the_page_is_understood() {
        for command in commands_of_the_page() {
            let line = ["xtask"].into_iter().chain(command.split(' '));
            if let Err(error) = CommandLine::try_parse_from(line) {
                panic!("{command}: {error}");
            }
        }
    }

    #[test]
    fn step_that_runs_a_command_in_ci_exists() {
        let steps = include_str!("ci/steps.rs");
        for (_, how, _) in SMOKES {
            if let OwnStep(step) = how {
                // The step of a driver's server is named after the driver.
                let name = step.find(" on a real server").map_or(*step, |at| &step[at..]);
                assert!(steps.contains(name), "{step}");
            }
        }
    }
}
