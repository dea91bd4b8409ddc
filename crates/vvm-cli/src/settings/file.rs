//! A settings file: TOML without tables, whose keys are names of options.

use super::options::{self, COMMAND, CONFIG, Setting};
use clap::Command;
use std::{
    ffi::OsString,
    fs, io,
    io::Read as _,
    path::{Path, PathBuf},
};
use toml::de::{DeTable, DeValue};

/// Longer files are refused: they are a mistake, such as `/dev/zero`.
const MAX_BYTES: u64 = 1 << 20;

/// The contents of a settings file.
#[derive(Debug)]
pub(super) struct File {
    path: PathBuf,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    key: String,
    /// Counted from 1.
    line: usize,
    value: Value,
}

#[derive(Debug)]
enum Value {
    Text(String),
    Switch(bool),
    List(Vec<String>),
    Other,
}

/// A settings file that can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileRefusal {
    #[error("{named_by} {}: can't be read ({cause}): name a TOML file with settings", path.display())]
    Unreadable { named_by: &'static str, path: PathBuf, cause: io::Error },
    #[error("{}, line {line}: {what}: write KEY = \"VALUE\", one a line", path.display())]
    Malformed { path: PathBuf, line: usize, what: String },
    #[error("{}, line {line}: {key}: {what}", path.display())]
    Entry { path: PathBuf, line: usize, key: String, what: String },
}

impl File {
    /// Reads the file at `path`. `named_by` is the option or variable that names it.
    ///
    /// # Errors
    /// If it can't be read, is not TOML, or has a key that is no setting of any command of `cli`.
    pub(super) fn read(path: PathBuf, named_by: &'static str, cli: &Command) -> Result<Self, FileRefusal> {
        let text = match read_text(&path) {
            Ok(text) => text,
            Err(cause) => return Err(FileRefusal::Unreadable { named_by, path, cause }),
        };
        let table = match DeTable::parse(&text) {
            Ok(table) => table,
            Err(refusal) => {
                let line = line_at(&text, refusal.span().map_or(0, |span| span.start));
                return Err(FileRefusal::Malformed { path, line, what: refusal.message().to_owned() });
            }
        };
        let entries = table.get_ref().iter().map(|(key, value)| Entry {
            key: key.get_ref().to_string(),
            line: line_at(&text, key.span().start),
            value: Value::of(value.get_ref()),
        });
        let file = Self { entries: entries.collect(), path };
        for entry in &file.entries {
            file.check(entry, cli)?;
        }
        Ok(file)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the values of an option, and their line.
    ///
    /// # Errors
    /// If their type is not the option's.
    pub(super) fn values(&self, option: &Setting<'_>) -> Result<Option<(Vec<OsString>, usize)>, FileRefusal> {
        let Some(entry) = self.entries.iter().find(|entry| entry.key == option.name()) else {
            return Ok(None);
        };
        let key = option.name();
        let values = match &entry.value {
            Value::Switch(on) if option.is_switch() => vec!["true".into(); usize::from(*on)],
            _ if option.is_switch() => {
                return Err(self.refuse(entry, format!("write {key} = true or {key} = false")));
            }
            Value::Text(text) => vec![text.into()],
            Value::List(texts) if option.is_list() => texts.iter().map(OsString::from).collect(),
            Value::List(_) | Value::Switch(_) | Value::Other => {
                let example = option.example();
                return Err(
                    self.refuse(entry, format!("write a text in quotes, as in {key} = \"{example}\""))
                );
            }
        };
        Ok(Some((values, entry.line)))
    }

    /// Returns the command to run and its arguments.
    pub(super) fn command(&self) -> Option<Vec<OsString>> {
        self.entries.iter().find(|entry| entry.key == COMMAND).and_then(|entry| match &entry.value {
            Value::List(words) => Some(words.iter().map(OsString::from).collect()),
            _ => None,
        })
    }

    fn check(&self, entry: &Entry, cli: &Command) -> Result<(), FileRefusal> {
        let is_command = matches!(&entry.value, Value::List(words) if !words.is_empty());
        match entry.key.as_str() {
            COMMAND if is_command => Ok(()),
            COMMAND => Err(self.refuse(entry, "write command = [\"./worker\", \"--its-option\"]".into())),
            CONFIG => Err(self.refuse(entry, "a settings file can't name another one: leave it out".into())),
            key if options::of_all(cli).any(|option| option.name() == key) => Ok(()),
            key => {
                let way_out = match options::nearest(cli, &[COMMAND], &key.replace('_', "-")) {
                    Some(nearest) => format!("did you mean {nearest}?"),
                    None => "a key is an option of vvm without its dashes, as in vvm run --help".to_owned(),
                };
                Err(self.refuse(entry, format!("there is no such setting; {way_out}")))
            }
        }
    }

    fn refuse(&self, entry: &Entry, what: String) -> FileRefusal {
        FileRefusal::Entry { path: self.path.clone(), line: entry.line, key: entry.key.clone(), what }
    }
}

impl Value {
    fn of(value: &DeValue<'_>) -> Self {
        match value {
            DeValue::String(text) => Self::Text(text.to_string()),
            // The option parses it.
            DeValue::Integer(number) if number.radix() == 10 => Self::Text(number.as_str().to_owned()),
            DeValue::Boolean(on) => Self::Switch(*on),
            DeValue::Array(items) => {
                let texts = items.iter().map(|item| item.get_ref().as_str().map(str::to_owned));
                texts.collect::<Option<_>>().map_or(Self::Other, Self::List)
            }
            _ => Self::Other,
        }
    }
}

fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let read = fs::File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if read as u64 > MAX_BYTES { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(text) }
}

/// Returns the line of the byte at `offset`, counted from 1.
fn line_at(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}
