//! The project's own commands, `cargo xtask …`. Workflow files and `.ci/run` call them, so every check can run locally.
#![forbid(unsafe_code)]

mod broken;
mod ci;
mod evidence;
mod left_out;
mod limit;
mod mutants;
mod needs;
mod side_by_side;
mod test_programs;
mod test_timed;
mod tidy;
mod workspace;

use clap::{Args, Parser, Subcommand, ValueEnum};
use evidence::Profile::{Dev, Dist, Release};
use left_out::LeftOut;
use std::{
    ffi::OsString,
    os::unix::process::CommandExt as _,
    process::{self, ExitCode},
};
use workspace::Workspace;

// The list of commands fits on a screen of 24 lines: a line for each, and the rest in its own `--help`.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_help_subcommand = true)]
#[command(
    help_template = "{usage-heading} {usage}\n`cargo xtask COMMAND --help` has options.\n\n{subcommands}"
)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Tests that need no server and no second language: 8 minutes
    Test,
    /// Everything that must hold before a change lands
    ///
    /// Format, lints, tidy, documentation, single features, all tests, servers, evidence. The last lines name what was left
    /// out, and why.
    Ci(ci::Options),
    /// The project's own rules, such as links and banned words
    Tidy,
    /// Simulated worlds with faults
    ///
    /// `--seeds N`, `--seed S` for one and its trace, `--broken` for variants of the code that it must catch.
    Sim(Passed),
    /// Protocol, warm apps and containment in all orders of events
    ///
    /// Their values, within a bound: `--faults N` and `--depth N` for a larger one, `--scenario TEXT`, `--kill-share 819` or
    /// `--drop ASSUMPTION` for a story of two leaders.
    Check(Passed),
    /// Small changes of trusted code, and whether tests notice
    ///
    /// `--package NAME`, `--shard 0/8`, `--diff FILE`. It needs cargo-mutants and root.
    Mutants(mutants::Options),
    /// Damaged bytes in front of everything that decodes bytes
    ///
    /// `--minutes N`, `--only TEXT`, `--seed S`.
    Decoders(Passed),
    /// Real vvm processes on one storage, killed at random
    ///
    /// For three minutes, or `--duration SECONDS` or `--kills N`. `--seed S`, `--postgres`, `--old PATH` for candidates of two
    /// versions, `--warm restart|keep` for warm apps, with `--client python|go|node` written with that client.
    Safety(Passed),
    /// Real processes that copy a folder, their leader killed
    ///
    /// Whether every step counted exactly once: `--kills N`, `--seed S`.
    Resume(Passed),
    /// `vvm once` on three machines, the one that runs it killed
    ///
    /// Whether each period was done, and not run again after that: `--periods N`, `--seed S`.
    Once(Passed),
    /// Suites of drivers, and `vvm`, on servers that it starts
    ///
    /// `--only scylla,postgres,mysql,etcd,kubernetes,s3,dynamodb`, `--nodes 3`. Or recorded calls on every storage in trouble,
    /// and their check: `--histories`, `--only mem,sqlite,…`, `--duration SECONDS`. Or leaders during fail-overs that lose
    /// writes, restores, and deletions by hand: `--faults`, `--rounds N`.
    TestDrivers(Passed),
    /// Builds a server that takes long to build, once
    Servers(ServerOptions),
    /// The tests of real time
    TestTimed(test_timed::Options),
    /// Every command of evidence.md at a small size
    ///
    /// Whether it works, not its figures.
    Evidence(SmokeOptions),
    /// What elections cost, and how long fail-over takes
    ///
    /// `--quick`, `--only NAME`. Or what one storage costs: `--storage URL`, or `--server NAME` on servers that it
    /// starts and ends. Or a page with plots: `--report DIR`, and any number of `--server NAME`. Or pairs of hosts in trouble:
    /// `successors`, with names of trials, `--support SECONDS`, `--rounds N` and `--seconds N`.
    Bench(Passed),
    /// What a release has, in target/packages
    ///
    /// Static programs, archives, a Debian package, a wheel and a container image: `--libc musl`, `--reproduce` to build twice
    /// and compare, `--try` to install and run.
    Dist(Passed),
    /// Packages the published crates, and builds each from it
    Package,
    /// Draws docs/demo.svg anew, from a run of the demo
    Picture,
}

#[derive(Debug, Args)]
struct SmokeOptions {
    /// Run each command at a small size.
    #[arg(long, required = true)]
    smoke: bool,
    /// Fail if a command has to be left out because this machine lacks what it needs.
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Args)]
struct ServerOptions {
    /// The server. Its program is kept in the cache folder, where `test-drivers` looks for it.
    server: LongBuild,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LongBuild {
    /// kube-apiserver: ten minutes and 3 GB on 2 cores, with Go.
    Kubernetes,
}

/// Arguments for the program behind a command; `-- --help` lists them.
#[derive(Debug, Args)]
struct Passed {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Passed {
    fn has(&self, option: &str) -> bool {
        self.arguments.iter().any(|argument| argument == option)
    }

    /// Whether `option` is there, its value behind it or in it.
    fn names(&self, option: &str) -> bool {
        self.texts().any(|text| text.split('=').next() == Some(option))
    }

    fn is_of_one_storage(&self) -> bool {
        ["--storage", "--server"].iter().any(|option| self.names(option))
    }

    /// Whether this measurement of `bench` is asked for.
    fn measures(&self, name: &str) -> bool {
        self.texts().any(|text| text.trim_start_matches("--only=") == name)
    }

    /// The arguments behind the name of a subcommand.
    fn behind(&self, subcommand: &str) -> Vec<OsString> {
        [subcommand.into()].into_iter().chain(self.arguments.iter().cloned()).collect()
    }

