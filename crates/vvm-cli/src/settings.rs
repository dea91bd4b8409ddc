//! Completes the command line by settings from the environment and a file.
//!
//! The command line overrides the environment, and the environment overrides the file, also where two
//! options conflict: `--acquire-timeout 1m` removes `try = true` of a file. The guardian hands the result
//! to the host, because the file may change.

mod file;
mod options;
mod origin;

use file::FileRefusal;
pub(crate) use options::{HANDED_ON, PREFIX, described, described_alone, nearest_option};
pub(crate) use origin::Origins;

use crate::{
    announce::say,
    args::{CandidateArgs, STAGES},
};
use clap::{ArgMatches, Command, error::ErrorKind, parser::ValueSource};
use file::File;
use ielections::Holder;
use options::{CONFIG, NAMED_FILE, Setting};
use serde::{Deserialize, Serialize};
use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
};

/// The environment, as `std::env::vars_os` returns it.
pub(crate) type Variables = Vec<(OsString, OsString)>;

/// A command line, completed.
#[derive(Debug)]
pub(crate) struct Settled {
    typed: Vec<OsString>,
    added: Added,
    /// The origins of what was added.
    pub(crate) origins: Origins,
}

/// What completes a command line. It may contain secrets, so it is never an argument of a process.
#[derive(Default, Debug, Serialize, Deserialize)]
struct Added {
    options: Vec<OsString>,
    command: Option<Vec<OsString>>,
}

impl Settled {
    /// Returns the whole command line: the typed words, the added options after the name of the command, and
    /// the added command at the end.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let mut words = self.typed.clone();
        let behind_name = 2.min(words.len());
        words.splice(behind_name..behind_name, self.added.options.iter().cloned());
        if let Some(command) = &self.added.command {
            if words.last().is_none_or(|word| word != "--") {
                words.push("--".into());
            }
            words.extend(command.iter().cloned());
        }
        words
    }

    /// Returns the arguments of a stage: the typed words after the name of the command, and the holder.
    pub(crate) fn stage_arguments(
        &self,
        candidate: &CandidateArgs,
        holder: &Holder,
    ) -> impl Iterator<Item = OsString> {
        let implied = candidate.holder.is_none().then(|| ["--holder".into(), holder.as_str().into()]);
        implied.into_iter().flatten().chain(self.typed.get(2..).unwrap_or_default().iter().cloned())
    }

    /// Returns the value of [`HANDED_ON`] for the host.
    pub(crate) fn handed_on(&self) -> OsString {
        // Words alone: every value can be written as JSON.
        serde_json::to_string(&self.added).unwrap_or_default().into()
    }
}

/// Settings that are refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// By clap.
    #[error(transparent)]
    CommandLine(#[from] clap::Error),
    #[error(transparent)]
    File(#[from] FileRefusal),
    #[error("{variable}: write true or false")]
    Switch { variable: String },
}

/// The values of an option in one source, and where that is.
type Found = (Vec<OsString>, String);

/// Completes the command line `words` of `cli`, which [`described`] made.
///
/// # Errors
/// [`Refusal`] if the command line, a variable or the file is wrong.
pub(crate) fn settle(cli: &Command, words: Vec<OsString>, variables: &Variables) -> Result<Settled, Refusal> {
    let mut settled = Settled { typed: words, added: Added::default(), origins: Origins::default() };
    if settled.typed.get(1).is_some_and(|word| STAGES.iter().any(|stage| word == stage)) {
        let handed_on = variable(variables, HANDED_ON).and_then(OsStr::to_str);
        settled.added = handed_on.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        return Ok(settled);
    }
    let Some(matches) = look_at(cli, &settled.typed)? else { return Ok(settled) };
    let Some((command, matches)) = matches
        .subcommand()
        .and_then(|(name, matches)| Some((cli.find_subcommand(name)?, matches)))
        .filter(|(command, _)| options::has_settings(command))
    else {
        return Ok(settled);
    };
    warn_of_misspelled(cli, variables);
    let is_typed = |option: &Setting<'_>| matches.value_source(option.id()) == Some(ValueSource::CommandLine);
    let mut taken = options::of(command).filter(is_typed).collect::<Vec<_>>();

    let file = match named_file(matches, variables) {
        Some((path, named_by)) => Some(File::read(path, named_by, (cli, command))?),
        None => None,
    };
    for is_in_file in [false, true] {
        let above = taken.clone();
        for option in options::of(command) {
            let found = match &file {
                _ if !is_in_file => of_variable(&option, variables)?,
                Some(file) => file.values(&option)?,
                None => None,
            };
            let Some((values, origin)) = found else { continue };
            // A switch that is off conflicts with nothing.
            let is_off = option.is_switch() && values.is_empty();
            if above.contains(&option) || (!is_off && above.iter().any(|it| option.excludes(it, command))) {
                continue;
            }
            taken.push(option);
            settled.origins.note(option.name(), origin);
            settled.added.options.extend(values.iter().map(|value| option.word(value)));
        }
    }
    if options::takes_a_command(command) && matches.get_raw("command").is_none() {
        settled.added.command = file.as_ref().and_then(File::command);
    }
    Ok(settled)
}

/// Parses the typed words alone. A missing argument is no error, because a setting may add it. `None` if the
/// words have to be parsed when they are complete.
fn look_at(cli: &Command, words: &[OsString]) -> Result<Option<ArgMatches>, clap::Error> {
    match cli.clone().try_get_matches_from(words) {
        Ok(matches) => Ok(Some(matches)),
        Err(refusal) if refusal.kind() == ErrorKind::MissingRequiredArgument => {
            Ok(cli.clone().ignore_errors(true).try_get_matches_from(words).ok())
        }
        Err(refusal) => Err(refusal),
    }
}

/// Returns the path of the settings file, and the option or variable that names it.
fn named_file(matches: &ArgMatches, variables: &Variables) -> Option<(PathBuf, &'static str)> {
    let typed = matches.get_one::<PathBuf>(CONFIG).cloned().map(|path| (path, "--config"));
    typed.or_else(|| variable(variables, NAMED_FILE).map(|path| (path.into(), NAMED_FILE)))
}

/// Returns the value of a variable. An empty one counts as unset.
fn variable<'all>(variables: &'all Variables, name: &str) -> Option<&'all OsStr> {
    let found = variables.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_os_str()).filter(|value| !value.is_empty())
}

fn of_variable(option: &Setting<'_>, variables: &Variables) -> Result<Option<Found>, Refusal> {
    let name = option.variable();
    let Some(value) = variable(variables, &name) else { return Ok(None) };
    let text = value.to_str().map(str::to_ascii_lowercase);
    let values = match (option.is_switch(), text.as_deref()) {
        (false, _) => vec![value.to_owned()],
        (true, Some("true" | "yes" | "1")) => vec![OsString::from("true")],
        (true, Some("false" | "no" | "0")) => Vec::new(),
        (true, _) => return Err(Refusal::Switch { variable: name }),
    };
    Ok(Some((values, format!("is set by {name}"))))
}

/// Warns of a variable that seems to be a misspelled setting. It is not refused, because other programs use
/// the environment, too.
fn warn_of_misspelled(cli: &Command, variables: &Variables) {
    let names = variables.iter().filter_map(|(name, _)| name.to_str());
    for name in names.filter(|name| !options::is_known_variable(cli, name)) {
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        if let Some(nearest) = options::nearest(cli, &[], &rest.to_lowercase().replace('_', "-")) {
            say!("{name} is no setting: did you mean {}?", options::variable_of(nearest));
        }
    }
}
