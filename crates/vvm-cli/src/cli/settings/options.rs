//! Which options are settings, and what they are called elsewhere: `--stop-timeout`, `VVM_STOP_TIMEOUT`,
//! `stop-timeout`.
//!
//! Taken from clap's description of the command line alone, so that no list has to be kept.

use crate::{cli::args::Cli, run};
use clap::{Arg, ArgAction, Command, CommandFactory as _};
use std::ffi::{OsStr, OsString};

/// What every variable of ours begins with.
pub(in crate::cli) const PREFIX: &str = "VVM_";

/// The option that names the settings file.
pub(super) const CONFIG: &str = "config";

/// The variable that does.
pub(super) const NAMED_FILE: &str = "VVM_CONFIG";

/// The key of a command to run, which is no option.
pub(super) const COMMAND: &str = "command";

/// Variables that are ours and no options: read elsewhere, or given to workers, or for our own tests.
const OTHERS: [&str; 3] = [NAMED_FILE, "VVM_LOG", "VVM_STORAGE_PASSWORD"];
const OTHER_KINDS: [&str; 2] = ["VVM_LEADER_", "VVM_TEST_"];

/// The command line, with the option that names a settings file wherever there are settings.
pub(in crate::cli) fn described() -> Command {
    let config = Arg::new(CONFIG)
        .long(CONFIG)
        .value_name("FILE")
        .value_parser(clap::value_parser!(std::path::PathBuf))
        .help("Settings from a TOML file: an option's name is the key, as in ttl = \"20s\"")
        .long_help(
            "Settings from a TOML file: an option's name is the key, as in ttl = \"20s\"; and command = [\"CMD\", \"ARG\"]\n\n\
             Every option can also be set by a variable: VVM_TTL for --ttl, VVM_CONFIG for this one. The command line \
             comes first, then the environment, then the file, then the default. A switch is true or false.",
        );
    let with_config = |command: Command| match command.get_name() {
        // Its command line is a settled one: the file has been read.
        run::STAGE => command.arg(config.clone().hide(true)),
        _ if has_settings(&command) => command.arg(config.clone()),
        _ => command,
    };
    let cli = Cli::command();
    let names = cli.get_subcommands().map(|command| command.get_name().to_owned()).collect::<Vec<_>>();
    names.into_iter().fold(cli, |cli, name| cli.mut_subcommand(name, with_config))
}

/// Whether a command has settings: it is for people, and works on a storage.
pub(super) fn has_settings(command: &Command) -> bool {
    !command.is_hide_set() && command.get_arguments().any(|arg| arg.get_long() == Some("storage"))
}

/// Whether a command runs another one, which stands behind `--`.
pub(super) fn takes_a_command(command: &Command) -> bool {
    command.get_arguments().any(|arg| arg.get_id() == COMMAND && arg.is_last_set())
}

/// An option that is a setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Setting<'cli> {
    arg: &'cli Arg,
    name: &'cli str,
}

/// The settings of a command.
pub(super) fn of(command: &Command) -> impl Iterator<Item = Setting<'_>> {
    command
        .get_arguments()
        .filter_map(|arg| Some(Setting { name: arg.get_long()?, arg }))
        .filter(|option| !["help", "version", CONFIG].contains(&option.name))
        // The setting of this name is the duration of `vvm pause`. The switch belongs to one call.
        .filter(|option| !(option.name == "wait" && option.is_switch()))
}

/// The settings of all commands; some come more than once.
pub(super) fn of_all(cli: &Command) -> impl Iterator<Item = Setting<'_>> {
    cli.get_subcommands().filter(|command| has_settings(command)).flat_map(of)
}

impl<'cli> Setting<'cli> {
    /// As on the command line, without the dashes, and in a file.
    pub(super) fn name(&self) -> &'cli str {
        self.name
    }

    /// As clap knows it.
    pub(super) fn id(&self) -> &'cli str {
        self.arg.get_id().as_str()
    }

    /// As in the environment.
    pub(super) fn variable(&self) -> String {
        variable_of(self.name)
    }

    /// Whether it is there or not, and has no value.
    pub(super) fn is_switch(&self) -> bool {
        matches!(self.arg.get_action(), ArgAction::SetTrue)
    }

    /// Whether it may be said more than once.
    pub(super) fn is_list(&self) -> bool {
        matches!(self.arg.get_action(), ArgAction::Append)
    }

    /// What a value looks like, for somebody who has written something else.
    pub(super) fn example(&self) -> String {
        let default = self.arg.get_default_values().first().map(|value| value.to_string_lossy().into_owned());
        let named = || self.arg.get_value_names().and_then(|names| Some(names.first()?.to_string()));
        default.or_else(named).unwrap_or_default()
    }

    /// Whether only one of both may be said.
    pub(super) fn excludes(&self, other: &Setting<'_>, command: &Command) -> bool {
        let lists = |one: &Arg, other: &Arg| command.get_arg_conflicts_with(one).contains(&other);
        lists(self.arg, other.arg) || lists(other.arg, self.arg)
    }

    /// As one word of a command line.
    pub(super) fn word(&self, value: &OsStr) -> OsString {
        let mut word = OsString::from(format!("--{}", self.name));
        if !self.is_switch() {
            word.push("=");
            word.push(value);
        }
        word
    }
}

/// The variable for the option of this name.
pub(super) fn variable_of(name: &str) -> String {
    format!("{PREFIX}{}", name.to_uppercase().replace('-', "_"))
}

/// Whether some part of us reads this variable.
pub(super) fn is_known_variable(cli: &Command, name: &str) -> bool {
    OTHERS.contains(&name)
        || OTHER_KINDS.iter().any(|kind| name.starts_with(kind))
        || of_all(cli).any(|option| option.variable() == name)
}

/// The setting, or one of the `others`, whose name is most like `name`, if one is like it at all.
pub(super) fn nearest<'cli>(cli: &'cli Command, others: &[&'static str], name: &str) -> Option<&'cli str> {
    let names = of_all(cli).map(|option| option.name()).chain(others.iter().copied());
    let graded = names.map(|known| (likeness(known, name), known)).filter(|(likeness, _)| *likeness > 0.0);
    graded.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, known)| known)
}

/// How much alike two names are, above zero where one may be meant by the other. What clap goes by misses two
/// letters that have changed places in a short name, as in `tyr`.
fn likeness(known: &str, name: &str) -> f64 {
    (strsim::jaro(known, name) - 0.7).max(strsim::normalized_damerau_levenshtein(known, name) - 0.6)
}
