//! [`Opened`]: where an open storage is, and whether opening created it. For start lines and logs.

use std::fmt;

/// Where an open storage is. Two candidates that print different locations do not share a storage.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Opened {
    /// The absolute path of a file or folder, or the address of a server. Contains no secret.
    pub location: String,
    /// The file system of a file, if the driver knows it.
    pub file_system: Option<String>,
    /// Whether this call to open created the storage.
    pub provenance: Provenance,
}

/// Whether a storage was there before it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Provenance {
    /// Opening created it: it had no records.
    Created,
    /// It was there.
    Existing,
}

impl Opened {
    /// A storage at `location`.
    pub fn at(location: impl Into<String>, provenance: Provenance) -> Self {
        Self { location: location.into(), file_system: None, provenance }
    }

    /// On this file system.
    #[must_use]
    pub fn on(mut self, file_system: impl Into<String>) -> Self {
        self.file_system = Some(file_system.into());
        self
    }
}

impl fmt::Display for Opened {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.location)?;
        if let Some(file_system) = &self.file_system {
            write!(out, " on {file_system}")?;
        }
        write!(out, ", {}", self.provenance)
    }
}

impl fmt::Display for Provenance {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Created => "created",
            Self::Existing => "existing",
        })
    }
}
