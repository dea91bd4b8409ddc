//! `--result-file` at files of the storage, and in folders that are not writable.

use crate::VVM;
use harness::{Finished, NOBODY, has};
use serde_json::Value;
use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
};

#[test]
fn files_of_the_storage_are_refused_with_64_before_it_is_opened() {
    let trial = VVM.trial();
    let folder = trial.folder();
    let refused = |path: &str, through: &[&str]| {
        let run = trial.run(["true"]).with(["--result-file", path]).through(through.iter().copied());
        let finished = run.finish();
        finished.assert_ended(64, "it belongs to the storage): name another file");
    };
    symlink("leader.db", folder.join("link")).unwrap();
    for name in ["leader.db", "leader.db-wal"] {
        refused(folder.join(name).to_str().unwrap(), &["env"]);
        assert!(!folder.join(name).exists(), "{name}");
    }
    trial.run(["true"]).finish().assert_code(0);
    fs::hard_link(folder.join("leader.db"), folder.join("hard")).unwrap();
    for name in ["leader.db", "leader.db-shm", "link", "hard"] {
        let before = fs::read(folder.join(name)).ok();
        refused(folder.join(name).to_str().unwrap(), &["env"]);
        assert_eq!(fs::read(folder.join(name)).ok(), before, "{name}");
    }
    // A relative path is relative to the folder where vvm is started.
    fs::create_dir(folder.join("sub")).unwrap();
    let in_sub = format!("cd '{}/sub'; exec \"$@\"", folder.display());
    refused("../leader.db", &["sh", "-c", &in_sub, "sh"]);
}

#[test]
fn refusal_before_the_campaign_replaces_the_result_of_an_earlier_run() {
    let trial = VVM.trial();
    let run = || trial.run(["true"]).with(["--result-file", &trial.result_file(), "--log-format", "json"]);
    run().finish().assert_code(0);
    let limited = run().through(["sh", "-c", "ulimit -n 4; exec \"$@\"", "sh"]).finish();
    limited.assert_ended(71, "ulimit -n");
    has!(trial.result(), "outcome" == "system_refused", "exit_status" == 71);
    assert!(trial.result()["reason"].as_str().unwrap().contains("ulimit -n"));
    let last: Value = serde_json::from_str(limited.stderr.last().unwrap()).unwrap();
    has!(last, "event" == "concluded", "level" == "error", "by" == "guardian");
    has!(last, "outcome" == "system_refused", "exit_status" == 71);
}

/// A file that is mounted into a container is like this.
#[test]
fn writable_file_in_a_folder_that_is_not_is_written_in_place() {
    let trial = VVM.trial();
    let folder = trial.folder().join("closed");
    let path = folder.join("result");
    fs::create_dir(&folder).unwrap();
    fs::write(&path, "of an earlier run, and longer than a result is").unwrap();
    let open = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    open(&path, 0o666);
    open(&folder, 0o555);
    open(trial.folder(), 0o777);
    let run = |path: &Path| -> Finished {
        let run = trial.run(["true"]).with(["--result-file", path.to_str().unwrap()]);
        if rustix::process::geteuid().is_root() { run.through(NOBODY).finish() } else { run.finish() }
    };
    run(&path).assert_code(0);
    let written: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    has!(written, "outcome" == "worker_ended");
    let refused = run(&folder.join("other"));
    refused.assert_ended(64, "let this user write to its folder");
    open(&path, 0o444);
    run(&path).assert_code(64);
    open(&folder, 0o755);
}
