//! `--result-file` at files of the storage, and in folders that are not writable.

use crate::VVM;
use harness::Trial;
use serde_json::Value;
use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    process::Command,
};

/// Runs `vvm run` of a command that prints `worked` by a shell, and returns the whole output.
fn in_a_shell(trial: &Trial, place: &str, shell: &str) -> String {
    let run = trial.run(["echo", "worked"]).with(["--result-file", "PLACE"]).command_line();
    let quoted = run.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let line = shell.replace("VVM", &quoted.replace("'PLACE'", place));
    let output = Command::new("bash")
        .args(["-c", &line])
        .env("VVM_LOCAL_DIR", trial.local_dir())
        .env("TRIAL", trial.mark())
        .current_dir(trial.folder())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn outcome(text: &str) -> Value {
    serde_json::from_str::<Value>(text).unwrap()["outcome"].clone()
}

#[test]
fn files_of_the_storage_are_refused_with_64_before_it_is_opened() {
    let trial = VVM.trial();
    let folder = trial.folder();
    symlink("leader.db", folder.join("link")).unwrap();
    for name in ["leader.db", "leader.db-wal", "", "leader.db", "leader.db-shm", "link", "hard"] {
        if name.is_empty() {
            assert_eq!(trial.run(["true"]).finish().code(), 0);
            fs::hard_link(folder.join("leader.db"), folder.join("hard")).unwrap();
            continue;
        }
        let path = folder.join(name);
        let before = fs::read(&path).ok();
        let finished = trial.run(["true"]).with(["--result-file", path.to_str().unwrap()]).finish();
        assert_eq!(finished.code(), 64, "{name}: {:#?}", finished.stderr);
        assert!(finished.says("it belongs to the storage): name another file"), "{:#?}", finished.stderr);
        assert_eq!(fs::read(&path).ok(), before, "{name}");
    }
    // A relative path is relative to the folder where vvm is started.
    let line = "cd sub && ! VVM 2> said; cat said";
    fs::create_dir(folder.join("sub")).unwrap();
    assert!(in_a_shell(&trial, "../leader.db", line).contains("it belongs to the storage"));
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
    let run = |path: &str| {
        let run = trial.run(["true"]).with(["--result-file", path]);
        if rustix::process::geteuid().is_root() {
            // Root may write everywhere.
            run.through(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]).finish()
        } else {
            run.finish()
        }
    };
    let finished = run(path.to_str().unwrap());
    assert_eq!(finished.code(), 0, "{:#?}", finished.stderr);
    assert_eq!(outcome(&fs::read_to_string(&path).unwrap()), "worker_ended");
    let refused = run(folder.join("other").to_str().unwrap());
    assert_eq!(refused.code(), 64, "{:#?}", refused.stderr);
    assert!(refused.says("let this user write to its folder"), "{:#?}", refused.stderr);
    open(&path, 0o444);
    let refused = run(path.to_str().unwrap());
    assert_eq!(refused.code(), 64, "{:#?}", refused.stderr);
    open(&folder, 0o755);
}
