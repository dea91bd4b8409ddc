//! Mistakes of new users: arguments that are not UTF-8, and a full output. `every_setting` tests wrong values
//! of settings, `files` tests files and permissions.

use crate::VVM;
use std::{
    ffi::OsStr,
    fs::File,
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
    let mut dry_run = of(&["run", "--dry-run"]);
    dry_run.args(["--", "true"]);
    for mut command in [of(&["status"]), of(&["history"]), of(&["watch"]), of(&["doctor"]), dry_run] {
        let output = command.stdout(File::options().write(true).open("/dev/full").unwrap()).output().unwrap();
        assert_eq!(output.status.code(), Some(71), "{command:?}: {}", said(&output));
        assert!(said(&output).contains("vvm: can't write: No space left"), "{command:?}: {}", said(&output));
    }
}
