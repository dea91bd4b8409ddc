//! [`Finding`]: one thing that was found.

use serde_json::{Map, Value};
use std::{fmt, time::Duration};

/// How good something is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Health {
    Good,
    /// It works, with less room or less safety from mishaps than one would want.
    Caution,
    /// Who leads from here will lose leaderships, or never win one.
    Problem,
}

/// One thing that was found.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Finding {
    pub(super) about: &'static str,
    pub(super) health: Health,
    /// For people, with the way out if there is something to mend.
    pub(super) says: String,
    /// The same in figures, for programs.
    pub(super) figures: Map<String, Value>,
}

impl Health {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Caution => "caution",
            Self::Problem => "problem",
        }
    }
}

impl Finding {
    pub(super) fn new(about: &'static str, health: Health, says: impl fmt::Display) -> Self {
        Self { about, health, says: says.to_string(), figures: Map::new() }
    }

    /// With a figure.
    pub(super) fn with(mut self, name: &str, figure: impl Into<Value>) -> Self {
        self.figures.insert(name.into(), figure.into());
        self
    }

    /// With a duration, in milliseconds.
    pub(super) fn with_duration(self, name: &str, duration: Duration) -> Self {
        self.with(&format!("{name}_ms"), duration.as_secs_f64() * 1e3)
    }

    pub(super) fn to_json(&self) -> Value {
        let mut object = Map::from_iter([
            ("about".to_owned(), self.about.into()),
            ("health".to_owned(), self.health.word().into()),
            ("says".to_owned(), self.says.as_str().into()),
        ]);
        object.extend(self.figures.clone());
        object.into()
    }
}
