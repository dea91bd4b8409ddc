//! Level cgroup: what a control group for the worker promises beyond level guardian. On a machine without them, only
//! [`machine_without_a_control_group_is_refused_with_71`] tests anything.

use crate::VVM;
use harness::{eventually, own_group};
use rustix::{
    fs::{XattrFlags, setxattr},
    process::{Signal, geteuid, kill_process},
};
use std::{
    fs,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::Command,
};

fn inside(group: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(group).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_dir()).collect()
}

#[test]
fn killed_host_ends_every_process_in_its_group() {
    let trial = VVM.trial();
    let Some(group) = trial.group() else { return };
    let running = trial.run_forever().up();
    // The mark of the trial has it killed even if this test fails.
    let mut stranger = Command::new("sleep").arg("1001").env("TRIAL", trial.mark()).spawn().unwrap();
    fs::write(inside(group)[0].join("cgroup.procs"), stranger.id().to_string()).unwrap();
    kill_process(running.host(), Signal::KILL).unwrap();
    running.finish();
    eventually("the stranger is gone", || stranger.try_wait().unwrap().is_some());
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&stranger.wait().unwrap()), Some(9));
}

#[test]
fn worker_has_its_own_group_which_is_removed_afterwards() {
    let trial = VVM.trial();
    let Some(group) = trial.group() else { return };
    let script = "own=$(sed -n 's/^0:://p' /proc/self/cgroup); echo $own
                  mount=$(grep ' cgroup2 ' /proc/self/mounts | head -n 1 | cut -d ' ' -f 2); \
                  mkdir $mount$own/inner";
    let finished = trial.run_script(script).finish();
    let name = group.file_name().unwrap().to_str().unwrap();
    assert!(finished.stdout[0].contains(&format!("{name}/vvm-")), "{:?}", finished.stdout);
    assert_eq!(inside(group), Vec::<PathBuf>::new());
}

/// `auto` uses only a delegated group. Root needs the mark of delegation, because root may write anywhere.
#[test]
fn auto_uses_a_delegated_group() {
    let trial = VVM.trial();
    let Some(group) = trial.group() else { return };
    let uses = |level: &str| {
        let run = trial.run(["true"]).with(["--containment", "auto"]);
        run.finish().assert_says(&format!("containment: {level}"));
    };
    uses(if geteuid().is_root() { "guardian" } else { "cgroup" });
    if geteuid().is_root() {
        setxattr(group, "trusted.delegate", b"1", XattrFlags::empty()).unwrap();
        uses("cgroup");
    }
    assert_eq!(inside(group), Vec::<PathBuf>::new());
}

#[test]
fn ordinary_user_without_a_delegated_group_is_refused() {
    let trial = VVM.trial();
    let Some(group) = trial.group().filter(|_| geteuid().is_root()) else { return };
    let run =
        |level| trial.run(["echo", "ran"]).with(["--containment", level]).as_ordinary_user(&trial).finish();
    let finished = run("cgroup");
    finished.assert_ended(71, "systemd-run --user --scope -p Delegate=yes");
    run("auto").assert_says("containment: guardian");
    for file in ["", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"] {
        chown(group.join(file), Some(65534), Some(65534)).unwrap();
    }
    for level in ["cgroup", "auto"] {
        let finished = run(level);
        finished.assert_says("containment: cgroup");
        assert_eq!(finished.stdout, ["ran"]);
    }
    assert_eq!(inside(group), Vec::<PathBuf>::new());
}

#[test]
fn machine_without_a_control_group_is_refused_with_71() {
    let trial = VVM.trial();
    let run = trial.run(["echo", "started"]).with(["--containment", "cgroup"]);
    let is_there = own_group().is_some();
    let refused = if is_there && geteuid().is_root() {
        // Without its mount, the control group is as good as missing.
        let hide = "for kind in cgroup2; do grep \" $kind \" /proc/self/mounts | cut -d ' ' -f 2 | \
                    while read -r mount; do umount \"$mount\"; done; done; exec \"$@\"";
        run.through(["unshare", "--mount", "sh", "-c", hide, "sh"])
    } else {
        run
    };
    let finished = refused.finish();
    finished.assert_code(71);
    let hint = if is_there && !geteuid().is_root() { "Delegate=yes" } else { "no cgroup v2 here" };
    finished.assert_says(hint);
    assert_eq!(finished.stdout, [""; 0]);
}
