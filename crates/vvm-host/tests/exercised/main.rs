//! That each option, exit status and outcome is exercised end to end, on every storage.
//!
//! What there is, the help and the documents say. What exercises it, `claims` says, and each claim is checked: the
//! case is there, is a test, is run on servers too (`cargo xtask test-drivers`), and has in it, or in what it calls, what
//! it is claimed to exercise. Whoever adds an option or a status adds a case.
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

mod claims;
#[path = "../harness/mod.rs"]
mod harness;
mod source;

use claims::{OPTIONS, OUTCOMES, STATUSES};
use harness::commands;
use source::{source_of, words};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Whether the case is there, is run on servers, and has this in it.
fn check(case: &str, has: &[&str]) -> Result<(), String> {
    let on_servers = fs::read_to_string(root().join("evidence/servers/src/end_to_end.rs")).unwrap();
    let everywhere = on_servers.split("const EVERYWHERE").nth(1).unwrap().split("];").next().unwrap();
    let file = case.split("::").next().unwrap_or_default();
    if !everywhere.contains(&format!("\"{file}\"")) {
        return Err(format!("{case}: tests/{file}.rs is not run on servers"));
    }
    let source = source_of(case)?;
    let missing = has.iter().filter(|text| !source.contains(**text)).collect::<Vec<_>>();
    if missing.is_empty() { Ok(()) } else { Err(format!("{case} does not have {missing:?}")) }
}

/// Whether a number stands in a case, and not only in its name.
fn check_number(case: &str, number: &str) -> Result<(), String> {
    check(case, &[])?;
    let source = source_of(case)?;
    let body = source.lines().filter(|line| !line.contains("fn ")).collect::<Vec<_>>().join("\n");
    let is_there = if number.chars().all(char::is_numeric) {
        words(&body).contains(number)
    } else {
        body.contains(number)
    };
    if is_there { Ok(()) } else { Err(format!("{case} does not have {number}")) }
}

fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn each_option_is_exercised_by_the_case_that_claims_it() {
    let mut wrong = Vec::new();
    let commands = commands();
    for described in commands.iter().filter(|described| described.has_settings()) {
        let command = &described.command;
        let claims = OPTIONS.iter().find(|(name, _)| name == command).map_or(&[][..], |(_, claims)| *claims);
        let unclaimed = described.options.iter().filter(|name| !claims.iter().any(|(of, _)| of == name));
        wrong.extend(
            unclaimed.map(|name| format!("vvm {command} --{name}: no case is claimed to exercise it")),
        );
        let gone = claims.iter().filter(|(name, _)| !described.options.iter().any(|there| there == name));
        wrong.extend(gone.map(|(name, _)| format!("vvm {command} --{name}: there is no such option")));
        for (option, case) in claims {
            let option = format!("\"--{option}\"");
            // What the harness says for all of them.
            let is_given = option == "\"--storage\"" || option == "\"--config\"";
            let has = if is_given { Vec::new() } else { vec![option.as_str()] };
            wrong.extend(check(case, &has).err().map(|why| format!("vvm {command} {option}: {why}")));
            let runs = match command.as_str() {
                "run" => vec!["run(", "run_script(", "\"run\""],
                "status" => vec![".status(", "\"status\""],
                _ => vec![],
            };
            let named = format!("\"{command}\"");
            let runs = if runs.is_empty() { vec![named.as_str()] } else { runs };
            let source = source_of(case).unwrap_or_default();
            if !runs.iter().any(|text| source.contains(text)) {
                wrong.push(format!("vvm {command} {option}: {case} runs no vvm {command}"));
            }
        }
    }
    let described = |name: &str| commands.iter().any(|described| described.command == name);
    wrong.extend(
        OPTIONS.iter().filter(|(name, _)| !described(name)).map(|(name, _)| format!("no vvm {name}")),
    );
    assert_none(&wrong);
}

/// The statuses of the tables in a document, each by itself.
fn statuses(document: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("docs").join(document)).unwrap();
    let tables = text.split("| status | ").skip(1);
    let rows = tables.flat_map(|table| table.lines().skip(2).take_while(|line| line.starts_with('|')));
    let cells = rows.map(|row| row.split('|').nth(1).unwrap().trim().to_owned());
    cells
        .flat_map(|cell| {
            let cell = cell.replace(", or ", ", ");
            cell.split(", ").map(str::to_owned).collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn each_exit_status_in_the_documents_is_exercised() {
    let mut wrong = Vec::new();
    for (document, claims) in STATUSES {
        let documented = statuses(document);
        assert!(documented.len() > 5, "{document}: {documented:?}");
        let claimed = claims.iter().map(|(status, ..)| (*status).to_owned()).collect::<BTreeSet<_>>();
        let unclaimed = documented.difference(&claimed);
        wrong.extend(
            unclaimed.map(|status| format!("{document}: {status}: no case is claimed to exercise it")),
        );
        let gone = claimed.difference(&documented);
        wrong.extend(gone.map(|status| format!("{document}: {status}: is not documented there")));
        for (status, number, case) in *claims {
            wrong.extend(check_number(case, number).err().map(|why| format!("{document}: {status}: {why}")));
        }
    }
    assert_none(&wrong);
}

#[test]
fn each_outcome_in_the_documents_is_exercised() {
    let text = fs::read_to_string(root().join("docs/vvm-run.md")).unwrap();
    let list = text.split("`outcome` (").nth(1).unwrap().split(')').next().unwrap();
    let documented = list.split(", ").map(|word| word.trim_matches('`')).collect::<BTreeSet<_>>();
    let claimed = OUTCOMES.iter().map(|(outcome, _)| *outcome).collect::<BTreeSet<_>>();
    assert_eq!(documented, claimed);
    let wrong = OUTCOMES.iter().filter_map(|(outcome, case)| {
        check(&format!("outcomes::{case}"), &[&format!("\"{outcome}\"")]).err()
    });
    assert_none(&wrong.collect::<Vec<_>>());
}

/// As each of the tests above relies on.
#[test]
fn a_claim_that_is_not_so_is_found() {
    let sound = "exit_statuses::not_acquired_in_time_is_75_or_what_was_asked_for";
    assert_eq!(check(sound, &["\"--try\""]), Ok(()));
    assert!(check(sound, &["\"--http\""]).is_err());
    assert!(check("exit_statuses::no_such_case", &[]).is_err());
    assert!(check("on_exit::free_now", &[]).is_err(), "it is no test");
    assert!(check("files::status_creates_nothing", &[]).is_err(), "it is not run on servers");
    assert!(check_number("exit_statuses::another_slot_count_is_78_and_names_both", "78").is_ok());
    assert!(check_number("exit_statuses::another_slot_count_is_78_and_names_both", "8").is_err());
    // By way of a constant, and of a function.
    assert_eq!(check("on_exit::a_restart_finds_nothing_of_the_run_before", &["\"--on-exit\""]), Ok(()));
    assert_eq!(
        check("on_exit::a_loss_while_holding_is_no_failure_of_the_job", &["\"--hold-at-least\""]),
        Ok(())
    );
}
