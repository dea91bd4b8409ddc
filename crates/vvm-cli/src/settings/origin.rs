//! [`Origins`]: where each setting was found that is not on the command line.

use clap::error::{ContextKind, ContextValue};

/// The origin of each setting, as `is set by VVM_TTL`, by the option's name.
#[derive(Clone, Default, Debug)]
pub(crate) struct Origins(Vec<(String, String)>);

impl Origins {
    pub(super) fn note(&mut self, option: &str, origin: String) {
        self.0.push((option.to_owned(), origin));
    }

    /// Whether the option `name` is not on the command line.
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
        // As in "--ttl <DURATION>".
        let names = concerned.filter_map(|shown| {
            let name = shown.strip_prefix("--")?;
            Some(name.split([' ', '=', '[']).next()?.to_owned())
        });
        let of = |name: String| self.sentences().nth(self.0.iter().position(|(known, _)| *known == name)?);
        names.filter_map(of).collect()
    }

    /// Returns one sentence about all settings that are not on the command line, if there are any: for a
    /// refusal that does not name an option.
    pub(crate) fn all(&self) -> Option<String> {
        let all = self.sentences().collect::<Vec<_>>().join(", ");
        (!all.is_empty()).then_some(all)
    }

    fn sentences(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(name, origin)| format!("--{name} {origin}"))
    }
}
