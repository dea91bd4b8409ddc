use crate::VVM;
use harness::{Finished, has};
use rustix::process::Signal;
use serde_json::Value;

fn told(finished: &Finished) -> Vec<&str> {
    finished.stdout.iter().filter_map(|line| line.split_once('=')).map(|(_, value)| value).collect()
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

/// The process id is that of the guardian, which the user started. The worker inherits nothing that keeps our
/// sockets or files open. Some shells keep a descriptor for themselves, above 9.
#[test]
fn worker_is_told_machine_and_process_and_inherits_no_file_descriptor() {
    let trial = VVM.trial();
    let running = trial.run_script("echo $VVM_LEADER_HOLDER; ls /proc/$$/fd").start();
    let machine = rustix::system::uname();
    let holder = format!("{}:{}", machine.nodename().to_str().unwrap(), running.guardian);
    let told = running.finish().stdout;
    let ours = told.iter().filter(|line| line.len() == 1 || **line == holder).collect::<Vec<_>>();
    assert_eq!(ours, [holder.as_str(), "0", "1", "2"], "{told:?}");
}

#[test]
fn status_shows_each_slot() {
    let trial = VVM.trial();
    let script = "echo $VVM_LEADER_SLOT $VVM_LEADER_EPOCH $VVM_LEADER_INCARNATION; exec sleep 1000";
    let mut running =
        trial.run_script(script).with(["--slots", "2", "--holder", "here", "--ttl", "30s"]).start();
    let line = running.stdout.wait_for(" ");
    let [slot, epoch, incarnation] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };

    let found = trial.slots();
    assert_eq!(found.len(), 2);
    for (number, line) in (1..).zip(&found) {
        assert_eq!(line["slot"], number);
        if slot == number.to_string() {
            assert_ne!(line["state"], "free");
            has!(line, "holder" == "here", "ttl_ms" == 30_000, "incarnation" == incarnation);
            assert_eq!(line["epoch"].as_u64(), epoch.parse().ok());
        } else {
            has!(line, "state" == "free", "holder" == Value::Null);
        }
    }
    let (_, table, _) = trial.status(&[]);
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(table.contains(epoch) && table.contains("here") && table.contains("30s"), "{table}");

    running.stop();
    let found = trial.slots();
    assert_eq!(found.iter().filter(|line| line["state"] == "free").count(), 2, "{found:?}");
}

#[test]
fn status_of_an_unknown_name_is_66_and_starts_no_campaign() {
    let trial = VVM.trial();
    let (code, out, error) = trial.status(&[]);
    assert_eq!((code, out.as_str()), (66, ""));
    assert!(error.contains(trial.said_before_the_first()), "{error}");
    trial.run(["true"]).finish();
    let misspelt = trial.name().replace("payroll", "payrol");
    for _ in 0..2 {
        let (code, out, error) = trial.ask("status", &["--name", &misspelt]);
        assert_eq!((code, out.as_str()), (66, ""));
        assert!(error.contains(&format!("no candidate has ever campaigned for {misspelt}")), "{error}");
    }
    assert_eq!(trial.ask("history", &["--periods", "--name", &misspelt]).0, 66);
    assert_eq!(trial.status(&[]).0, 0);
}

/// The first line has the cause. `reminder_of_an_outage_comes_once_a_minute_with_its_cause` is about longer ones.
#[test]
fn storage_outage_is_logged_once_and_so_is_its_end() {
    let trial = VVM.trial();
    let leader = trial.run_forever().with(["--ttl", harness::SHORT_TTL]).up();
    // With this TTL, an attempt is long enough to get the error.
    let mut candidate = trial.run(["echo", "leads"]).with(["--ttl", "20s"]).waiting();
    // The leader is killed, so that the candidate tries to write.
    let outage = trial.outage();
    leader.signal(Signal::KILL);
    leader.finish();
    let began = candidate.stderr.wait_for("trouble with the storage");
    assert!(trial.is_outage(&began) && began.contains("trying again"), "{began}");
    drop(outage);
    let finished = candidate.finish();
    finished.assert_code(0);
    assert_eq!(finished.stdout, ["leads"]);
    let said = |text| finished.stderr.iter().filter(|line| line.contains(text)).count();
    assert_eq!((said("trouble with the storage"), said("the storage works again")), (1, 1));
}
