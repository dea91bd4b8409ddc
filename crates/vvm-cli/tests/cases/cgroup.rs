//! Level cgroup: what a control group for the worker promises beyond level guardian.

use crate::VVM;
use harness::{Level, Run, Running, Trial, eventually, lets_us_make_groups, own_group};
use rustix::{
    fs::{XattrFlags, setxattr},
    process::{Pid, Signal, geteuid, kill_process},
};
use std::{
    fs,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::Command,
};
use vvm_clock::SystemClock;

/// The user `nobody`.
const NOBODY: u32 = 65534;

/// A worker whose processes start others as fast as they can.
const STORM: &str = "trap '' TERM; (setsid sh -c 'storm() { while :; do (:) & done; }; storm' &)
                     (setsid sh -c 'next() { (next &); }; next' &); grep ^0:: /proc/self/cgroup; \
                     exec sleep 1001";

/// A control group, delegated or not, that a `vvm run` is started in.
struct Group(PathBuf);

impl Group {
    /// Creates a group for this trial; `None` if this machine does not allow it. Then only
    /// [`machine_without_a_control_group_is_refused_with_71`] tests anything.
    fn of(trial: &Trial) -> Option<Self> {
        let own = own_group().filter(|own| lets_us_make_groups(own))?;
        let path = own.join(format!("vvm-test-{}", trial.mark()));
        fs::create_dir(&path).unwrap();
        Some(Self(path))
    }

    /// Delegates the group to another user, as systemd does.
    fn owned_by(self, user: u32) -> Self {
        for file in ["", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"] {
            chown(self.0.join(file), Some(user), Some(user)).unwrap();
        }
        self
    }

    /// Returns `run`, started inside the group.
    fn start(&self, run: Run, then: &str) -> Run {
        let enter = format!("echo 0 > {}/cgroup.procs; {then} exec \"$@\"", self.0.display());
        run.through(["sh", "-c", &enter, "sh"])
    }

    /// Returns the groups inside the group.
    fn inside(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.is_dir()).collect()
    }
}

impl Drop for Group {
    /// Removes the group with its processes, also after a failed test.
    fn drop(&mut self) {
        harness::remove_group(&self.0);
    }
}

fn storm_ends(what: &str, victim: impl Fn(&Running) -> Pid) {
    if VVM.level() != Level::ControlGroup {
        return;
    }
    VVM.timed(what, |attempt, trial| {
        let group = Group::of(trial).unwrap();
        let mut running = group.start(trial.run_script(STORM), "").start();
        running.stdout.wait_for("0::");
        let [inner] = &group.inside()[..] else { panic!("{:?}", group.inside()) };
        let inner = inner.clone();
        let victim = victim(&running);
        let is_empty = |group: &Path| {
            fs::read_to_string(group.join("cgroup.events"))
                .map_or(true, |events| events.contains("populated 0"))
        };
        let killed_at = SystemClock::read();
        kill_process(victim, Signal::KILL).unwrap();
        attempt.within("the end of the storm", harness::OUTLIVING, killed_at, || is_empty(&inner))?;
        running.finish();
        eventually("the group is removed", || group.inside().is_empty());
        Ok(())
    });
}

/// This includes a process that is not a descendant of `vvm`.
#[test]
fn killed_host_ends_every_process_in_its_group() {
    let trial = VVM.trial();
    let Some(group) = Group::of(&trial) else { return };
    let running = group.start(trial.run_forever(), "").up();
    // The mark of the trial has it killed even if this test fails.
    let mut stranger = Command::new("sleep").arg("1001").env("TRIAL", trial.mark()).spawn().unwrap();
    fs::write(group.inside()[0].join("cgroup.procs"), stranger.id().to_string()).unwrap();
    kill_process(running.host(), Signal::KILL).unwrap();
    running.finish();
    eventually("the stranger is gone", || stranger.try_wait().unwrap().is_some());
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&stranger.wait().unwrap()), Some(9));
}

/// This includes groups that the worker created inside its own.
#[test]
fn worker_has_its_own_group_which_is_removed_afterwards() {
    let trial = VVM.trial();
    let Some(group) = Group::of(&trial) else { return };
    let script = "own=$(sed -n 's/^0:://p' /proc/self/cgroup); echo $own
                  mount=$(grep ' cgroup2 ' /proc/self/mounts | head -n 1 | cut -d ' ' -f 2); \
                  mkdir $mount$own/inner";
    let finished = group.start(trial.run_script(script), "").finish();
    let name = group.0.file_name().unwrap().to_str().unwrap();
    assert!(finished.stdout[0].contains(&format!("{name}/vvm-")), "{:?}", finished.stdout);
    assert_eq!(group.inside(), Vec::<PathBuf>::new());
}

/// `auto` uses only a delegated group. Root needs the mark of delegation, because root may write anywhere.
#[test]
fn auto_uses_a_delegated_group() {
    let trial = VVM.trial();
    let Some(group) = Group::of(&trial) else { return };
    let run = || group.start(trial.run(["true"]).with(["--containment", "auto"]), "");
    let finished = run().finish();
    let says = |level: &str| finished.says(&format!("containment: {level}"));
    assert!(says(if geteuid().is_root() { "guardian" } else { "cgroup" }), "{:#?}", finished.stderr);
    if geteuid().is_root() {
        setxattr(&group.0, "trusted.delegate", b"1", XattrFlags::empty()).unwrap();
        let finished = run().finish();
        assert!(finished.says("containment: cgroup"), "{:#?}", finished.stderr);
    }
    assert_eq!(group.inside(), Vec::<PathBuf>::new());
}

/// The refusal says how to get a delegated group.
#[test]
fn ordinary_user_without_a_delegated_group_is_refused() {
    let trial = VVM.trial();
    let Some(group) = Group::of(&trial).filter(|_| geteuid().is_root()) else { return };
    // The program may be in a folder that only its owner can read, so the user gets a copy. Another process
    // makes it: a file that this process has open for writing could not be executed.
    let copy = trial.folder().join("vvm");
    let copied = Command::new("cp").arg(VVM.path()).arg(&copy).status().unwrap();
    assert!(copied.success());
    chown(trial.folder(), Some(NOBODY), Some(NOBODY)).unwrap();
    let as_other_user = format!(
        "shift; set -- setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups '{}' \"$@\";",
        copy.display()
    );
    let run = |group: &Group, level| {
        group.start(trial.run(["echo", "ran"]).with(["--containment", level]), &as_other_user).finish()
    };
    let finished = run(&group, "cgroup");
    assert_eq!(finished.code(), 71, "{:#?}", finished.stderr);
    assert!(finished.says("systemd-run --user --scope -p Delegate=yes"), "{:#?}", finished.stderr);
    assert!(run(&group, "auto").says("containment: guardian"));
    let group = group.owned_by(NOBODY);
    for level in ["cgroup", "auto"] {
        let finished = run(&group, level);
        assert!(finished.says("containment: cgroup"), "{level}: {:#?}", finished.stderr);
        assert_eq!(finished.stdout, ["ran"]);
    }
    assert_eq!(group.inside(), Vec::<PathBuf>::new());
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

mod timed {
    use super::*;

    #[test]
    fn fork_storm_ends_with_a_killed_host() {
        storm_ends("storm, host killed", Running::host);
    }

    #[test]
    fn fork_storm_ends_with_a_killed_guardian() {
        storm_ends("storm, guardian killed", |running| running.guardian);
    }
}
