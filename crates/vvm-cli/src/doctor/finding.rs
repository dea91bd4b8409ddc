//! [`Finding`]: one result of an examination.

use serde_json::{Map, Value, json};
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Health {
    Good,
    /// It works, with little room for mishaps.
    Caution,
    /// A leader here loses leaderships, or never acquires one.
    Problem,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Finding {
    pub(super) about: &'static str,
    pub(super) health: Health,
    /// For people, with the remedy if there is one.
    pub(super) says: String,
    /// For programs.
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
    pub(super) fn new(about: &'static str, health: Health, says: impl Into<String>) -> Self {
        Self { about, health, says: says.into(), figures: Map::new() }
    }

    /// Adds a figure.
    pub(super) fn with(mut self, name: &str, figure: impl Into<Value>) -> Self {
        self.figures.insert(name.into(), figure.into());
        self
    }

    /// Adds a duration, in milliseconds.
    pub(super) fn with_duration(self, name: &str, duration: Duration) -> Self {
        self.with(&format!("{name}_ms"), duration.as_secs_f64() * 1e3)
    }

    pub(super) fn to_json(&self) -> Value {
        let mut object = json!({"about": self.about, "health": self.health.word(), "says": self.says});
        self.figures.iter().for_each(|(name, figure)| object[name] = figure.clone());
        object
    }
}
