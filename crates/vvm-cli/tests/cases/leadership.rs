//! What a worker and `vvm status` see of a leadership.

use crate::VVM;
use harness::Finished;
use rustix::process::Signal;
use serde_json::Value;
use std::time::Duration;

/// Returns the values of the variables that a worker printed.
fn told(finished: &Finished) -> Vec<&str> {
    finished.stdout.iter().filter_map(|line| line.split_once('=')).map(|(_, value)| value).collect()
}

#[test]
fn worker_environment_has_the_leadership_and_no_settings() {
    let trial = VVM.trial();
    let finished = trial
        .run_script("env | grep ^VVM_ | sort")
        .with(["--holder", "machine 1", "--slots", "3"])
        .environment("VVM_STORAGE_PASSWORD", "secret")
        .environment("VVM_LEADER_EPOCH", "1")
        .finish();
    let names = finished.stdout.iter().filter_map(|line| line.split_once('=')).map(|(name, _)| name);
    let expected = [
        "VVM_LEADER_EPOCH",
        "VVM_LEADER_HOLDER",
        "VVM_LEADER_INCARNATION",
        "VVM_LEADER_NAME",
        "VVM_LEADER_SLOT",
    ];
    assert_eq!(names.collect::<Vec<_>>(), expected);
    let [epoch, holder, incarnation, name, slot] = told(&finished)[..] else {
        panic!("{:?}", finished.stdout)
    };
    assert!(epoch.parse::<u64>().unwrap() > 1);
    assert_eq!(holder, "machine 1");
    assert_eq!(incarnation.len(), 32);
    assert_eq!(name, trial.name());
    assert!(["1", "2", "3"].contains(&slot), "{slot}");
}

#[test]
fn each_leadership_has_a_larger_epoch_and_a_new_incarnation() {
    let trial = VVM.trial();
    let run = || trial.run_script("env | grep -E '_(EPOCH|INCARNATION)=' | sort").finish();
    let (first, second) = (run(), run());
    let epoch = |finished: &Finished| told(finished)[0].parse::<u64>().unwrap();
    assert!(epoch(&second) > epoch(&first));
    assert_ne!(told(&first)[1], told(&second)[1]);
}

/// The process id is that of the guardian, which the user started.
#[test]
fn default_holder_is_machine_and_process() {
    let trial = VVM.trial();
    let running = trial.run_script("echo $VVM_LEADER_HOLDER").start();
    let machine = rustix::system::uname();
    let expected = format!("{}:{}", machine.nodename().to_str().unwrap(), running.guardian);
    assert_eq!(running.finish().stdout, [expected]);
}

/// Only credentials of the storage in use are removed.
#[test]
fn storage_credentials_are_removed_from_the_command_without_keep_credentials() {
    let trial = VVM.trial();
    let script = "echo ${AWS_ACCESS_KEY_ID-none} ${VVM_STORAGE_PASSWORD-none}";
    let seen = |options: &[&str]| {
        let run = trial.run_script(script).with(options.iter().copied());
        run.environment("VVM_STORAGE_PASSWORD", "secret").environment("AWS_ACCESS_KEY_ID", "local").finish()
    };
    let is_of_aws = ["dynamodb:", "s3:"].iter().any(|scheme| trial.storage().starts_with(scheme));
    let without = if is_of_aws { "none none" } else { "local none" };
    assert_eq!(seen(&[]).stdout, [without]);
    assert_eq!(seen(&["--keep-credentials"]).stdout, ["local none"]);
}

/// The worker inherits what it needs, and nothing that keeps our sockets or files open.
#[test]
fn worker_inherits_no_file_descriptors() {
    let trial = VVM.trial();
    let finished = trial.run_script("ls /proc/$$/fd").finish();
    // Some shells keep a descriptor for themselves, above 9.
    let ours = finished.stdout.iter().filter(|fd| fd.len() == 1).collect::<Vec<_>>();
    assert_eq!(ours, ["0", "1", "2"]);
}

