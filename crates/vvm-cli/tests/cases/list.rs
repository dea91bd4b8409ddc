//! `vvm list`: the names in a storage.

use crate::VVM;
use serde_json::Value;

#[test]
fn each_name_is_listed_with_its_slots_state_and_leaders() {
    let trial = VVM.trial();
    let run =
        |name, slots| trial.run_script("echo up; exec sleep 1000").with(["--name", name, "--slots", slots]);
    let mut payroll = run("payroll", "1").with(["--holder", "db1"]).start();
    payroll.stdout.wait_for("up");
    let mut mail = run("mail", "2").with(["--holder", "db2"]).start();
    mail.stdout.wait_for("up");
    trial.run(["true"]).with(["--name", "done"]).finish();
    assert_eq!(trial.ask("pause", &["--name", "done"]).0, 0);

    let (code, table, said) = trial.ask("list", &[]);
    assert_eq!((code, said.as_str()), (0, ""));
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect::<Vec<_>>();
    let expected = [
        ["NAME", "SLOTS", "STATE", "LEADER"],
        ["done", "1", "paused", "-"],
        ["mail", "2", "free", "db2"],
        ["payroll", "1", "led", "db1"],
    ];
    assert_eq!(rows, expected.map(Vec::from));

    payroll.crash();
    let (_, json, _) = trial.ask("list", &["--json"]);
    let names: Vec<Value> = serde_json::from_str(&json).unwrap();
    assert_eq!(names[2]["leaders"], serde_json::json!(["db1"]), "its record stands");
    assert!(names[0]["paused_by"].is_string() && names[1]["state"] == "free", "{json}");
}

#[test]
fn missing_storage_is_66_and_created_by_no_look() {
    let trial = VVM.trial();
    let (code, out, said) = trial.ask("list", &[]);
    assert_eq!((code, out.as_str()), (66, ""));
    assert!(said.contains("there is no such storage yet"), "{said}");
    assert!(!trial.folder().join("leader.db").exists());
}
