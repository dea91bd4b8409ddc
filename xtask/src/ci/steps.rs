//! Lints, documentation and single features share their checked dependencies, and tests their built ones: each set of
//! flags and features costs a build of its own, so there are as few as show what has to be shown.

use crate::{
    broken, evidence,
    left_out::{self, LeftOut},
    limit,
    needs::{Need, Server, scratch_variable},
    test_programs::{self, Selection},
    tidy,
    workspace::{Workspace, cargo},
};
use std::{
    fmt, io,
    path::Path,
    process::{Command, ExitStatus},
};
use timed::records;

#[derive(Debug)]
pub(super) struct Step {
    pub(super) name: String,
    pub(super) work: Work,
    pub(super) need: Option<Need>,
    /// Whether it mostly waits, so that another one may run beside it.
    pub(super) waits: bool,
}

#[derive(Debug)]
pub(super) enum Work {
    Cargo {
        arguments: Vec<String>,
        flags: Option<(&'static str, &'static str)>,
    },
    /// One of the programs that an earlier step has built.
    Program {
        name: &'static str,
        arguments: Vec<String>,
    },
    Tidy,
    Tests(Selection),
    Broken,
    Evidence,
}

pub(super) fn all(workspace: &Workspace) -> Vec<Step> {
    let own = |name: &str, work| Step { name: name.into(), work, need: None, waits: false };
    let mut steps = vec![
        own("tests", Work::Tests(Selection::Default)),
        Step::cargo("fmt", "fmt --all -- --check"),
        own("tidy", Work::Tidy),
        Step::cargo("clippy", "clippy --locked --workspace --all-targets --all-features -- -D warnings"),
        Step::cargo("clippy of tests on servers", &clippy_of_server_tests(workspace)),
        Step::cargo("docs", "doc --locked --workspace --no-deps --all-features")
            .with("RUSTDOCFLAGS", "-D warnings"),
    ];
    steps.extend(single_features(workspace));
    steps.push(own("other tests", Work::Tests(Selection::Rest)));
    // What is compiled without a feature alone.
    steps.push(Step::cargo(
        "tests with no feature",
        "test --quiet --locked --package ielections --package vvm-storage --no-default-features --lib",
    ));
    steps.push(Step::cargo(
        "examples in documentation",
        "test --quiet --locked --workspace --all-features --doc",
    ));
    steps.push(own("broken variants", Work::Broken));
    // With the packages and features of the tests, so that these share their dependencies.
    steps.push(Step::cargo("programs", evidence::BUILD_ALL));
    steps.extend(SERVERS.map(Step::on_server));
    let recipes = Step::cargo(
        "recipes",
        "test --quiet --locked --workspace --all-features --test recipes -- --show-output",
    );
    steps.push(Step { waits: true, ..recipes });
    steps.push(own("evidence", Work::Evidence));
    steps
}

/// Drivers whose suites need a server, and where one may be named: those that take long first, so that none of them is left
/// alone at the end. The others run with the tests.
const SERVERS: [(&str, &str, Server); 7] = [
    ("kubernetes", "VVM_TEST_KUBERNETES", Server::Kubernetes),
    ("postgres", "VVM_TEST_POSTGRES", Server::OnJava),
    ("dynamodb", "VVM_TEST_DYNAMODB", Server::OnJava),
    ("s3", "VVM_TEST_S3", Server::BuiltByGo),
    ("mysql", "VVM_TEST_MYSQL", Server::OnJava),
    ("scylla", "VVM_TEST_SCYLLA", Server::OnJava),
    ("etcd", "VVM_TEST_ETCD", Server::AnyEtcd),
];

/// Tests that run on a server only: `--all-targets` leaves them out.
fn clippy_of_server_tests(workspace: &Workspace) -> String {
    let targets = workspace.packages.iter().flat_map(|package| &package.targets);
    let tests = targets.filter(|target| !target.is_tested && target.kind == ["test"]);
    let selected: String = tests.map(|target| format!(" --test {}", target.name)).collect();
    format!("clippy --locked --workspace --all-features{selected} -- -D warnings")
}

/// Layers that others take alone: elections without a runtime and a database, storage with each one of its drivers, a
/// host that reports to OpenTelemetry.
fn single_features(workspace: &Workspace) -> Vec<Step> {
    let alone = |package: &str, features: &str| {
        let name = format!("{package} with {}", if features.is_empty() { "no feature" } else { features });
        let selected = if features.is_empty() { String::new() } else { format!(" --features {features}") };
        Step::cargo(
            &name,
            &format!(
                "clippy --locked --package {package} --lib --no-default-features{selected} -- -D warnings"
            ),
        )
    };
    let mut steps = vec![alone("ielections", "")];
    let storage = workspace.packages.iter().find(|package| package.name == "vvm-storage");
    let drivers =
        storage.into_iter().flat_map(|package| package.features.keys()).filter(|name| *name != "default");
    steps.extend(drivers.map(|driver| alone("vvm-storage", driver)));
    steps.push(alone("vvm-host", "opentelemetry"));
    steps
}

