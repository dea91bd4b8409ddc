//! What commands and options there are: those that the help lists, which clap writes.

use std::process::Command;

/// A command, and its options but for help.
pub(crate) struct Described {
    pub(crate) command: String,
    pub(crate) options: Vec<String>,
}

impl Described {
    /// Whether they are settings: there is a storage to work on, and the file can be named.
    pub(crate) fn has_settings(&self) -> bool {
        self.options.iter().any(|option| option == "storage")
    }
}

pub(crate) fn vvm(arguments: &[&str]) -> Command {
    let mut vvm = Command::new(env!("CARGO_BIN_EXE_vvm"));
    vvm.args(arguments);
    vvm
}

fn help(arguments: &[&str]) -> String {
    let output = vvm(arguments).arg("-h").output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Every command that the help lists, but for the help itself.
pub(crate) fn commands() -> Vec<Described> {
    let help_of_all = help(&[]);
    let listed = help_of_all.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = listed.map_while(|line| line.strip_prefix("  ")?.split(' ').next());
    let commands = names
        .filter(|name| *name != "help")
        .map(|name| Described { command: name.to_owned(), options: options(&help(&[name])) });
    commands.collect()
}

fn options(help: &str) -> Vec<String> {
    let listed =
        help.lines().skip_while(|line| *line != "Options:").skip(1).take_while(|line| !line.is_empty());
    // As in "  -h, --help  Print help" and "      --ttl <DURATION>  How long".
    let shown = listed.filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("--").or_else(|| line.get(4..)?.strip_prefix("--"))
    });
    let names = shown.map(|shown| shown.split([' ', '=', '[']).next().unwrap().to_owned());
    names.filter(|name| !["help", "version"].contains(&name.as_str())).collect()
}