    /// The features of the drivers that are asked for.
    fn drivers(&self) -> String {
        let is_url_of = |text: &str, scheme| {
            let text = text.trim_start_matches("--storage=").trim_start_matches("--server=");
            text.split(':').next() == Some(scheme)
        };
        let asked_for = |scheme| self.texts().any(|text| is_url_of(text, scheme));
        let scylla = asked_for("scylla");
        let drivers = [
            ("sled", asked_for("sled")),
            ("scylla", scylla),
            ("dynamodb", asked_for("dynamodb")),
            ("postgres", asked_for("postgres") || self.has("--postgres")),
            ("mysql", asked_for("mysql")),
            ("etcd", asked_for("etcd")),
            ("kubernetes", asked_for("k8s")),
            ("object-store", asked_for("s3")),
        ];
        drivers
            .into_iter()
            .filter_map(|(feature, asked_for)| asked_for.then_some(feature))
            .collect::<Vec<_>>()
            .join(",")
    }

    /// Builds `program`, and runs a kind of kills of it, both with the drivers that are asked for.
    fn run_beside(&self, program: &str, kind: &str) -> bool {
        let drivers = self.drivers();
        evidence::build(Release, program, &drivers)
            && evidence::run(Release, "kills", &drivers, &self.behind(kind))
    }

    fn texts(&self) -> impl Iterator<Item = &str> {
        self.arguments.iter().filter_map(|argument| argument.to_str())
    }
}

/// Python's library writes the archives of a release. It leaves no files of its own, which would be changes of the work
/// tree.
const DIST: &[&str] = &["python3", "-B", "xtask/src/dist/dist.py"];

/// Becomes a program with a script, so that signals reach it. Returns only if it can't be started.
fn become_script(words: &[&str], arguments: &[OsString]) -> bool {
    let Some(Workspace { root, .. }) = Workspace::read_for("xtask") else { return false };
    let error = process::Command::new(words[0]).args(&words[1..]).args(arguments).current_dir(root).exec();
    eprintln!("xtask: `{}` can't be started: {error}. Install it", words[0]);
    false
}

fn main() -> ExitCode {
    let done = match CommandLine::parse().command {
        Command::Test => test_programs::main(),
        Command::Ci(options) => ci::run(&options),
        Command::Tidy => tidy::run(),
        Command::Sim(passed) if passed.arguments.first().is_some_and(|first| first == "--broken") => {
            broken::run(passed.arguments.get(1..).unwrap_or_default())
        }
        Command::Sim(passed) => evidence::run(Release, "simulation", "", &passed.arguments),
        Command::Check(passed) => evidence::run(Release, "check", "", &passed.arguments),
        Command::Mutants(options) => mutants::run(&options),
        Command::Decoders(passed) => evidence::run(Release, "decoders", "", &passed.arguments),
        Command::Safety(passed) => passed.run_beside("vvm-cli", "safety"),
        Command::Resume(passed) => passed.run_beside("resumable-copy", "resume"),
        Command::Once(passed) => passed.run_beside("vvm-cli", "once"),
        Command::TestDrivers(passed) if passed.has("--faults") || passed.has("--histories") => {
            evidence::run(Dev, "faults", "", &passed.arguments)
        }
        Command::TestDrivers(passed) => evidence::run(Dev, "servers", "", &passed.arguments),
        Command::Servers(ServerOptions { server: LongBuild::Kubernetes }) => {
            evidence::run(Dev, "servers", "", &["--build-kubernetes".into()])
        }
        Command::Evidence(SmokeOptions { all, .. }) => {
            let mut left_out = LeftOut::default();
            let held =
                evidence::smoke(all, &mut left_out).inspect_err(|why| eprintln!("evidence: {why}")).is_ok();
            print!("{left_out}");
            held
        }
        Command::TestTimed(options) => test_timed::run(&options),
        Command::Bench(passed) if passed.names("--report") => {
            evidence::build(Dist, "vvm-cli", "etcd,kubernetes")
                && evidence::run(Dist, "bench", &passed.drivers(), &passed.arguments)
        }
        Command::Bench(passed) if passed.is_of_one_storage() && !passed.names("--only") => {
            evidence::run(Dist, "bench", &passed.drivers(), &passed.arguments)
        }
        Command::Bench(passed) => {
            // The features of `vvm`, and of the measurements.
            let (program, own) = if passed.measures("beside-peers") {
                ("etcd,kubernetes", "")
            } else if passed.measures("between-machines") {
                ("etcd,kubernetes,postgres", "")
            } else if passed.measures("lost-machines") {
                ("etcd,object-store,postgres", "")
            } else if passed.measures("standbys") || passed.measures("ui") {
                ("postgres", "postgres")
            } else if passed.names("--server") || passed.measures("successors") {
                ("postgres", "")
            } else {
                ("", "")
            };
            evidence::build(Dist, "vvm-cli", program) && evidence::run(Dist, "bench", own, &passed.arguments)
        }
        Command::Dist(passed) => become_script(DIST, &passed.arguments),
        Command::Package => workspace::package(),
        Command::Picture => {
            evidence::run(Dev, "vvm-cli", "", &["demo", "--svg", "docs/demo.svg"].map(Into::into))
        }
    };
    if done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn list_of_commands_fits_on_a_small_screen() {
        let help = CommandLine::command().render_help().to_string();
        assert!(help.lines().count() < 24, "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }

    #[test]
    fn programs_in_python_keep_what_their_own_tests_say() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/dist");
        match process::Command::new(DIST[0]).args(["-B", "-m", "unittest"]).current_dir(folder).output() {
            Ok(ran) => assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr)),
            Err(error) => println!("left out: `{}` can't be started: {error}", DIST[0]),
        }
    }
}
