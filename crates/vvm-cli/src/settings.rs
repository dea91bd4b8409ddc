//! Completes the command line by settings from the environment and a file. The command line overrides the environment,
//! and the environment overrides the file, also where two options conflict: `--acquire-timeout 1m` removes `try = true`
//! of a file. The guardian hands the result to the host, because the file may change.

mod file;

use crate::{
    announce::say,
    args::{CandidateArgs, STAGES},
};
use clap::{
    Arg, ArgAction, ArgMatches, Command,
    error::{ContextKind, ContextValue, ErrorKind},
    parser::ValueSource,
};
use file::{File, FileRefusal};
use ielections::Holder;
use serde::{Deserialize, Serialize};
use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
};
use vvm_clock::Instant;

pub(crate) const PREFIX: &str = "VVM_";

pub(crate) const CONFIG: &str = "config";

pub(crate) const NAMED_FILE: &str = "VVM_CONFIG";

pub(crate) const HANDED_ON: &str = "VVM_STAGE_SETTINGS";

/// The variable by which the guardian tells the host when `vvm` began, in nanoseconds since boot.
pub(crate) const BEGAN: &str = "VVM_STAGE_BEGAN";

pub(crate) const COMMAND: &str = "command";

const ONLY_VARIABLES: [&str; 3] = [CONFIG, "log", "storage-password"];
const RESERVED_PREFIXES: [&str; 3] = ["VVM_LEADER_", "VVM_TEST_", "VVM_STAGE_"];

pub(crate) fn began() -> Option<Instant> {
    std::env::var(BEGAN).ok()?.parse().ok().map(Instant::from_nanos)
}

pub(crate) type Variables = Vec<(OsString, OsString)>;

#[derive(Debug)]
pub(crate) struct ResolvedArguments {
    typed: Vec<OsString>,
    added: AddedArguments,
    pub(crate) origins: Origins,
}

/// What completes a command line. It may contain secrets, so it is never an argument of a process.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
#[serde(from = "HandedOn", into = "HandedOn")]
struct AddedArguments {
    options: Vec<OsString>,
    command: Option<Vec<OsString>>,
}

type HandedOn = (Vec<HandedWord>, Option<Vec<HandedWord>>);

/// Text as such, because the kernel limits the length of a variable (128 KiB), and serde writes a number for each byte.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum HandedWord {
    Text(String),
    Other(OsString),
}

impl From<OsString> for HandedWord {
    fn from(word: OsString) -> Self {
        word.into_string().map_or_else(Self::Other, Self::Text)
    }
}

impl From<HandedWord> for OsString {
    fn from(word: HandedWord) -> Self {
        match word {
            HandedWord::Text(word) => word.into(),
            HandedWord::Other(word) => word,
        }
    }
}

fn each<From, To: std::convert::From<From>>(words: Vec<From>) -> Vec<To> {
    words.into_iter().map(Into::into).collect()
}

impl From<HandedOn> for AddedArguments {
    fn from((options, command): HandedOn) -> Self {
        Self { options: each(options), command: command.map(each) }
    }
}

impl From<AddedArguments> for HandedOn {
    fn from(AddedArguments { options, command }: AddedArguments) -> Self {
        (each(options), command.map(each))
    }
}

impl ResolvedArguments {
    /// Returns the typed words, with the added options after the name of the command, and the added command at the end.
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

