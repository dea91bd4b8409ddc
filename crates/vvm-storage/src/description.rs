//! [`Description`]: what a storage reports about itself, for operators. No election depends
//! on it.

/// What a storage says of itself: which one it is, how it is set up, and what of that is unwise.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Description {
    /// The database and its version, `SQLite 3.50.2`. `None` where there is nothing to say but what the URL
    /// says.
    pub software: Option<String>,
    /// What matters to elections of how it is set up: a name in lower case and its value, in the driver's
    /// order.
    pub settings: Vec<(&'static str, String)>,
    /// What is unwise, or could not be seen: a sentence each, with the way out.
    pub concerns: Vec<String>,
}

impl Description {
    /// Of this database.
    pub fn of(software: impl Into<String>) -> Self {
        Self { software: Some(software.into()), ..Self::default() }
    }

    /// With a setting.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.settings.push((name, value.to_string()));
        self
    }

    /// With what is unwise about it.
    #[must_use]
    pub fn concerned(mut self, concern: impl Into<String>) -> Self {
        self.concerns.push(concern.into());
        self
    }

    /// The value of a setting.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|(named, _)| *named == name).map(|(_, value)| value.as_str())
    }
}
