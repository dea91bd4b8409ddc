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

/// Returns the control groups inside one.
fn inside(group: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(group).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_dir()).collect()
}

/// This includes a process that is not a descendant of `vvm`.
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

/// This includes groups that the worker created inside its own.
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
    let run = || trial.run(["true"]).with(["--containment", "auto"]);
    let finished = run().finish();
    let says = |level: &str| finished.says(&format!("containment: {level}"));
    assert!(says(if geteuid().is_root() { "guardian" } else { "cgroup" }), "{:#?}", finished.stderr);
    if geteuid().is_root() {
        setxattr(group, "trusted.delegate", b"1", XattrFlags::empty()).unwrap();
        let finished = run().finish();
        assert!(finished.says("containment: cgroup"), "{:#?}", finished.stderr);
    }
    assert_eq!(inside(group), Vec::<PathBuf>::new());
}

/// The refusal says how to get a delegated group.
#[test]
fn ordinary_user_without_a_delegated_group_is_refused() {
    let trial = VVM.trial();
    let Some(group) = trial.group().filter(|_| geteuid().is_root()) else { return };
    let run =
        |level| trial.run(["echo", "ran"]).with(["--containment", level]).as_ordinary_user(&trial).finish();
    let finished = run("cgroup");
    assert_eq!(finished.code(), 71, "{:#?}", finished.stderr);
    assert!(finished.says("systemd-run --user --scope -p Delegate=yes"), "{:#?}", finished.stderr);
    assert!(run("auto").says("containment: guardian"));
    // As systemd delegates it.
    for file in ["", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"] {
        chown(group.join(file), Some(65534), Some(65534)).unwrap();
    }
    for level in ["cgroup", "auto"] {
        let finished = run(level);
        assert!(finished.says("containment: cgroup"), "{level}: {:#?}", finished.stderr);
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
    assert_eq!(finished.code(), 71, "{:#?}", finished.stderr);
    let hint = if is_there && !geteuid().is_root() { "Delegate=yes" } else { "no cgroup v2 here" };
    assert!(finished.says(hint), "{:#?}", finished.stderr);
    assert_eq!(finished.stdout, Vec::<String>::new());
}