impl Step {
    fn on_server((driver, server_at, server): (&str, &'static str, Server)) -> Self {
        let work = Work::Program { name: "servers", arguments: words(&format!("--only {driver}")) };
        let need = Some(Need { server_at: Some(server_at), server });
        Self { name: format!("{driver} on a real server"), work, need, waits: true }
    }

    fn cargo(name: &str, line: &str) -> Self {
        let arguments = words(line);
        Self { name: name.into(), work: Work::Cargo { arguments, flags: None }, need: None, waits: false }
    }

    fn with(mut self, variable: &'static str, value: &'static str) -> Self {
        if let Work::Cargo { flags, .. } = &mut self.work {
            *flags = Some((variable, value));
        }
        self
    }
}

/// Split at blanks: no argument of ours has one.
fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

impl Work {
    /// Runs in `root`, leaves inconclusive attempts in `records`, and notes what the `step` leaves out. Its output goes where
    /// ours goes, at its end if it is not alone.
    pub(super) fn run(
        &self,
        root: &Path,
        records: &Path,
        is_alone: bool,
        (step, left_out): (&str, &mut LeftOut),
    ) -> Result<(), String> {
        match self {
            Self::Tidy => holds(tidy::run(), "violations, listed above"),
            Self::Tests(selection) => {
                let workspace = Workspace::read().map_err(|error| error.to_string())?;
                let ran = test_programs::run(&workspace, *selection, records, left_out);
                ran.map(|counts| println!("{counts}"))
            }
            Self::Broken => holds(broken::run(&[]), "a variant survived"),
            Self::Evidence => evidence::smoke(false, left_out),
            Self::Cargo { .. } | Self::Program { .. } => {
                let mut command = self.command(root);
                command.envs(scratch_variable()).env(records::FOLDER, records).current_dir(root);
                watched(&mut command, is_alone, |line| {
                    if let Some(why) = left_out::reason(line) {
                        left_out.add(step, why);
                    }
                })
            }
        }
    }

    fn command(&self, root: &Path) -> Command {
        let mut command = cargo();
        match self {
            Self::Cargo { arguments, flags } => drop(command.args(arguments).envs(*flags)),
            Self::Program { name, arguments } => {
                command = Command::new(evidence::program(root, name));
                command.args(arguments);
            }
            Self::Tidy | Self::Tests(_) | Self::Broken | Self::Evidence => {}
        }
        command
    }
}

/// Runs a command, and prints what it says: at once if it is alone, or at its end, so that two do not mix their lines.
fn watched(command: &mut Command, is_alone: bool, mut see: impl FnMut(&str)) -> Result<(), String> {
    let mut text = String::new();
    let ended = limit::watch(command, limit::STEP, |line| {
        see(line);
        if is_alone {
            println!("{line}");
        } else {
            text.push_str(line);
            text.push('\n');
        }
        false
    });
    print!("{text}");
    verdict(ended)
}

fn holds(held: bool, otherwise: &str) -> Result<(), String> {
    if held { Ok(()) } else { Err(otherwise.to_owned()) }
}

fn verdict(ended: io::Result<ExitStatus>) -> Result<(), String> {
    match ended {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(status.to_string()),
        Err(cause) => Err(format!("cargo did not run to its end: {cause}")),
    }
}

impl fmt::Display for Work {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tidy => out.write_str("the rules of the house"),
            Self::Evidence => {
                out.write_str("every command of docs/contributing/evidence.md, at a small size")
            }
            Self::Tests(Selection::Default) => out.write_str("cargo xtask test"),
            Self::Tests(Selection::Rest) => {
                out.write_str("the tests of all features, and of the other containment levels")
            }
            Self::Broken => out.write_str("the simulation, and that it finds code that is broken on purpose"),
            Self::Program { name, arguments } => write!(out, "{name} {}", arguments.join(" ")),
            Self::Cargo { arguments, flags } => {
                if let Some((variable, value)) = flags {
                    write!(out, "{variable}='{value}' ")?;
                }
                write!(out, "cargo {}", arguments.join(" "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Package;

    #[test]
    fn every_driver_is_built_alone() {
        let features = ["default", "mem", "sqlite"].map(|name| (name.to_owned(), Vec::new()));
        let storage = Package { features: features.into(), ..Package::named("vvm-storage") };
        let workspace = Workspace { packages: vec![storage], root: ".".into() };
        let names: Vec<String> = single_features(&workspace).into_iter().map(|step| step.name).collect();
        let storage = ["vvm-storage with mem", "vvm-storage with sqlite"];
        assert_eq!(names[1..3], storage);
        assert_eq!((&*names[0], &*names[3]), ("ielections with no feature", "vvm-host with opentelemetry"));
    }

    #[cfg(unix)]
    #[test]
    fn only_exit_status_zero_is_a_step_that_held() {
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(verdict(Ok(ExitStatus::from_raw(0))), Ok(()));
        assert!(verdict(Ok(ExitStatus::from_raw(1 << 8))).is_err(), "exit status 1");
        assert!(verdict(Ok(ExitStatus::from_raw(9))).is_err(), "killed");
        assert!(verdict(Err(io::ErrorKind::NotFound.into())).is_err(), "not started");
    }
}
