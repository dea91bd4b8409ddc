//! [`Description`]: what a storage reports about itself, for operators. Elections do not use it.

/// The software, the configuration and the concerns of a storage.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Description {
    /// The database and its version, such as `SQLite 3.50.2`. `None` if there is none to report.
    pub software: Option<String>,
    /// Settings that matter to elections: a name in lower case and its value, in the driver's order.
    pub settings: Vec<(&'static str, String)>,
    /// Unsafe settings, and what could not be read: a sentence each, with what to do.
    pub concerns: Vec<String>,
}

impl Description {
    /// A description of this database.
    pub fn of(software: impl Into<String>) -> Self {
        Self { software: Some(software.into()), ..Self::default() }
    }

    /// Adds a setting.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.settings.push((name, value.to_string()));
        self
    }

    /// Adds a concern.
    #[must_use]
    pub fn concerned(mut self, concern: impl Into<String>) -> Self {
        self.concerns.push(concern.into());
        self
    }

    /// Returns the value of a setting.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|(named, _)| *named == name).map(|(_, value)| value.as_str())
    }
}
