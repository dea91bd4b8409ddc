//! Which options are settings, and their names elsewhere: `--stop-timeout`, `VVM_STOP_TIMEOUT`,
//! `stop-timeout`. Derived from clap's description of the command line, so that there is no second list.

use super::Variables;
use crate::args::{Cli, STAGES};
use clap::{
    Arg, ArgAction, Command, CommandFactory as _,
    error::{ContextKind, ContextValue, ErrorKind},
};
use std::{
    error::Error as _,
    ffi::{OsStr, OsString},
};

/// The prefix of all variables of `vvm`.
pub(crate) const PREFIX: &str = "VVM_";

/// The option that names the settings file.
pub(super) const CONFIG: &str = "config";

/// The variable that names the settings file.
pub(super) const NAMED_FILE: &str = "VVM_CONFIG";

/// The variable by which the guardian hands settings to the stages that it starts.
pub(crate) const HANDED_ON: &str = "VVM_STAGE_SETTINGS";

/// The key of the command to run, which is no option.
pub(super) const COMMAND: &str = "command";

/// Variables of `vvm` that are no options.
const OTHERS: [&str; 3] = [NAMED_FILE, "VVM_LOG", "VVM_STORAGE_PASSWORD"];
const OTHER_PREFIXES: [&str; 3] = ["VVM_LEADER_", "VVM_TEST_", "VVM_STAGE_"];

/// Returns the command line, with `--config` in each command that has settings.
pub(crate) fn described() -> Command {
    let cli = Cli::command();
    let names = cli.get_subcommands().map(|command| command.get_name().to_owned()).collect::<Vec<_>>();
    names.into_iter().fold(cli, |cli, name| cli.mut_subcommand(name, with_config))
}

/// Returns the command line with the command of `words` alone, if that one runs for long: what the
/// description of all commands has taken of a process's memory is not given back. `None` also if one of the
/// `variables` may be a misspelled setting.
pub(crate) fn described_alone(words: &[OsString], variables: &Variables) -> Option<Command> {
    let name = words.get(1)?.to_str()?;
    let cli = Cli::with_command_alone(name)?.mut_subcommand(name, with_config);
    let mut names = variables.iter().filter_map(|(name, _)| name.to_str());
    let are_known = names.all(|name| !name.starts_with(PREFIX) || is_known_variable(&cli, name));
    (are_known || STAGES.contains(&name)).then_some(cli)
}

fn with_config(command: Command) -> Command {
    let config = Arg::new(CONFIG)
        .long(CONFIG)
        .value_name("FILE")
        .value_parser(clap::value_parser!(std::path::PathBuf))
        .help("Read settings from a TOML file: the key is an option's name, as in ttl = \"20s\"")
        .long_help(
            "Read settings from a TOML file: the key is an option's name, as in ttl = \"20s\"; the command \
             is command = [\"CMD\", \"ARG\"]\n\n\
             Every option is also a variable: VVM_TTL for --ttl, VVM_CONFIG for --config. The command line \
             overrides the environment, the environment overrides the file. A switch is true or false.",
        );
    match command.get_name() {
        name if STAGES.contains(&name) => command.arg(config.hide(true)),
        _ if has_settings(&command) => command.arg(config),
        _ => command,
    }
}

/// Whether a command has settings: it is not hidden, and works on a storage.
pub(super) fn has_settings(command: &Command) -> bool {
    !command.is_hide_set() && command.get_arguments().any(|arg| arg.get_long() == Some("storage"))
}

/// Whether a command runs another one, given after `--`.
pub(super) fn takes_a_command(command: &Command) -> bool {
    command.get_arguments().any(|arg| arg.get_id() == COMMAND && arg.is_last_set())
}

/// An option that is a setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Setting<'cli> {
    arg: &'cli Arg,
    name: &'cli str,
}

/// Returns the settings of a command.
pub(super) fn of(command: &Command) -> impl Iterator<Item = Setting<'_>> {
    command
        .get_arguments()
        .filter_map(|arg| Some(Setting { name: arg.get_long()?, arg }))
        .filter(|option| !["help", "version", CONFIG].contains(&option.name))
        // The setting of this name is the duration of `vvm pause`. The switch belongs to one call.
        .filter(|option| !(option.name == "wait" && option.is_switch()))
}

/// Returns the settings of all commands, some more than once.
fn of_all(cli: &Command) -> impl Iterator<Item = Setting<'_>> {
    cli.get_subcommands().filter(|command| has_settings(command)).flat_map(of)
}

