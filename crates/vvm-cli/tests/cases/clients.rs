//! The clients of `vvm run --warm`, in `clients`: each passes its own tests, and an app stands by, leads and stops when
//! it is told to. `cargo xtask safety --client` kills such apps and checks what they write. A language that this
//! machine lacks is left out by name.

use crate::VVM;
use harness::{Running, Trial, eventually};
use rustix::process::{Signal, kill_process};
use std::{fs, path::PathBuf, process::Command};

const PYTHON: Language = Language {
    folder: "python",
    found: &["python3", "-c", "import sys; assert sys.version_info >= (3, 9)"],
    tests: &["python3", "-W", "ignore::ResourceWarning", "-m", "unittest"],
    ran: "Ran ",
};
const GO: Language = Language {
    folder: "go",
    found: &["go", "version"],
    tests: &["go", "test", "-count=1", "-v", "./..."],
    ran: "--- PASS: Test",
};
const NODE: Language = Language {
    folder: "node",
    found: &["node", "--eval", "process.exit(parseInt(process.versions.node) >= 18 ? 0 : 1)"],
    tests: &["node", "--test"],
    ran: "ok 1 - ",
};

struct Language {
    folder: &'static str,
    found: &'static [&'static str],
    tests: &'static [&'static str],
    ran: &'static str,
}

impl Language {
    fn folder(&self) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../clients").join(self.folder)
    }

    fn is_found(&self) -> bool {
        let found = command(self.found).output().is_ok_and(|ran| ran.status.success());
        if !found {
            println!("left out: the client in clients/{}: `{}` fails", self.folder, self.found.join(" "));
        }
        found
    }

    fn passes_its_own_tests(&self) {
        if !self.is_found() {
            return;
        }
        let ran = command(self.tests).current_dir(self.folder()).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success() && said.contains(self.ran), "{said}");
    }
}

/// No registry is asked: the clients have no dependencies.
fn command(line: &[&str]) -> Command {
    let mut command = Command::new(line[0]);
    command.args(&line[1..]).env_remove("VVM_SOCKET");
    command.envs([("PYTHONDONTWRITEBYTECODE", "1"), ("GOPROXY", "off"), ("GOTOOLCHAIN", "local")]);
    command
}

const IN_PYTHON: &str = r#"
import vvm_warm

with vvm_warm.connect() as host:
    host.ready()
    while term := host.next_term():
        with term:
            print("leads", term.fence(), flush=True)
            while not term.wait(60):
                pass
            print("stops", term.reason, flush=True)
"#;

const FAILS_IN_PYTHON: &str = r#"
import vvm_warm

with vvm_warm.connect() as host:
    host.ready()
    with host.next_term():
        raise OSError("no disk")
"#;

fn start(trial: &Trial, app: &str, options: &[&str]) -> Running {
    let run = trial.run(["python3", "-c", app]).with(["--warm", "--ttl", "120s", "--stop-timeout", "1h"]);
    let path = PYTHON.folder().display().to_string();
    run.with(options.iter().copied()).environment("PYTHONPATH", &path).start()
}

/// Two hosts lead in turn: after a step-down, after TERM, and after `kill -9`. The recipes do so with each language.
#[test]
fn python_app_leads_and_stops_when_it_is_told() {
    if !PYTHON.is_found() {
        return;
    }
    let trial = VVM.trial();
    let fence = |running: &mut Running| {
        let line = running.stdout.wait_for("leads");
        line.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
    };
    let mut first = start(&trial, IN_PYTHON, &[]);
    let mut fences = vec![fence(&mut first)];
    let mut second = start(&trial, IN_PYTHON, &[]);
    second.stderr.wait_for("waiting for leadership");
    trial.must("step-down", &[]);
    first.stdout.wait_for("stops step_down");
    fences.push(fence(&mut second));
    first.stderr.wait_for("waiting for leadership");
    second.signal(Signal::TERM);
    second.stdout.wait_for("stops terminating");
    assert_eq!(second.finish().signal(), Signal::TERM.as_raw());
    fences.push(fence(&mut first));
    kill_process(first.host(), Signal::KILL).unwrap();
    first.finish();
    eventually("the record is released", || trial.slot_state() == "free");
    assert!(fences.is_sorted_by(|earlier, later| earlier < later), "{fences:?}");
}

#[test]
fn failure_of_an_app_is_told_by_the_host_and_the_history() {
    if PYTHON.is_found() {
        let trial = VVM.trial();
        let options = ["--after-stop", "keep", "--restart-backoff", "1h"];
        let mut running = start(&trial, FAILS_IN_PYTHON, &options);
        let reason = "the app failed: OSError('no disk')";
        running.stderr.wait_for(&format!("slot 1: stopping the app: {reason}"));
        running.stderr.wait_for("starting the app again");
        let history = trial.must("history", &[]);
        assert!(history.contains(reason), "{history}");
    }
}

#[test]
fn clients_are_short_and_have_no_dependencies() {
    for (language, client, manifest, word) in [
        (PYTHON, "vvm_warm/__init__.py", "pyproject.toml", "\ndependencies"),
        (GO, "warm.go", "go.mod", "require"),
        (NODE, "warm.js", "package.json", "ependencies\""),
    ] {
        let read = |name: &str| fs::read_to_string(language.folder().join(name)).unwrap();
        assert!(read(client).lines().count() <= 300, "{client}");
        assert!(!read(manifest).contains(word), "{manifest}");
    }
}

/// A build backend may leave its files beside the sources. Here pip asks a registry, for the backend.
#[test]
fn installing_the_python_client_writes_nothing_into_its_folder() {
    let listed = || {
        let entries = fs::read_dir(PYTHON.folder()).unwrap().map(|entry| entry.unwrap().file_name());
        entries.collect::<std::collections::BTreeSet<_>>()
    };
    let (before, wheels) = (listed(), tempfile::tempdir().unwrap());
    let build =
        ["python3", "-m", "pip", "wheel", "--no-deps", "--wheel-dir", wheels.path().to_str().unwrap(), "."];
    let ran = command(&build).current_dir(PYTHON.folder()).env("PIP_RETRIES", "0").output();
    assert_eq!(listed(), before);
    if !ran.is_ok_and(|ran| ran.status.success()) {
        println!("left out: the wheel of the client in clients/python: no pip, or it reaches no registry");
    }
}

#[test]
fn python_client_passes_its_own_tests() {
    PYTHON.passes_its_own_tests();
}

#[test]
fn go_client_passes_its_own_tests() {
    GO.passes_its_own_tests();
}

#[test]
fn node_client_passes_its_own_tests() {
    NODE.passes_its_own_tests();
}