    pub(crate) fn handed_on(&self) -> OsString {
        serde_json::to_string(&self.added).unwrap_or_default().into()
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    #[error(transparent)]
    CommandLine(#[from] clap::Error),
    #[error(transparent)]
    File(#[from] FileRefusal),
    #[error("{variable}: write true or false")]
    Switch { variable: String },
}

type FileArguments = (Vec<OsString>, String);

pub(crate) fn resolve(
    cli: &Command,
    words: Vec<OsString>,
    variables: &Variables,
) -> Result<ResolvedArguments, SettingsError> {
    let mut settled =
        ResolvedArguments { typed: words, added: AddedArguments::default(), origins: Origins::default() };
    if settled.typed.get(1).is_some_and(|word| STAGES.iter().any(|stage| word == stage)) {
        let handed_on = variable(variables, HANDED_ON).and_then(OsStr::to_str);
        settled.added = handed_on.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        return Ok(settled);
    }
    let Some(matches) = parse_typed(cli, &settled.typed)? else { return Ok(settled) };
    let Some((command, matches)) = matches
        .subcommand()
        .and_then(|(name, matches)| Some((cli.find_subcommand(name)?, matches)))
        .filter(|(command, _)| has_settings(command))
    else {
        return Ok(settled);
    };
    warn_of_misspelled(cli, variables);
    let is_typed = |option: &Setting<'_>| {
        matches.value_source(option.arg.get_id().as_str()) == Some(ValueSource::CommandLine)
    };
    let mut taken = settings_of(command).filter(is_typed).collect::<Vec<_>>();

    let file = match named_file(matches, variables) {
        Some((path, named_by)) => Some(File::read(path, named_by, cli)?),
        None => None,
    };
    // The environment first: what it has is above the file.
    for is_in_file in [false, true] {
        let above = taken.clone();
        for option in settings_of(command) {
            let found = match &file {
                _ if !is_in_file => value_in_environment(&option, variables)?,
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
            settled.origins.note(option.name, origin);
            settled.added.options.extend(values.iter().map(|value| option.word(value)));
        }
    }
    if takes_a_command(command) && matches.get_raw("command").is_none() {
        settled.added.command = file.as_ref().and_then(File::command);
    }
    Ok(settled)
}

/// Parses the typed words alone. A missing argument is no error, because a setting may add it. `None` if the
/// words have to be parsed when they are complete.
fn parse_typed(cli: &Command, words: &[OsString]) -> Result<Option<ArgMatches>, clap::Error> {
    match cli.clone().try_get_matches_from(words) {
        Ok(matches) => Ok(Some(matches)),
        Err(refusal) if refusal.kind() == ErrorKind::MissingRequiredArgument => {
            Ok(cli.clone().ignore_errors(true).try_get_matches_from(words).ok())
        }
        Err(refusal) => Err(refusal),
    }
}

fn named_file(matches: &ArgMatches, variables: &Variables) -> Option<(PathBuf, &'static str)> {
    let typed = matches.get_one::<PathBuf>(CONFIG).cloned().map(|path| (path, "--config"));
    typed.or_else(|| variable(variables, NAMED_FILE).map(|path| (path.into(), NAMED_FILE)))
}

/// Returns the value of a variable. An empty one counts as unset.
fn variable<'all>(variables: &'all Variables, name: &str) -> Option<&'all OsStr> {
    let found = variables.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_os_str()).filter(|value| !value.is_empty())
}

fn value_in_environment(
    option: &Setting<'_>,
    variables: &Variables,
) -> Result<Option<FileArguments>, SettingsError> {
    let name = option.variable();
    let Some(value) = variable(variables, &name) else { return Ok(None) };
    let text = value.to_str().map(str::to_ascii_lowercase);
    let values = match (option.is_switch(), text.as_deref()) {
        (false, _) => vec![value.to_owned()],
        (true, Some("true" | "yes" | "1")) => vec![OsString::from("true")],
        (true, Some("false" | "no" | "0")) => Vec::new(),
        (true, _) => return Err(SettingsError::Switch { variable: name }),
    };
    Ok(Some((values, format!("is set by {name}"))))
}

/// Warns of what seems to be a misspelled setting. It is not refused: other programs use the environment, too.
fn warn_of_misspelled(cli: &Command, variables: &Variables) {
    let names = variables.iter().filter_map(|(name, _)| name.to_str());
    for name in names.filter(|name| !is_known_variable(cli, name)) {
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        if let Some(nearest) = nearest(cli, &ONLY_VARIABLES, &rest.to_lowercase().replace('_', "-")) {
            say!("{name} is no setting: did you mean {}?", variable_of(nearest));
        }
    }
}

pub(crate) fn has_settings(command: &Command) -> bool {
    !command.is_hide_set() && command.get_arguments().any(|arg| arg.get_long() == Some("storage"))
}

pub(crate) fn takes_a_command(command: &Command) -> bool {
    command.get_arguments().any(|arg| arg.get_id() == COMMAND && arg.is_last_set())
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Setting<'cli> {
    arg: &'cli Arg,
    pub(crate) name: &'cli str,
}

pub(crate) fn settings_of(command: &Command) -> impl Iterator<Item = Setting<'_>> {
    command
        .get_arguments()
        .filter_map(|arg| Some(Setting { name: arg.get_long()?, arg }))
        .filter(|option| !["help", "version", CONFIG].contains(&option.name))
}

