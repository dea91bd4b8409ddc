//! Where a setting was found that is not on the command line, for whoever has to mend it.

use clap::error::{ContextKind, ContextValue};
use std::{fmt, path::PathBuf};

/// Where one setting was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// In this variable.
    Variable(String),
    /// In this line of a file, counted from 1.
    File { path: PathBuf, line: usize },
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => write!(out, "is set by {name}"),
            Self::File { path, line } => write!(out, "stands in {}, line {line}", path.display()),
        }
    }
}

/// Where each setting was found, by the option's name.
#[derive(Clone, Default, Debug)]
pub(crate) struct Origins(Vec<(String, Origin)>);

impl Origins {
    pub(super) fn note(&mut self, option: &str, origin: Origin) {
        self.0.push((option.to_owned(), origin));
    }

    /// A sentence for each option of `refusal` that somebody would look for on the command line in vain.
    pub(in crate::cli) fn of_refusal(&self, refusal: &clap::Error) -> Vec<String> {
        let concerned = [ContextKind::InvalidArg, ContextKind::PriorArg].into_iter();
        let concerned = concerned.filter_map(|kind| refusal.get(kind)).flat_map(|value| match value {
            ContextValue::String(one) => vec![one.clone()],
            ContextValue::Strings(many) => many.clone(),
            _ => Vec::new(),
        });
        // As in "--ttl <DURATION>".
        let names = concerned.filter_map(|shown| {
            let name = shown.strip_prefix("--")?;
            Some(name.split([' ', '=', '[']).next()?.to_owned())
        });
        names.filter_map(|name| self.of(&name)).collect()
    }

    fn of(&self, name: &str) -> Option<String> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(name, origin)| format!("--{name} {origin}"))
    }

    /// For a refusal that may be about any of them: a sentence, unless all of them were on the command line.
    pub(crate) fn all(&self) -> Option<String> {
        let all = self.0.iter().map(|(name, origin)| format!("--{name} {origin}"));
        Some(all.collect::<Vec<_>>().join(", ")).filter(|all| !all.is_empty())
    }
}