/// Returns the settings of the name `name`, each with its command.
pub(super) fn named<'cli>(
    cli: &'cli Command,
    name: &str,
) -> impl Iterator<Item = (&'cli Command, Setting<'cli>)> {
    let commands = cli.get_subcommands().filter(|command| has_settings(command));
    commands
        .flat_map(|command| of(command).map(move |option| (command, option)))
        .filter(move |it| it.1.name == name)
}

impl<'cli> Setting<'cli> {
    /// Returns the name in a file, and on the command line without the dashes.
    pub(super) fn name(&self) -> &'cli str {
        self.name
    }

    /// Returns clap's identifier.
    pub(super) fn id(&self) -> &'cli str {
        self.arg.get_id().as_str()
    }

    /// Returns the name of the variable.
    pub(super) fn variable(&self) -> String {
        variable_of(self.name)
    }

    /// Whether it has no value.
    pub(super) fn is_switch(&self) -> bool {
        matches!(self.arg.get_action(), ArgAction::SetTrue)
    }

    /// Whether its value may be a number without a unit.
    pub(super) fn takes_number(&self) -> bool {
        let names = self.arg.get_value_names().unwrap_or_default();
        names.iter().flat_map(|name| name.split('|')).any(|name| ["N", "0", "DURATION"].contains(&name))
    }

    /// Returns why the option of `command` refuses `value`, if it does.
    pub(super) fn refusal(&self, command: &Command, value: &OsStr) -> Option<String> {
        let words = [OsString::from("vvm"), self.word(value)];
        // Other refusals are about the rest of a command line.
        let refusal = command.clone().try_get_matches_from(words).err()?;
        match (refusal.kind(), refusal.get(ContextKind::ValidValue)) {
            (ErrorKind::ValueValidation, _) => {
                refusal.source().map(|cause| format!("invalid value: {cause}"))
            }
            (ErrorKind::InvalidValue, Some(ContextValue::Strings(valid))) => {
                Some(format!("invalid value: possible values: {}", valid.join(", ")))
            }
            _ => None,
        }
    }

    /// Returns an example of a value.
    pub(super) fn example(&self) -> String {
        let default = self.arg.get_default_values().first().map(|value| value.to_string_lossy().into_owned());
        let named = || self.arg.get_value_names().and_then(|names| Some(names.first()?.to_string()));
        default.or_else(named).unwrap_or_default()
    }

    /// Whether the two conflict.
    pub(super) fn excludes(&self, other: &Setting<'_>, command: &Command) -> bool {
        let lists = |one: &Arg, other: &Arg| command.get_arg_conflicts_with(one).contains(&other);
        lists(self.arg, other.arg) || lists(other.arg, self.arg)
    }

    /// Returns it as one word of a command line.
    pub(super) fn word(&self, value: &OsStr) -> OsString {
        let mut word = OsString::from(format!("--{}", self.name));
        if !self.is_switch() {
            word.push("=");
            word.push(value);
        }
        word
    }
}

/// Returns the variable of the option `name`.
pub(super) fn variable_of(name: &str) -> String {
    format!("{PREFIX}{}", name.to_uppercase().replace('-', "_"))
}

/// Whether any part of `vvm` reads this variable.
pub(super) fn is_known_variable(cli: &Command, name: &str) -> bool {
    OTHERS.contains(&name)
        || OTHER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || of_all(cli).any(|option| option.variable() == name)
}

/// Returns the setting that `name` may be a misspelling of.
pub(crate) fn nearest_option(name: &str) -> Option<String> {
    nearest(&described(), &[], name).map(str::to_owned)
}

/// Returns the setting, or one of the `others`, that `name` may be a misspelling of.
pub(super) fn nearest<'cli>(cli: &'cli Command, others: &[&'static str], name: &str) -> Option<&'cli str> {
    let names = of_all(cli).map(|option| option.name()).chain(others.iter().copied());
    let graded = names.map(|known| (likeness(known, name), known)).filter(|(likeness, _)| *likeness > 0.0);
    graded.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, known)| known)
}

/// Returns how similar two names are; above zero one may be meant by the other. Clap's measure alone misses
/// two letters that changed places in a short name, as in `tyr`.
fn likeness(known: &str, name: &str) -> f64 {
    (strsim::jaro(known, name) - 0.7).max(strsim::normalized_damerau_levenshtein(known, name) - 0.6)
}
