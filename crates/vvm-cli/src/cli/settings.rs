//! Where settings come from: the command line first, then the environment, then a file, then the default.
//!
//! What lives here: that one rule, for every option of every command that works on a storage, as clap
//! describes it, so that an option that is added is a setting by that alone. What comes out is a complete
//! command line: the guardian hands it on to the host, and a file that changes meanwhile can't have the two
//! at odds.
//!
//! What does not: what a value may be (`args`), and how a file is read ([`file`]).
//!
//! What is said closer wins, also over what contradicts it: `--acquire-timeout 1m` over `try = true` in a
//! file.

mod file;
mod options;
mod origin;

pub(super) use file::FileRefusal;
pub(super) use options::{PREFIX, described};
pub(crate) use origin::Origins;

use crate::announce::say;
use clap::{ArgMatches, Command, error::ErrorKind, parser::ValueSource};
use file::File;
use options::{CONFIG, NAMED_FILE, Setting};
use origin::Origin;
use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
};

/// The environment, as `std::env::vars_os` gives it.
pub(super) type Variables = Vec<(OsString, OsString)>;

/// A command line that needs neither environment nor file any more.
#[derive(Debug)]
pub(crate) struct Settled {
    words: Vec<OsString>,
    /// Of what was not on the command line.
    pub(crate) origins: Origins,
}

impl Settled {
    /// The whole of it.
    pub(super) fn words(&self) -> &[OsString] {
        &self.words
    }

    /// What stands behind the command's name.
    pub(crate) fn told(&self) -> &[OsString] {
        self.words.get(2..).unwrap_or_default()
    }
}

/// Settings that make no sense.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    /// What was said on the command line itself.
    #[error(transparent)]
    CommandLine(#[from] clap::Error),
    #[error(transparent)]
    File(#[from] FileRefusal),
    #[error("{variable}: write true or false")]
    Switch { variable: String },
}

/// What one source says of one option.
struct Said<'cli> {
    option: Setting<'cli>,
    values: Vec<OsString>,
    origin: Origin,
}

/// Completes the command line `words` of `cli`, which [`described`] made, by `variables` and by the file that
/// either names.
///
/// # Errors
/// When the command line is wrong by itself, and when a variable or the file is.
pub(super) fn settle(cli: &Command, words: Vec<OsString>, variables: &Variables) -> Result<Settled, Refusal> {
    let as_said = Settled { words, origins: Origins::default() };
    let Some(matches) = look_at(cli, &as_said.words)? else { return Ok(as_said) };
    let Some((command, matches)) = matches
        .subcommand()
        .and_then(|(name, matches)| Some((cli.find_subcommand(name)?, matches)))
        .filter(|(command, _)| options::has_settings(command))
    else {
        return Ok(as_said);
    };
    warn_of_misspelled(cli, variables);
    let of_line = |option: &Setting<'_>| matches.value_source(option.id()) == Some(ValueSource::CommandLine);
    let mut taken = options::of(command).filter(of_line).collect::<Vec<_>>();

    let by_variables = of_variables(command, variables)?;
    let file = match named_file(matches, variables) {
        Some((path, named_by)) => Some(File::read(path, named_by, cli)?),
        None => None,
    };
    let by_file = file.as_ref().map(|file| of_file(command, file)).transpose()?.unwrap_or_default();

    let mut added = Vec::new();
    let mut origins = Origins::default();
    for level in [by_variables, by_file] {
        let closer = taken.clone();
        for Said { option, values, origin } in level {
            // A switch that is off contradicts nothing.
            let is_off = option.is_switch() && values.is_empty();
            if closer.contains(&option) || (!is_off && closer.iter().any(|it| option.excludes(it, command))) {
                continue;
            }
            taken.push(option);
            origins.note(option.name(), origin);
            added.extend(values.iter().map(|value| option.word(value)));
        }
    }
    let command_of_file = file
        .as_ref()
        .filter(|_| options::takes_a_command(command) && matches.get_raw("command").is_none())
        .and_then(|file| file.command());
    let words = complete(as_said.words, added, command_of_file);
    Ok(Settled { words, origins })
}

/// What the command line says, wherever it may be completed: nothing is wrong with it, but something may be
/// missing. `None` where that is for the parser to judge.
fn look_at(cli: &Command, words: &[OsString]) -> Result<Option<ArgMatches>, clap::Error> {
    match cli.clone().try_get_matches_from(words) {
        Ok(matches) => Ok(Some(matches)),
        Err(refusal) if refusal.kind() == ErrorKind::MissingRequiredArgument => {
            Ok(cli.clone().ignore_errors(true).try_get_matches_from(words).ok())
        }
        Err(refusal) => Err(refusal),
    }
}

/// The settings file, and what names it.
fn named_file(matches: &ArgMatches, variables: &Variables) -> Option<(PathBuf, &'static str)> {
    let on_line = matches.get_one::<PathBuf>(CONFIG).cloned().map(|path| (path, "--config"));
    on_line.or_else(|| variable(variables, NAMED_FILE).map(|path| (path.into(), NAMED_FILE)))
}

/// A variable that is set; an empty one is as good as none.
fn variable<'all>(variables: &'all Variables, name: &str) -> Option<&'all OsStr> {
    let found = variables.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_os_str()).filter(|value| !value.is_empty())
}

fn of_variables<'cli>(command: &'cli Command, variables: &Variables) -> Result<Vec<Said<'cli>>, Refusal> {
    let mut said = Vec::new();
    for option in options::of(command) {
        let name = option.variable();
        let Some(value) = variable(variables, &name) else { continue };
        let values = match (option.is_switch(), value.to_str()) {
            (false, _) => vec![value.to_owned()],
            (true, Some("true")) => vec![OsString::from("true")],
            (true, Some("false")) => Vec::new(),
            (true, _) => return Err(Refusal::Switch { variable: name }),
        };
        said.push(Said { option, values, origin: Origin::Variable(name) });
    }
    Ok(said)
}

fn of_file<'cli>(command: &'cli Command, file: &File) -> Result<Vec<Said<'cli>>, FileRefusal> {
    let mut said = Vec::new();
    for option in options::of(command) {
        if let Some((values, line)) = file.values(&option)? {
            said.push(Said { option, values, origin: Origin::File { path: file.path().into(), line } });
        }
    }
    Ok(said)
}

/// A variable that is meant for us, and that nobody reads, is said and not refused: the environment is not
/// ours alone.
fn warn_of_misspelled(cli: &Command, variables: &Variables) {
    let names = variables.iter().filter_map(|(name, _)| name.to_str());
    for name in names.filter(|name| !options::is_known_variable(cli, name)) {
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        if let Some(nearest) = options::nearest(cli, &[], &rest.to_lowercase().replace('_', "-")) {
            say!("{name} is no setting: did you mean {}?", options::variable_of(nearest));
        }
    }
}

/// What is added stands right behind the command's name, and the command to run at the end.
fn complete(mut words: Vec<OsString>, added: Vec<OsString>, command: Option<Vec<OsString>>) -> Vec<OsString> {
    let behind_name = 2.min(words.len());
    words.splice(behind_name..behind_name, added);
    if let Some(command) = command {
        if words.last().is_none_or(|word| word != "--") {
            words.push("--".into());
        }
        words.extend(command);
    }
    words
}
