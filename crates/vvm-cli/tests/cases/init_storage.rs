//! `vvm init-storage`: creation and refusals.

use crate::VVM;
use std::process::{Command, Output};

fn init(storage: &str) -> Output {
    command(storage).output().unwrap()
}

fn command(storage: &str) -> Command {
    let mut command = VVM.command(&[]);
    command.args(["init-storage", "--storage", storage]);
    command
}

fn refused(storage: &str, status: i32, hint: &str) {
    let output = init(storage);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{storage}: {said}");
    assert!(said.contains(hint), "{storage}: {said}");
}

#[test]
fn file_is_created_once_and_then_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leader.db");
    let storage = format!("sqlite:{}?allow=overlay", path.display());
    let said = |output: Output| {
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let created = said(init(&storage));
    let user = Command::new("id").arg("-un").output().unwrap().stdout;
    let file = format!("{}, owner {}, mode 0600\n", path.display(), String::from_utf8_lossy(&user).trim());
    assert_eq!(created, format!("created {file}"));
    let made = std::fs::read(&path).unwrap();
    assert_eq!(said(init(&storage)), format!("exists already: {file}"));
    assert_eq!(std::fs::read(&path).unwrap(), made);
}

#[test]
fn storage_on_a_server_exists_after_the_first_init() {
    let trial = VVM.trial();
    let storage = trial.storage();
    // The harness has created it, if it is on a server.
    let first = init(&storage);
    assert!(first.status.success(), "{first:?}");
    let again = init(&storage);
    let said = String::from_utf8(again.stdout).unwrap();
    assert!(again.status.success() && said.starts_with("exists already: "), "{said}");
}

#[cfg(feature = "postgres")]
#[test]
fn password_is_accepted_in_the_environment_and_refused_on_the_command_line() {
    const URL: &str = "postgresql://me:hunter2@127.0.0.1:1/elections?connect_timeout=1";
    refused(URL, 64, "all users of this machine can read a command line");
    refused(&format!("{}&password=hunter2", URL.replace(":hunter2", "")), 64, "VVM_STORAGE");
    let mut command = VVM.command(&[]);
    command.arg("init-storage").env("VVM_STORAGE", URL);
    let mut dry_run = VVM.command(&[]);
    dry_run.args(["run", "--dry-run", "--name", "x", "--", "true"]).env("VVM_STORAGE", URL);
    for (mut command, status) in [(command, 69), (dry_run, 0)] {
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert!(said.contains("no PostgreSQL answers at 127.0.0.1:1") && !said.contains("hunter2"), "{said}");
    }
}

#[cfg(feature = "postgres")]
#[test]
fn largest_ttl_is_for_storages_that_have_one() {
    let (storage, unfit) = ("postgres://me@127.0.0.1:1/elections", "sqlite:leader.db");
    for (storage, status, hint) in [(storage, 69, "no PostgreSQL answers"), (unfit, 64, "max_ttl")] {
        let output = command(storage).args(["--max-ttl", "60s"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert!(said.contains(hint), "{said}");
    }
}
