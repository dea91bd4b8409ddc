//! A settings file: TOML without tables, whose keys are names of options.

use super::{COMMAND, CONFIG, FileArguments, Setting, all_settings, nearest};
use clap::Command;
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};
use toml::{Spanned, Value};

/// Longer files are refused: they are a mistake, such as `/dev/zero`.
const MAX_BYTES: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct File {
    path: PathBuf,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    key: String,
    line: usize,
    value: Value,
}

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
    pub(super) fn read(path: PathBuf, named_by: &'static str, cli: &Command) -> Result<Self, FileRefusal> {
        let text = match read_text(&path) {
            Ok(text) => text,
            Err(cause) => return Err(FileRefusal::Unreadable { named_by, path, cause }),
        };
        let table = match toml::from_str::<BTreeMap<Spanned<String>, Value>>(&text) {
            Ok(table) => table,
            Err(refusal) => {
                let line = line_at(&text, refusal.span().map_or(0, |span| span.start));
                return Err(FileRefusal::Malformed { path, line, what: refusal.message().to_owned() });
            }
        };
        let entries = table.into_iter().map(|(key, value)| {
            let line = line_at(&text, key.span().start);
            Entry { key: key.into_inner(), line, value }
        });
        let file = Self { entries: entries.collect(), path };
        for entry in &file.entries {
            file.check(entry, cli)?;
        }
        Ok(file)
    }

    pub(super) fn values(&self, option: &Setting<'_>) -> Result<Option<FileArguments>, FileRefusal> {
        let key = option.name;
        let Some(entry) = self.entries.iter().find(|entry| entry.key == key) else { return Ok(None) };
        let values = match &entry.value {
            Value::Boolean(on) if option.is_switch() => vec!["true".into(); usize::from(*on)],
            _ if option.is_switch() => {
                return Err(self.refuse(entry, format!("write {key} = true or {key} = false")));
            }
            Value::String(text) => vec![text.into()],
            Value::Integer(number) if option.takes_number() => vec![number.to_string().into()],
            _ => {
                let text = format!("write a text in quotes, as in {key} = \"{}\"", option.example());
                return Err(self.refuse(entry, text));
            }
        };
        Ok(Some((values, format!("is set in {}, line {}", self.path.display(), entry.line))))
    }

    pub(super) fn command(&self) -> Option<Vec<OsString>> {
        self.entries.iter().find(|entry| entry.key == COMMAND).and_then(Entry::words)
    }

    fn check(&self, entry: &Entry, cli: &Command) -> Result<(), FileRefusal> {
        match entry.key.as_str() {
            COMMAND if entry.words().is_some() => Ok(()),
            COMMAND => Err(self.refuse(entry, "write command = [\"./worker\", \"--its-option\"]".into())),
            CONFIG => Err(self.refuse(entry, "a settings file can't name another one: leave it out".into())),
            key if all_settings(cli).any(|option| option.name == key) => Ok(()),
            key => {
                let way_out = match nearest(cli, &[COMMAND], &key.replace('_', "-")) {
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

impl Entry {
    fn words(&self) -> Option<Vec<OsString>> {
        let words = self.value.as_array()?.iter().map(|word| word.as_str().map(OsString::from));
        words.collect::<Option<Vec<_>>>().filter(|words| !words.is_empty())
    }
}

fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let read = fs::File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if read as u64 > MAX_BYTES { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(text) }
}

fn line_at(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}
