//! Settings from the command line, the environment and a file: their order, and that guardian and host use
//! the same ones.

use crate::VVM;
use harness::{Run, Trial, eventually};
use rustix::{fs::CWD, process::Signal};
use std::{fs, path::PathBuf};

/// Prints the name that it leads.
const WORKER: [&str; 3] = ["sh", "-c", "echo leads $VVM_LEADER_NAME"];

fn write(trial: &Trial, text: &str) -> PathBuf {
    let path = trial.folder().join("vvm.toml");
    fs::write(&path, text).unwrap();
    path
}

fn with_file(trial: &Trial, text: &str) -> Run {
    let path = write(trial, text);
    trial.run(WORKER).with(["--config", path.to_str().unwrap()])
}

/// Returns the name that was led.
fn leads(run: Run) -> String {
    let finished = run.finish();
    assert_eq!(finished.code(), 0, "{:#?}", finished.stderr);
    finished.stdout[0].strip_prefix("leads ").unwrap().to_owned()
}

#[test]
fn command_line_overrides_environment_and_environment_overrides_file() {
    let trial = VVM.trial();
    let all = || with_file(&trial, "name = \"of-file\"\n").environment("VVM_NAME", "of-environment");
    assert_eq!(leads(all().with(["--name", "of-line"])), "of-line");
    assert_eq!(leads(all().without(["--name"])), "of-environment");
    let of_file = with_file(&trial, "name = \"of-file\"\n").without(["--name"]);
    assert_eq!(leads(of_file.environment("VVM_NAME", "")), "of-file");
    let finished = trial.run(WORKER).without(["--name"]).finish();
    assert_eq!(finished.code(), 64, "{:#?}", finished.stderr);
    assert!(finished.says("--name <NAME>"), "{:#?}", finished.stderr);
}

#[test]
fn all_settings_can_come_from_a_file_named_by_a_variable() {
    let trial = VVM.trial();
    let text = format!(
        "storage = \"{}\"\nname = \"payroll\"\nslots = 2\nstop-timeout = \"1s\"\nkeep-credentials = true\n\
         command = [\"sh\", \"-c\", \"echo leads $VVM_LEADER_NAME; exit 3\"]\n",
        trial.storage()
    );
    let path = write(&trial, &text);
    let run = trial.run([]).without(["--storage", "--name"]).without_command();
    let finished = run.environment("VVM_CONFIG", path.to_str().unwrap()).finish();
    assert_eq!((finished.code(), &finished.stdout[..]), (3, &["leads payroll".to_owned()][..]));
    // Other commands use the same file, and ignore settings that they don't have.
    let shown = VVM.command(&[]).args(["status", "--config"]).arg(&path).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert_eq!(
        shown.lines().filter(|line| line.contains("free") || line.contains("never")).count(),
        2,
        "{shown}"
    );
}

#[test]
fn command_of_the_command_line_overrides_that_of_the_file() {
    let trial = VVM.trial();
    let text = "command = [\"echo\", \"leads file\"]\n";
    assert_eq!(leads(with_file(&trial, text)), "payroll");
    assert_eq!(leads(with_file(&trial, text).without_command()), "file");
}

#[test]
fn conflicting_setting_of_the_closer_source_wins() {
    let trial = VVM.trial();
    let file = || with_file(&trial, "try = true\n");
    assert_eq!(leads(file().with(["--acquire-timeout", "1m"])), "payroll");
    assert_eq!(leads(file().environment("VVM_ACQUIRE_TIMEOUT", "1m")), "payroll");
    // A switch that is off conflicts with nothing, and overrides one that is on.
    let off = file().environment("VVM_TRY", "false").environment("VVM_ACQUIRE_TIMEOUT", "1m");
    assert_eq!(leads(off), "payroll");
    // Two conflicting settings of one source are refused, as on the command line.
    let run = with_file(&trial, "try = true\nacquire-timeout = \"1m\"\n");
    let finished = run.finish();
    assert_eq!(finished.code(), 64);
    assert!(finished.says("cannot be used with"), "{:#?}", finished.stderr);
    assert!(finished.says("--try is set in ") && finished.says(", line 1"), "{:#?}", finished.stderr);
    assert!(finished.says("--acquire-timeout is set in "), "{:#?}", finished.stderr);
}

