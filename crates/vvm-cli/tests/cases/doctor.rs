//! `vvm doctor`: its findings, and that it changes no slot of the name. `vvm init-storage`: creation and refusals.

use crate::VVM;
use harness::{Trial, has};
use serde_json::Value;
use std::process::Command;

fn finding<'json>(found: &'json Value, about: &str) -> &'json Value {
    found["findings"].as_array().unwrap().iter().find(|finding| finding["about"] == about).unwrap()
}

#[test]
fn doctors_measure_at_the_same_time_without_changing_the_slots() {
    let trial = VVM.trial();
    let _leader = trial.run_forever().up();
    let slots = trial.slots();
    std::thread::scope(|scope| {
        let both = [(); 2].map(|()| scope.spawn(|| trial.must("doctor", &["--ttl", "1m", "--json"])));
        for output in both.map(|one| one.join().unwrap()) {
            let found: Value = serde_json::from_str(&output).unwrap();
            for about in ["reads", "writes"] {
                let trips = finding(&found, about);
                has!(trips, "count" == 50, "health" == "good");
                let ranks =
                    ["p50_ms", "p90_ms", "p99_ms", "slowest_ms"].map(|name| trips[name].as_f64().unwrap());
                assert!(ranks[0] > 0.0 && ranks.is_sorted(), "{trips:#}");
            }
            has!(finding(&found, "margins"), "attempt_ms" == 6_000.0);
            let containment = finding(&found, "containment");
            assert_eq!(containment["levels"]["guardian"], true);
            let recommended = containment["says"].as_str().unwrap().contains(". Choose --containment pidns");
            assert_eq!(recommended, containment["levels"]["pidns"] == true, "{containment:#}");
            assert!(finding(&found, "clock rate")["ppm"].as_f64().unwrap().abs() < 100_000.0);
            assert!(finding(&found, "wall clock")["behind_ms"].as_f64().unwrap() < 10_000.0);
            has!(finding(&found, "storage"), "held" == 1, "slots" == 1);
            assert!(!finding(&found, "storage")["software"].as_str().unwrap().is_empty(), "{found:#}");
        }
    });
    assert_eq!(trial.slots(), slots, "the doctor changed the slots of the name");
}

#[test]
fn problem_has_a_remedy_and_status_1() {
    let trial = VVM.trial();
    trial.run(["true"]).finish();
    let (code, said, _) = trial.about("doctor", &["--ttl", "300ms"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("problem  margins") && said.contains("choose a longer one"), "{said}");
    assert!(said.ends_with("Not fit to lead: see the lines marked problem.\n"), "{said}");
    let _lock = trial.lock_storage();
    let (code, said, _) = trial.about("doctor", &[]);
    assert!(code == 1 && said.contains("problem  writes"), "{code}: {said}");
}

#[test]
fn successor_that_vvm_run_refuses_is_refused() {
    let trial = VVM.trial();
    trial.run(["true"]).finish();
    let refused = trial.about("doctor", &["--successor", "127.0.0.1:0"]);
    if !Trial::is_on_a_server() {
        assert!(refused.0 == 64 && refused.2.contains("needs a storage on a server"), "{refused:?}");
        return;
    }
    let (code, said, _) = trial.about("doctor", &["--successor", "0.0.0.0:0"]);
    assert!(code == 0 && said.contains("caution  successor"), "{code}: {said}");
}

#[test]
fn name_that_no_candidate_has_used_is_a_caution() {
    let trial = VVM.trial();
    trial.run(["true"]).finish();
    let unused = trial.name().replace("payroll", "payrol");
    let (code, out, error) = trial.ask("doctor", &["--name", &unused]);
    assert_eq!(code, 0, "{out}{error}");
    let line = out.lines().find(|line| line.contains("no candidate has used this name")).unwrap();
    assert!(line.starts_with("caution  storage") && line.contains("check --name"), "{out}");
}

fn init(storage: &str) -> String {
    let output = VVM.command(&[]).args(["init-storage", "--storage", storage]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn file_is_created_once_and_then_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leader.db");
    let storage = format!("sqlite:{}?allow=overlay", path.display());
    let created = init(&storage);
    let user = Command::new("id").arg("-un").output().unwrap().stdout;
    let file = format!("{}, owner {}, mode 0600\n", path.display(), String::from_utf8_lossy(&user).trim());
    assert_eq!(created, format!("created {file}"));
    let made = std::fs::read(&path).unwrap();
    assert_eq!(init(&storage), format!("exists already: {file}"));
    assert_eq!(std::fs::read(&path).unwrap(), made);
}

#[test]
fn storage_on_a_server_exists_after_the_first_init() {
    let trial = VVM.trial();
    // The harness has created it, if it is on a server.
    init(&trial.storage());
    let again = init(&trial.storage());
    let what = if trial.storage().contains("max_ttl=") { ", and permits TTLs up to max_ttl" } else { "" };
    assert!(again.starts_with(&format!("exists already{what}: ")), "{again}");
}

#[cfg(feature = "postgres")]
#[test]
fn password_in_the_environment_is_used_and_not_shown() {
    let mut command = VVM.command(&["init-storage"]);
    command.env("VVM_STORAGE", "postgresql://me:hunter2@127.0.0.1:1/elections?connect_timeout=1");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert_eq!(output.status.code(), Some(69), "{said}");
    assert!(said.contains("no PostgreSQL answers at 127.0.0.1:1") && !said.contains("hunter2"), "{said}");
}
