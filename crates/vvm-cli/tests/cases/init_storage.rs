//! `vvm init-storage`: creation and refusals.

use crate::VVM;
use std::process::{Command, Output};

fn init(storage: &str) -> Output {
    command(storage).output().unwrap()
}

fn command(storage: &str) -> Command {
    let mut command = Command::new(VVM.path());
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
fn obstacle_is_named() {
    refused("leader.db", 64, "`sqlite:leader.db`");
    refused("sqlite:/no/such/folder/leader.db", 69, "/no/such/folder");
}

#[cfg(not(feature = "scylla"))]
#[test]
fn cluster_needs_a_build_with_its_driver() {
    refused("scylla://host/elections", 64, "feature `scylla`");
}

#[cfg(feature = "scylla")]
#[test]
fn unreachable_cluster_is_named() {
    refused("scylla://host", 64, "the keyspace is missing");
    refused("scylla://127.0.0.1:1/elections", 69, "no node answers at 127.0.0.1:1");
}

#[cfg(not(feature = "dynamodb"))]
#[test]
fn table_needs_a_build_with_its_driver() {
    refused("dynamodb://eu-west-1/elections", 64, "feature `dynamodb`");
}

#[cfg(feature = "dynamodb")]
#[test]
fn unreachable_table_is_named() {
    refused("dynamodb://eu-west-1", 64, "the table is missing");
    refused("dynamodb://key:secret@eu-west-1/elections", 64, "AWS_SECRET_ACCESS_KEY");
    // Only the environment is searched for credentials.
    let refused_with = |credentials: &[(&str, &str)], hint| {
        let mut command = command("dynamodb://eu-west-1/elections?endpoint=http://127.0.0.1:1");
        command.env_clear().envs(credentials.iter().copied());
        command.envs([("AWS_CONFIG_FILE", "/dev/null"), ("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")]);
        let output = command.env("AWS_EC2_METADATA_DISABLED", "true").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(69), "{said}");
        assert!(said.contains(hint), "{said}");
    };
    refused_with(&[], "no AWS credentials found");
    let some = [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret")];
    refused_with(&some, "no answer from http://127.0.0.1:1");
}
