//! Credential helpers of the AWS SDK are children of the host, which must neither reap nor kill them. It needs
//! DynamoDB: `cargo xtask test-drivers --only dynamodb` runs it.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "clippy knows tests, but not their helpers"
)]

use harness::{Level, Program, Trial, eventually};
use std::{fs, os::unix::fs::PermissionsExt as _};

const VVM: Program = Program::new(env!("CARGO_BIN_EXE_vvm"), Level::Guardian);

/// A helper that takes 2 s and leaves a daemon. The SDK refreshes credentials 10 s before they expire: these last 3 s.
const HELPER: &str = r#"#!/bin/sh
cd "$(dirname "$0")" || exit
trap 'echo killed >> log; exit 1' TERM HUP INT
setsid sleep 1006 > /dev/null 2>&1 < /dev/null &
sleep 2
at=$(date -u -d '+13 seconds' +%Y-%m-%dT%H:%M:%SZ)
printf '{"Version":1,"AccessKeyId":"local","SecretAccessKey":"local","Expiration":"%s"}' "$at"
echo refreshed >> log
"#;

const STATIC: [&str; 2] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];

const REFRESHES: usize = 10;

fn log(trial: &Trial) -> Vec<String> {
    let text = fs::read_to_string(trial.folder().join("log")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn leader_keeps_leading_over_ten_refreshes_by_a_slow_helper_that_leaves_daemons() {
    let trial = VVM.trial();
    let (helper, config) = (trial.folder().join("helper"), trial.folder().join("config"));
    fs::write(&helper, HELPER).unwrap();
    fs::set_permissions(&helper, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(&config, format!("[default]\ncredential_process = {}\n", helper.display())).unwrap();

    let run = trial.run_script("echo leads; exec sleep 1005").with(["--ttl", "30s"]);
    let run = run.through(["env", "-u", STATIC[0], "-u", STATIC[1]]);
    let run = run.environment("AWS_CONFIG_FILE", config.to_str().unwrap());
    let mut leader = run.environment("AWS_SHARED_CREDENTIALS_FILE", "/dev/null").start();
    leader.stdout.wait_for("leads");

    let before = log(&trial).len();
    for refreshes in 1..=REFRESHES {
        let all = before + refreshes;
        eventually("a refresh", || log(&trial).iter().filter(|line| *line == "refreshed").count() >= all);
    }
    assert!(log(&trial).iter().all(|line| line == "refreshed"), "{:?}", log(&trial));
    let daemons = trial.processes().with("sleep 1006").len();
    assert!(daemons >= REFRESHES, "{daemons} daemons are left");

    let ended = leader.stop();
    assert_eq!(ended.stdout, ["leads"], "it led more than once");
    assert_eq!(ended.signal(), 15);
    assert_eq!(trial.processes().describe(), [""; 0]);
}
