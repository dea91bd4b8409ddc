//! Completions and manual pages are complete and valid.

use crate::VVM;
use std::process::{Command, Output};

fn vvm(arguments: &[&str]) -> Output {
    VVM.command(&[]).args(arguments).output().unwrap()
}

fn text(arguments: &[&str]) -> String {
    let output = vvm(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns every command in the help.
fn commands() -> Vec<String> {
    let help = text(&["--help"]);
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    listed.map_while(|line| Some(line.strip_prefix("  ")?.split(' ').next()?.to_owned())).collect()
}

/// Returns the long options in a command's help.
fn options(command: &str) -> Vec<String> {
    let help = text(&[command, "-h"]);
    let words = help.lines().skip_while(|line| *line != "Options:").flat_map(str::split_whitespace);
    let options = words.filter(|word| word.starts_with("--") && word.len() > 2);
    let mut options = options.map(|word| word.trim_end_matches(',').to_owned()).collect::<Vec<_>>();
    options.retain(|option| option[2..].chars().all(|letter| letter.is_ascii_lowercase() || letter == '-'));
    options
}

fn bash(script: &str, arguments: &[&str]) -> String {
    let output = Command::new("bash").args(["-c", script, "bash"]).args(arguments).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn bash_completes_commands_and_options() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vvm");
    std::fs::write(&path, text(&["completions", "bash"])).unwrap();
    let path = path.to_str().unwrap();
    bash("bash -n \"$1\"", &[path]);
    let complete = "source \"$1\"; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); \
                    _vvm vvm \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"; echo \
                    \"${COMPREPLY[@]}\"";
    assert_eq!(bash(complete, &[path, "vvm", "run", "--stor"]).trim(), "--storage");
    assert_eq!(bash(complete, &[path, "vvm", "run", "--conf"]).trim(), "--config");
    let offered = bash(complete, &[path, "vvm", ""]);
    for command in commands() {
        assert!(offered.split_whitespace().any(|word| word == command), "{command}: {offered}");
    }
    assert!(!offered.contains("stage-"), "{offered}");
}

#[test]
fn completions_have_every_option_and_no_internal_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = text(&["completions", shell]);
        for option in commands().iter().filter(|name| *name != "help").flat_map(|name| options(name)) {
            // Completions of fish have no dashes before an option.
            assert!(script.contains(option.trim_start_matches('-')), "{shell}: {option}");
        }
        assert!(!script.contains("stage-") && !script.contains("demo-worker"), "{shell}");
    }
}

#[test]
fn unknown_shell_or_command_is_64_and_lists_the_known_ones() {
    for (arguments, hint) in [(["completions", "tcsh"], "bash"), (["man", "walk"], "init-storage")] {
        let output = vvm(&arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(64) && said.contains(hint), "{arguments:?}: {said}");
    }
}

/// Checked by groff, if it is installed.
#[test]
fn manual_pages_have_every_option_and_pass_groff() {
    for command in commands().iter().filter(|name| *name != "help") {
        let page = text(&["man", command]);
        assert!(page.contains(".SH NAME\n") && page.contains(".SH NOTES\n") || command == "demo", "{page}");
        let plain = page.replace("\\-", "-");
        for option in options(command) {
            assert!(plain.contains(&option), "vvm man {command}: {option}");
        }
        check(&page, &format!("vvm-{command}"));
    }
    check(&text(&["man"]), "vvm");
}

fn check(page: &str, name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, page).unwrap();
    match Command::new("groff").args(["-k", "-man", "-Tutf8", "-ww"]).arg(&path).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success() && said.is_empty(), "{name}: {said}");
            let shown = String::from_utf8(output.stdout).unwrap();
            assert!(shown.contains(name), "{shown}");
        }
        Err(missing) => println!("not checked: groff is missing: {missing}"),
    }
}
