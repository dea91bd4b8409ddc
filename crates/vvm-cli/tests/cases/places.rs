//! The place of a storage file. A place where candidates may not share the file is refused. Each candidate
//! logs at its start which storage it opened and who leads.

use crate::VVM;
use harness::{Finished, Trial, is_permitted};
use rustix::process::Signal;
use serde_json::Value;
use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

/// Mounts an overlay at `$1/merged`, runs the rest, and lists the files in the overlay. The overlay is on a
/// file system in memory, because it can't be the upper layer of another overlay.
const ON_OVERLAY: &str = "set -e; at=$1; shift
    mount -t tmpfs tmpfs \"$at\"; cd \"$at\"; mkdir lower upper work merged
    mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work merged
    set +e; \"$@\"; code=$?; echo \"left: $(ls -A merged)\"; exit $code";

/// Runs the rest with a `/tmp` like that of a unit with `PrivateTmp=yes`. The program is mounted inside,
/// because its folder may be below `/tmp`.
const IN_PRIVATE_TMP: &str = "set -e; at=$1/systemd-private-0f-payroll.service-x1/tmp; program=$2; shift 2
    mkdir -p \"$at\"; touch \"$at/program\"; mount --bind \"$program\" \"$at/program\"
    mount --rbind \"$at\" /tmp; exec /tmp/program \"$@\"";

/// Returns a command that runs a script in its own mount namespace; `None` if this machine does not allow it.
fn in_mounts<'a>(script: &'a str, folder: &'a str) -> Option<Vec<&'a str>> {
    let ways = [&["unshare", "--mount"][..], &["unshare", "--user", "--map-root-user", "--mount"]];
    let lines = ways.map(|way| [way, &["sh", "-c", script, "sh", folder]].concat());
    let found = lines.into_iter().find(|line| is_permitted(&[line, &["/bin/sh", "-c", ":"][..]].concat()));
    if found.is_none() {
        println!("not permitted to mount here: this machine can't show anything about {script:?}");
    }
    found
}

fn run(trial: &Trial, through: &[&str], storage: &str) -> Finished {
    trial.run(["echo", "leads"]).with(["--storage", storage]).through(through.iter().copied()).finish()
}

#[test]
fn overlayfs_is_refused_before_a_file_is_created_unless_allowed() {
    let trial = VVM.trial();
    let folder = trial.folder().join("overlay");
    std::fs::create_dir(&folder).unwrap();
    let Some(through) = in_mounts(ON_OVERLAY, folder.to_str().unwrap()) else { return };
    let path = folder.join("merged/leader.db").display().to_string();

    let refused = run(&trial, &through, &format!("sqlite:{path}"));
    assert_eq!(refused.code(), 69, "{:#?}", refused.stderr);
    let merged = folder.join("merged").display().to_string();
    for part in [merged.as_str(), "is on overlayfs", "a volume or a bind mount", "`?allow=overlay`"] {
        assert!(refused.says(part), "no {part:?}: {:#?}", refused.stderr);
    }
    assert_eq!(refused.stdout, ["left:"]);

    let allowed = run(&trial, &through, &format!("sqlite:{path}?allow=overlay"));
    assert_eq!(allowed.code(), 0, "{:#?}", allowed.stderr);
    assert_eq!(allowed.stdout[0], "leads");
    assert!(allowed.stdout[1].starts_with("left: leader.db"), "{:?}", allowed.stdout);
    assert!(allowed.says(&format!("storage {path} on overlayfs, created; TTL 20s; no leader")));
}

#[test]
fn unknown_value_of_allow_is_64_and_named() {
    let trial = VVM.trial();
    let storage = format!("sqlite:{}?allow=nfs", trial.folder().join("leader.db").display());
    let refused = trial.run(["true"]).with(["--storage", &storage]).finish();
    assert_eq!(refused.code(), 64);
    assert!(refused.says("only overlayfs can be allowed: write allow=overlay"), "{:#?}", refused.stderr);
}

fn path(trial: &Trial) -> String {
    trial.folder().join("leader.db").display().to_string()
}