#[test]
fn status_shows_each_slot() {
    let trial = VVM.trial();
    let script = "echo $VVM_LEADER_SLOT $VVM_LEADER_EPOCH $VVM_LEADER_INCARNATION; exec sleep 1000";
    let mut running =
        trial.run_script(script).with(["--slots", "2", "--holder", "here", "--ttl", "30s"]).start();
    let line = running.stdout.wait_for(" ");
    let [slot, epoch, incarnation] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };

    let (code, out, _) = trial.status(&["--name", &trial.name(), "--json"]);
    assert_eq!(code, 0);
    let found = serde_json::from_str::<Vec<Value>>(&out).unwrap();
    assert_eq!(found.len(), 2);
    for (number, line) in (1..).zip(&found) {
        assert_eq!(line["slot"], number);
        if slot == number.to_string() {
            assert!(line["state"] != "free" && line["holder"] == "here", "{line}");
            assert_eq!((line["epoch"].to_string().as_str(), &line["ttl_ms"]), (epoch, &30_000.into()));
            assert_eq!(line["incarnation"], incarnation);
        } else {
            assert_eq!((&line["state"], &line["holder"]), (&"free".into(), &Value::Null));
        }
    }
    let (_, table, _) = trial.status(&["--name", &trial.name()]);
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(table.contains(epoch) && table.contains("here") && table.contains("30s"), "{table}");

    running.signal(Signal::TERM);
    running.finish();
    let (_, out, _) = trial.status(&["--name", &trial.name(), "--json"]);
    let found = serde_json::from_str::<Vec<Value>>(&out).unwrap();
    assert!(found.iter().all(|line| line["state"] == "free"), "{out}");
}

#[test]
fn status_of_an_unknown_name_is_66_and_starts_no_campaign() {
    let trial = VVM.trial();
    let (code, out, error) = trial.status(&["--name", &trial.name()]);
    assert_eq!((code, out.as_str()), (66, ""));
    assert!(error.contains(trial.said_before_the_first()), "{error}");
    trial.run(["true"]).finish();
    let misspelt = trial.name().replace("payroll", "payrol");
    let (code, out, error) = trial.status(&["--name", &misspelt]);
    assert_eq!((code, out.as_str()), (66, ""));
    assert!(error.contains(&format!("no candidate has ever campaigned for {misspelt}")), "{error}");
    // The status command has not started a campaign.
    assert_eq!(trial.status(&["--name", &misspelt]).0, 66);
    assert_eq!(trial.status(&["--name", &trial.name()]).0, 0);
}

/// The first line has the cause. Attempts in between are not logged.
#[test]
fn storage_outage_is_logged_once_and_so_is_its_end() {
    let trial = VVM.trial();
    let ttl = ["--ttl", harness::SHORT_TTL];
    let mut leader = trial.run_script("echo up; exec sleep 1000").with(ttl).start();
    leader.stdout.wait_for("up");
    // With this TTL, an attempt is long enough to get the error.
    let mut candidate = trial.run(["echo", "leads"]).with(["--ttl", "20s"]).start();
    candidate.stderr.wait_for("waiting for leadership");
    // The leader is killed, so that the candidate tries to write.
    let outage = trial.outage();
    leader.signal(Signal::KILL);
    leader.finish();
    let began = candidate.stderr.wait_for("trouble with the storage");
    assert!(began.contains(trial.said_in_an_outage()) && began.contains("trying again"), "{began}");
    // Several attempts.
    std::thread::sleep(Duration::from_secs(4));
    drop(outage);
    let finished = candidate.finish();
    assert_eq!((finished.code(), &finished.stdout), (0, &vec!["leads".to_owned()]), "{:#?}", finished.stderr);
    let said = |text| finished.stderr.iter().filter(|line| line.contains(text)).count();
    assert_eq!((said("trouble with the storage"), said("the storage works again")), (1, 1));
}
