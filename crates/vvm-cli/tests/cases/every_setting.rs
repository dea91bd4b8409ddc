//! Wrong values of every setting, as option, variable and key of a file. The exit status is 64, and the
//! message names the setting and says what to write.
//!
//! The options come from the help, which clap generates. An option that is missing in the table below fails
//! the test.

use crate::VVM;
use harness::Described;
use std::process::{Command, Output};

const DURATION: (&str, &str) = ("20", "Write 20s");
const SWITCH: (&str, &str) = ("maybe", "");
const LINE_FOR_PEOPLE: (&str, &str) = ("two\nlines", "no control characters");
const EXIT_STATUS: (&str, &str) = ("256", "write a number from 0 to 255");

/// For each option: an invalid value, and a part of the message.
const BAD: &[(&str, (&str, &str))] = &[
    ("storage", ("leader.db", "`sqlite:leader.db`")),
    ("name", LINE_FOR_PEOPLE),
    ("slots", ("0", "write a number from 1 to")),
    ("ttl", DURATION),
    ("acquire-timeout", DURATION),
    ("try", SWITCH),
    ("on-loss", (" ", "invalid value")),
    ("stop-timeout", DURATION),
    ("quiet-time", DURATION),
    ("on-lead", (" ", "write a line for sh -c")),
    ("hook-timeout", DURATION),
    ("hold-at-least", DURATION),
    ("on-exit", ("again", "possible values: release, restart")),
    ("restart-backoff", DURATION),
    ("restart-backoff-max", DURATION),
    ("restart-limit", ("-1", "write never, or a number")),
    ("pre-stop", (" ", "write a line for sh -c")),
    ("pre-stop-timeout", DURATION),
    ("check", ("https://localhost/", "there is no TLS here")),
    ("check-interval", ("0", "write more than 0")),
    ("check-timeout", ("0s", "write more than 0")),
    ("check-failures", ("0", "write a number from 1 on")),
    ("holder", LINE_FOR_PEOPLE),
    ("local-dir", ("run/vvm", "write an absolute path, or none")),
    ("containment", ("cage", "possible values: auto, guardian")),
    ("keep-credentials", SWITCH),
    ("exit-code-lost", EXIT_STATUS),
    ("exit-code-timeout", EXIT_STATUS),
    ("http", ("8080", "like 127.0.0.1:8080")),
    ("log-format", ("xml", "possible values: text, json")),
    ("result-file", ("/", "name a file")),
    ("interval", ("0", "write 100ms or more")),
    ("dry-run", SWITCH),
    ("json", SWITCH),
    ("exit-status", SWITCH),
    ("instances", SWITCH),
    ("slot", ("0", "write a number from 1 to")),
    ("to", LINE_FOR_PEOPLE),
    ("timeout", DURATION),
    ("reason", ("two\nlines", "without control characters")),
    ("by", ("two\nlines", "without control characters")),
    ("wait", DURATION),
    ("max-ttl", DURATION),
    ("no-wait", SWITCH),
];

/// The other options that a command line needs, with valid values.
const REST: [(&str, &str); 2] = [("storage", "sqlite:no-such-folder/leader.db"), ("name", "payroll")];

/// Returns the command with the options that it needs, except the tested one.
fn line_of(described: &Described, tested: &str) -> Vec<String> {
    let needed =
        REST.iter().filter(|(name, _)| *name != tested && described.options.iter().any(|it| it == name));
    let options = needed.map(|(name, value)| format!("--{name}={value}"));
    [described.command.clone()].into_iter().chain(options).collect()
}

/// Adds what `vvm run` needs after the options.
fn complete(line: &[String], described: &Described) -> Command {
    let mut command = VVM.command(&[]);
    command.args(line);
    if described.command == "run" {
        command.args(["--", "true"]);
    }
    command
}

fn check(what: &str, output: &Output, hints: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(64), "{what}: {said}");
    for hint in hints {
        assert!(said.contains(hint), "{what}: no {hint:?} in: {said}");
    }
}

fn bad(command: &str, option: &str) -> (&'static str, &'static str) {
    let found = BAD.iter().find(|(name, _)| *name == option);
    found
        .unwrap_or_else(|| panic!("{command} has an option --{option}: add an invalid value for it to BAD"))
        .1
}

/// Returns the commands with settings, and their options.
fn settings() -> Vec<(Described, Vec<String>)> {
    let with_settings = VVM.commands().into_iter().filter(Described::has_settings);
    with_settings
        .map(|described| {
            // `wait` of `vvm pause` is a setting; `--wait` of `vvm status` is not.
            let is_setting =
                |name: &&String| *name != "config" && !(described.command == "status" && *name == "wait");
            let options = described.options.iter().filter(is_setting).cloned().collect();
            (described, options)
        })
        .collect()
}

#[test]
fn help_lists_commands_and_their_options() {
    let commands = VVM.commands();
    let run = commands.iter().find(|described| described.command == "run").unwrap();
    assert!(run.options.len() > 12, "{:?}", run.options);
    for name in ["run", "status", "init-storage"] {
        let described = commands.iter().find(|described| described.command == name).unwrap();
        assert!(described.options.iter().any(|option| option == "config"), "{name}: {:?}", described.options);
    }
}

#[test]
fn wrong_option_is_refused_by_name() {
    for (described, options) in settings() {
        for option in options {
            let (value, hint) = bad(&described.command, &option);
            let mut line = line_of(&described, &option);
            line.push(format!("--{option}={value}"));
            let output = complete(&line, &described).output().unwrap();
            check(&format!("{line:?}"), &output, &[&format!("--{option}"), hint]);
        }
    }
}

#[test]
fn wrong_setting_in_a_variable_is_refused_by_name() {
    for (described, options) in settings() {
        for option in options {
            let (value, hint) = bad(&described.command, &option);
            let line = line_of(&described, &option);
            let variable = format!("VVM_{}", option.to_uppercase().replace('-', "_"));
            let output = complete(&line, &described).env(&variable, value).output().unwrap();
            let hint = if hint.is_empty() { "write true or false" } else { hint };
            check(&format!("{variable}={value:?} {line:?}"), &output, &[&variable, hint]);
        }
    }
}

#[test]
fn wrong_setting_in_a_file_is_refused_with_its_line() {
    let trial = VVM.trial();
    let path = trial.folder().join("vvm.toml");
    for (described, options) in settings() {
        for option in options {
            let (value, hint) = bad(&described.command, &option);
            let line = line_of(&described, &option);
            std::fs::write(&path, format!("# The next line is wrong.\n{option} = {value:?}\n")).unwrap();
            let output = complete(&line, &described).env("VVM_CONFIG", &path).output().unwrap();
            let switch = format!("write {option} = true or {option} = false");
            let hint = if hint.is_empty() { &switch } else { hint };
            check(&format!("{option} = {value:?} {line:?}"), &output, &[&option, hint, "vvm.toml, line 2"]);
        }
    }
}

/// Variables with these names have another meaning, so an option must not read them.
#[test]
fn no_option_has_a_reserved_variable() {
    for described in VVM.commands() {
        for option in described.options {
            let taken = ["leader-", "test-"].iter().any(|taken| option.starts_with(taken));
            assert!(!taken && option != "storage-password", "{}: --{option}", described.command);
        }
    }
}
