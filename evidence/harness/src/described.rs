//! The commands and options of the program, as its help lists them.

use crate::Program;

/// A command of the program.
#[derive(Debug)]
pub struct Described {
    /// Its name.
    pub command: String,
    /// Its options, except help.
    pub options: Vec<String>,
}

impl Described {
    /// Whether its options are settings: it works on a storage, and takes a settings file.
    pub fn has_settings(&self) -> bool {
        self.options.iter().any(|option| option == "storage")
    }
}

fn help(program: Program, arguments: &[&str]) -> String {
    let output = program.command(arguments).arg("-h").output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Every command that the help lists, but for the help itself.
fn commands(program: Program) -> Vec<Described> {
    let help_of_all = help(program, &[]);
    let listed = help_of_all.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = listed.map_while(|line| line.strip_prefix("  ")?.split(' ').next());
    let commands = names
        .filter(|name| *name != "help")
        .map(|name| Described { command: name.to_owned(), options: options(&help(program, &[name])) });
    commands.collect()
}

impl Program {
    /// Every command that its help lists, but for the help itself.
    pub fn commands(self) -> Vec<Described> {
        commands(self)
    }
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