#[test]
fn run_logs_its_storage_and_the_leader() {
    let trial = VVM.trial();
    let path = path(&trial);
    let mut leader =
        trial.run_script("echo up $VVM_LEADER_EPOCH; sleep 60").with(["--holder", "first"]).start();
    let line = leader.stderr.wait_for("storage ");
    assert!(line.contains(&format!("Z vvm: payroll: storage {path} on ")), "{line}");
    assert!(line.ends_with(", created; TTL 20s; no leader"), "{line}");
    let up = leader.stdout.wait_for("up");
    let epoch = up.split(' ').nth(1).unwrap().parse::<u64>().unwrap();

    let standby = trial.run(["true"]).with(["--try"]).finish();
    let held = format!("existing; TTL 20s; slot 1 is held by first, epoch {epoch}");
    assert!(standby.says(&held), "no {held:?}: {:#?}", standby.stderr);

    let standby = trial.run(["true"]).with(["--try", "--log-format", "json"]).finish();
    let objects = standby.stderr.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let opened = objects.into_iter().find(|object| object["event"] == "storage_opened").unwrap();
    let found = ["name", "storage", "provenance", "leader"].map(|name| opened[name].as_str().unwrap());
    assert_eq!(found, ["payroll", &path, "existing", "first"]);
    assert!(opened["file_system"].is_string(), "{opened}");
    assert_eq!((&opened["ttl_ms"], &opened["held"], &opened["slot"]), (&20_000.into(), &1.into(), &1.into()));
    assert_eq!(opened["epoch"], epoch);
    leader.signal(Signal::TERM);
    leader.finish();

    let several = VVM.trial();
    let of_three = several.run(["true"]).with(["--slots", "3"]).finish();
    assert!(of_three.says("created; TTL 20s; 0 of 3 slots are held"), "{:#?}", of_three.stderr);
}

#[test]
fn elect_logs_its_storage_and_the_leader() {
    let trial = VVM.trial();
    let elect = || {
        let mut elect = VVM.command(&[]);
        elect.args(["elect", "--storage", &trial.storage(), "--name", "payroll", "--holder", "second"]);
        elect.args(["--on-lead", "exit 3", "--on-loss", "true"]).stdin(Stdio::null());
        String::from_utf8(elect.env("TRIAL", trial.mark()).output().unwrap().stderr).unwrap()
    };
    let said = elect();
    assert!(said.contains(&format!("vvm: payroll: storage {} on ", path(&trial))), "{said}");
    assert!(said.contains(", created; TTL 20s; no leader"), "{said}");
    let said = elect();
    assert!(said.contains(", existing; TTL 20s; no leader"), "{said}");
}

fn doctor(through: &[&str], storage: &str, working_folder: &Path) -> (String, Value) {
    let words = ["doctor", "--storage", storage, "--name", "payroll", "--json"];
    let line = [through, &[VVM.path()], &words].concat();
    let output: Output = Command::new(line[0]).args(&line[1..]).current_dir(working_folder).output().unwrap();
    let found = serde_json::from_slice::<Value>(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let settings =
        found["findings"].as_array().unwrap().iter().find(|finding| finding["about"] == "settings");
    (settings.unwrap()["concerns"].to_string(), found)
}

#[test]
fn doctor_warns_of_a_relative_path_and_says_what_it_means() {
    let trial = VVM.trial();
    trial.run(["true"]).finish();
    let (concerns, found) = doctor(&[], "sqlite:leader.db?allow=overlay", trial.folder());
    let relative = format!("the path leader.db is relative: it means {}", path(&trial));
    assert!(concerns.contains(&relative), "{found:#}");
    assert_eq!(found["verdict"], "caution");
    let (concerns, _) = doctor(&[], &trial.storage(), trial.folder());
    assert!(!concerns.contains("relative"), "{concerns}");
}

#[test]
fn doctor_warns_of_a_temporary_folder_that_one_unit_has() {
    let trial = VVM.trial();
    let Some(through) = in_mounts(IN_PRIVATE_TMP, trial.folder().to_str().unwrap()) else { return };
    let storage = "sqlite:/tmp/leader.db?allow=overlay";
    let init = [&through[..], &[VVM.path(), "init-storage", "--storage", storage]].concat();
    assert!(Command::new(init[0]).args(&init[1..]).output().unwrap().status.success());
    let (concerns, found) = doctor(&through, storage, Path::new("/"));
    assert!(concerns.contains("one systemd unit (PrivateTmp=)"), "{found:#}");
}