/// The file is a pipe, so a second reader would wait for ever.
#[test]
fn file_is_read_once_for_guardian_and_host() {
    let trial = VVM.trial();
    let path = trial.folder().join("pipe");
    rustix::fs::mkfifoat(CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let run = trial.run(["sh", "-c", "echo up $VVM_LEADER_NAME; exec sleep 1000"]).without(["--name"]);
    let mut running = run.with(["--config", path.to_str().unwrap()]).start();
    fs::write(&path, "name = \"piped\"\nttl = \"19s\"\n").unwrap();
    assert_eq!(running.stdout.wait_for("up"), "up piped");
    // The host prints both.
    running.stderr.wait_for("TTL 19s");
    running.signal(Signal::TERM);
    assert_eq!(running.finish().signal(), 15);
    eventually("no process is left", || trial.processes().0.is_empty());
}

#[test]
fn malformed_file_is_64_and_the_line_is_named() {
    let trial = VVM.trial();
    let table = [
        ("ttl = \"2s\"\ntlt = \"2s\"\n", "line 2: tlt: there is no such setting; did you mean ttl?"),
        ("stop_timeout = \"2s\"\n", "did you mean stop-timeout?"),
        ("quux = 1\n", "a key is an option of vvm without its dashes"),
        ("comand = [\"x\"]\n", "did you mean command?"),
        ("[run]\nttl = \"2s\"\n", "line 1: run: there is no such setting"),
        ("# a comment\n\nttl = 20\n", "line 3"),
        ("ttl = true\n", "line 1: ttl: write a text in quotes, as in ttl = \"20s\""),
        ("ttl = [\"2s\"]\n", "line 1: ttl: write a text in quotes"),
        ("ttl = 2.5\n", "line 1: ttl: write a text in quotes"),
        ("try = \"true\"\n", "line 1: try: write try = true or try = false"),
        ("command = \"./worker\"\n", "line 1: command: write command = [\"./worker\", \"--its-option\"]"),
        ("command = []\n", "line 1: command: write command = ["),
        ("command = [\"./worker\", 1]\n", "line 1: command: write command = ["),
        ("config = \"other.toml\"\n", "line 1: config: a settings file can't name another one"),
        ("ttl = 2s\n", "line 1: "),
        ("\n\nttl\n", "line 3: "),
        ("ttl = \"1s\"\nttl = \"2s\"\n", "line 2: duplicate key"),
        ("ttl = \"100ms\"\n", "--ttl is set in "),
        ("storage = \"sled:x\"\n", "use sqlite:PATH"),
        ("storage = \"dynamodb://eu-west-1/table\"\n", "--storage is set in "),
        // Also if it is not used.
        ("name = 5\n", "line 1: name: write a text in quotes"),
        ("\nstorage = 5\n", "line 2: storage: write a text in quotes"),
        ("interval = \"bogus\"\n", "line 1: interval: "),
        ("on-exit = \"bogus\"\n", "line 1: on-exit: invalid value: possible values: release, restart"),
    ];
    let without_driver = !cfg!(feature = "dynamodb");
    for (text, hint) in table.into_iter().filter(|(text, _)| without_driver || !text.contains("dynamodb")) {
        let run = with_file(&trial, text);
        let run = if text.starts_with("storage") { run.without(["--storage"]) } else { run };
        let finished = run.finish();
        assert_eq!(finished.code(), 64, "{text}: {:#?}", finished.stderr);
        assert!(finished.says(hint), "{text}: {:#?}", finished.stderr);
        assert!(finished.says("vvm.toml"), "{text}: {:#?}", finished.stderr);
        assert_eq!(finished.stdout, Vec::<String>::new(), "{text}");
    }
}

#[test]
fn unreadable_file_is_64_and_the_setting_that_names_it_is_shown() {
    let trial = VVM.trial();
    let missing = trial.folder().join("missing.toml");
    let (folder, missing) = (trial.folder().to_str().unwrap(), missing.to_str().unwrap());
    for (path, cause) in [(missing, "No such file"), (folder, "directory"), ("/dev/zero", "too large")] {
        let on_line = trial.run(WORKER).with(["--config", path]);
        let by_variable = trial.run(WORKER).environment("VVM_CONFIG", path);
        for (run, named_by) in [(on_line, "--config"), (by_variable, "VVM_CONFIG")] {
            let finished = run.finish();
            assert_eq!(finished.code(), 64, "{path}: {:#?}", finished.stderr);
            assert!(finished.says(named_by) && finished.says(cause), "{path}: {:#?}", finished.stderr);
            assert!(finished.says("name a TOML file"), "{path}: {:#?}", finished.stderr);
        }
    }
}

#[test]
fn misspelled_variable_is_reported_and_a_foreign_one_is_not() {
    let trial = VVM.trial();
    let finished = trial.run(["true"]).environment("VVM_STOP_TIMEOT", "1s").finish();
    assert_eq!(finished.code(), 0);
    assert!(finished.says("did you mean VVM_STOP_TIMEOUT?"), "{:#?}", finished.stderr);
    let of_others = ["VVM_LEADER_NAME", "VVM_LOG", "VVM_STORAGE_PASSWORD", "VVM_QUUX", "VVM_INSTANCES"];
    let run = of_others.into_iter().fold(trial.run(["true"]), |run, name| run.environment(name, "error"));
    let finished = run.finish();
    assert!(!finished.says("did you mean"), "{:#?}", finished.stderr);
}

/// No setting is in the command's environment.
#[test]
fn command_does_not_see_settings() {
    let trial = VVM.trial();
    let run = trial.run(["sh", "-c", "env | grep -c '^VVM_[^L]'; true"]).without(["--name"]);
    let finished = run.environment("VVM_NAME", "payroll").environment("VVM_TTL", "19s").finish();
    assert_eq!(finished.stdout, ["0"], "{:#?}", finished.stderr);
}
