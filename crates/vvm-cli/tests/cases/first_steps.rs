//! What only a process shows of the command line: settings that reach every process, arguments that are not
//! UTF-8, and a full output. Unit tests of `cli` have the refusals of options and settings.

use crate::VVM;
use harness::eventually;
use rustix::fs::CWD;
use std::{
    ffi::OsStr,
    fs::{self, File},
    os::unix::ffi::OsStrExt as _,
    process::{Command, Output},
};

fn vvm() -> Command {
    VVM.command(&[])
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn argument_that_is_not_utf_8_is_named() {
    let odd = OsStr::from_bytes(b"pay\xffroll");
    let trial = VVM.trial();
    let word =
        vvm().args(["run", "--storage", &trial.storage(), "--name"]).arg(odd).args(["--", "true"]).output();
    let variable = vvm().args(["status", "--storage", &trial.storage()]).env("VVM_NAME", odd).output();
    for (output, named) in
        [(word.unwrap(), r#"vvm: "pay\xFFroll""#), (variable.unwrap(), r#"vvm: VVM_NAME="pay\xFFroll""#)]
    {
        assert_eq!(output.status.code(), Some(64));
        assert!(said(&output).starts_with(&format!("{named} is not UTF-8")), "{}", said(&output));
    }
    // Arguments of the command may have any bytes.
    let mut run = vvm();
    run.args(["run", "--storage", &trial.storage(), "--name", "payroll", "--", "printf", "%s"]).arg(odd);
    assert_eq!(run.output().unwrap().stdout, odd.as_bytes());
}

/// A command fails if it can't print its answer.
#[test]
fn full_output_is_an_error() {
    let trial = VVM.trial();
    trial.run(["true"]).finish();
    let storage = trial.storage();
    let of = |words: &[&str]| {
        let mut command = vvm();
        command.args(words).args(["--storage", &storage, "--name", "payroll"]);
        command
    };
    for mut command in [of(&["status"]), of(&["history"]), of(&["watch"]), of(&["doctor"])] {
        let output = command.stdout(File::options().write(true).open("/dev/full").unwrap()).output().unwrap();
        assert_eq!(output.status.code(), Some(71), "{command:?}: {}", said(&output));
        assert!(said(&output).contains("vvm: can't write: No space left"), "{command:?}: {}", said(&output));
    }
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
    assert_eq!(running.stop().signal(), 15);
    eventually("no process is left", || trial.processes().0.is_empty());
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

/// The status and the lines of a refusal by the parser are those of the program.
#[test]
fn refused_command_line_is_64_and_says_what_to_write() {
    let refused =
        vvm().args(["run", "--storage", "sqlite:x.db", "--name", "x", "sleep", "1"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(64));
    assert!(said(&refused).contains("write -- before the command"), "{}", said(&refused));
    let run = ["run", "--storage", "sqlite:x.db", "--name", "x", "--acquire-timeout", "1m", "--", "true"];
    let refused = vvm().args(run).env("VVM_TTL", "soon").output().unwrap();
    assert_eq!(refused.status.code(), Some(64));
    assert!(said(&refused).contains("--ttl is set by VVM_TTL"), "{}", said(&refused));
}
