//! `vvm` in a minimal container: a read-only root folder with the program, its libraries, `/proc`,
//! `/dev/null` and a folder for the storage. It has no shell, no `/tmp`, no user and no certificate.

use crate::VVM;
use harness::{Lines, Trial, command_line, eventually};
use rustix::process::{Signal, kill_process};
use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

/// Returns the program's libraries and their loader; none for a static program.
fn libraries() -> Vec<String> {
    let listed = Command::new("ldd").arg(VVM.path()).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    listed.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned).collect()
}

/// Copies a file by another process: a concurrent test could not execute a file that this one has open.
fn copy(file: &str, to: &Path) {
    assert!(Command::new("cp").arg(file).arg(to).status().unwrap().success());
}

/// Creates the container's files in `root`.
fn lay_down(root: &Path) {
    for folder in ["proc", "dev", "data"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::write(root.join("dev/null"), "").unwrap();
    copy(VVM.path(), &root.join("vvm"));
    for library in libraries() {
        let copy = root.join(library.trim_start_matches('/'));
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        self::copy(&library, &copy);
    }
}

/// Starts `vvm` with these arguments as process 1 of the container.
fn start(trial: &Trial, words: &[&str]) -> Child {
    let root = trial.folder().join("root");
    if !root.exists() {
        lay_down(&root);
    }
    let enter = "set -e; cd \"$1\"; shift; mount --bind . .; mount --bind data data; mount -o \
        remount,ro,bind .; cd \"$PWD\"
        mount -t proc proc proc; mount --bind /dev/null dev/null; exec chroot . /vvm \"$@\"";
    Command::new("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--pid",
            "--fork",
            "--mount",
            "--kill-child",
            "sh",
            "-c",
            enter,
            "sh",
        ])
        .arg(root)
        .args(words)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("TRIAL", trial.mark())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn container_with_only_vvm_and_its_libraries_is_enough() {
    let probe = Command::new("unshare")
        .args(["--user", "--map-root-user", "--pid", "--mount", "--fork", "true"])
        .output();
    let probe = probe.unwrap();
    if !probe.status.success() {
        let refusal = String::from_utf8_lossy(&probe.stderr).into_owned();
        assert!(refusal.contains("Operation not permitted"), "refused for another reason: {refusal}");
        println!("not tested: this machine does not allow containers: {refusal}");
        return;
    }
    let trial = VVM.trial();
    let storage = ["--storage", "sqlite:/data/leader.db?allow=overlay", "--name", "payroll"];
    let run = |command: &[&str]| start(&trial, &[&["run"], &storage[..], &["--"], command].concat());

    // The command's status is that of process 1.
    let output = run(&["/vvm", "no-such-command"]).wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(said.contains(":1, containment: guardian"), "{said}");
    assert!(said.contains("the command exited with status 64"), "{said}");
    // The root is read-only.
    let elsewhere = ["run", "--storage", "sqlite:/leader.db", "--name", "payroll", "--", "/vvm"];
    assert_eq!(start(&trial, &elsewhere).wait().unwrap().code(), Some(69));

    // TERM for process 1 stops the command, and then the container.
    let mut running =
        run(&["/vvm", "watch", "--storage", "sqlite:/data/leader.db?allow=overlay", "--name", "payroll"]);
    let mut lines = Lines::of("stdout", running.stdout.take().unwrap());
    lines.wait_for("held by");
    let mut first = None;
    eventually("process 1", || {
        let mut ours = trial.processes().0.into_iter();
        first = ours.find(|pid| command_line(*pid).starts_with("/vvm run"));
        first.is_some()
    });
    kill_process(first.unwrap(), Signal::TERM).unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(128 + 15));
    assert_eq!(trial.processes().0, []);
}