fn all_settings(cli: &Command) -> impl Iterator<Item = Setting<'_>> {
    cli.get_subcommands().filter(|command| has_settings(command)).flat_map(settings_of)
}

impl<'cli> Setting<'cli> {
    pub(crate) fn variable(&self) -> String {
        variable_of(self.name)
    }

    pub(crate) fn is_switch(&self) -> bool {
        matches!(self.arg.get_action(), ArgAction::SetTrue)
    }

    /// Whether its value may be a number without a unit.
    pub(crate) fn takes_number(&self) -> bool {
        let names = self.arg.get_value_names().unwrap_or_default();
        names.iter().flat_map(|name| name.split('|')).any(|name| ["N", "0", "DURATION"].contains(&name))
    }

    pub(crate) fn example(&self) -> String {
        let default = self.arg.get_default_values().first().map(|value| value.to_string_lossy().into_owned());
        let named = || self.arg.get_value_names().and_then(|names| Some(names.first()?.to_string()));
        default.or_else(named).unwrap_or_default()
    }

    pub(crate) fn excludes(&self, other: &Setting<'_>, command: &Command) -> bool {
        let lists = |one: &Arg, other: &Arg| command.get_arg_conflicts_with(one).contains(&other);
        lists(self.arg, other.arg) || lists(other.arg, self.arg)
    }

    pub(crate) fn word(&self, value: &OsStr) -> OsString {
        let mut word = OsString::from(format!("--{}", self.name));
        if !self.is_switch() {
            word.push("=");
            word.push(value);
        }
        word
    }
}

pub(crate) fn variable_of(name: &str) -> String {
    format!("{PREFIX}{}", name.to_uppercase().replace('-', "_"))
}

pub(crate) fn is_known_variable(cli: &Command, name: &str) -> bool {
    ONLY_VARIABLES.iter().any(|known| variable_of(known) == name)
        || RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || all_settings(cli).any(|option| option.variable() == name)
}

fn nearest<'cli>(cli: &'cli Command, others: &[&'static str], name: &str) -> Option<&'cli str> {
    let names = all_settings(cli).map(|option| option.name).chain(others.iter().copied());
    let graded = names.map(|known| (likeness(known, name), known)).filter(|(likeness, _)| *likeness > 0.0);
    graded.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, known)| known)
}

/// Returns how similar two names are; above zero one may be meant by the other. Clap's measure alone misses
/// two letters that changed places in a short name, as in `tlt`.
fn likeness(known: &str, name: &str) -> f64 {
    (strsim::jaro(known, name) - 0.7).max(strsim::normalized_damerau_levenshtein(known, name) - 0.6)
}

/// The origin of each option that is not on the command line, as `is set by VVM_TTL`, by the option's name.
#[derive(Clone, Default, Debug)]
pub(crate) struct Origins(Vec<(String, String)>);

impl Origins {
    pub(crate) fn note(&mut self, option: &str, origin: String) {
        self.0.push((option.to_owned(), origin));
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    /// Returns a sentence for each option that `refusal` names and that is not on the command line.
    pub(crate) fn of_refusal(&self, refusal: &clap::Error) -> Vec<String> {
        let concerned = [ContextKind::InvalidArg, ContextKind::PriorArg].into_iter();
        let concerned = concerned.filter_map(|kind| refusal.get(kind)).flat_map(|value| match value {
            ContextValue::String(one) => vec![one.clone()],
            ContextValue::Strings(many) => many.clone(),
            _ => Vec::new(),
        });
        let names = concerned.filter_map(|shown| {
            let name = shown.strip_prefix("--")?;
            Some(name.split([' ', '=', '[']).next()?.to_owned())
        });
        let of = |name: String| self.sentences().nth(self.0.iter().position(|(known, _)| *known == name)?);
        names.filter_map(of).collect()
    }

    /// Returns one sentence about all of them, if there are any: for a refusal that does not name an option.
    pub(crate) fn all(&self) -> Option<String> {
        let all = self.sentences().collect::<Vec<_>>().join(", ");
        (!all.is_empty()).then_some(all)
    }

    fn sentences(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(name, origin)| format!("--{name} {origin}"))
    }
}
