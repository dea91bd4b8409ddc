//! What opening a storage shows: [`StorageUrl`], without secrets, and [`OpenError`], why it failed.

use std::{collections::BTreeSet, fmt};

/// A storage's URL. Its `Display` and `Debug` never show a secret: not what stands before an `@`, and of
/// options only the values of those that hold no secret.
#[derive(Clone, PartialEq, Eq)]
pub struct StorageUrl(String);

const SHOWN: [&str; 30] = [
    "account",
    "allow",
    "application_name",
    "channel_binding",
    "connect_timeout",
    "connections",
    "context",
    "datacenter",
    "endpoint",
    "kubeconfig",
    "max_ttl",
    "min_ttl",
    "mode",
    "password_file",
    "prefix",
    "profile",
    "region",
    "replication",
    "request_timeout",
    "serial",
    "server",
    "sslmode",
    "sslrootcert",
    "target_session_attrs",
    "tls",
    "tls_ca",
    "tls_certificate",
    "tls_key",
    "tls_name",
    "user",
];

/// Splits a URL behind its scheme. A path may contain a colon, but no scheme contains a slash or a dot.
pub(crate) fn split(url: &str) -> Option<(&str, &str)> {
    url.split_once(':').filter(|(scheme, _)| !scheme.is_empty() && !scheme.contains(['/', '.', '@']))
}

impl From<&str> for StorageUrl {
    fn from(url: &str) -> Self {
        Self(url.to_owned())
    }
}

impl StorageUrl {
    /// Returns the URL as it was given, with its secrets.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StorageUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, place) = match split(&self.0) {
            Some((scheme, place)) => (Some(scheme), place),
            None => (None, self.0.as_str()),
        };
        if let Some(scheme) = scheme {
            write!(out, "{scheme}:")?;
        }
        // The name of a file, folder or context may contain an `@`; everywhere else a user and a password end there.
        // The last `@` counts, and before the options are split off: a password may contain `@` and `?`.
        let has_host = place.starts_with("//") && !place.starts_with("///");
        let is_name = match scheme {
            Some("sled" | "sqlite") => !has_host,
            Some("k8s") => has_no_login(place),
            _ => false,
        };
        let place = match place.rsplit_once('@') {
            Some((_secret, rest)) if !is_name => {
                let slashes = if place.starts_with("//") { "//" } else { "" };
                write!(out, "{slashes}…@")?;
                rest
            }
            _ => place,
        };
        let Some((place, options)) = place.split_once('?') else { return out.write_str(place) };
        write!(out, "{place}?")?;
        for (number, option) in options.split('&').enumerate() {
            let separator = if number == 0 { "" } else { "&" };
            match option.split_once('=') {
                Some((name, _)) if SHOWN.contains(&name) => write!(out, "{separator}{option}")?,
                Some((name, _secret)) => write!(out, "{separator}{name}=…")?,
                None if SHOWN.contains(&option) => write!(out, "{separator}{option}")?,
                // It may be the end of a password that contains an `&`.
                None => write!(out, "{separator}…")?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for StorageUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "\"{self}\"")
    }
}

fn has_no_login(place: &str) -> bool {
    let Some((namespace, options)) = place.split_once('?') else { return false };
    let is_name = |option: &str| ["context=", "kubeconfig="].iter().any(|name| option.starts_with(name));
    !namespace.contains([':', '@'])
        && options.split('&').all(|option| !option.contains('@') || is_name(option))
}

fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter| !is_of_word(letter)).filter(|word| !word.is_empty())
}

/// Why a storage, which is unchanged, could not be opened or created. The message says what to do, and shows no secret.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct OpenError {
    kind: OpenErrorKind,
    text: String,
}

/// What an [`OpenError`] means to the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OpenErrorKind {
    /// The URL is wrong, for this build at least. No storage was contacted.
    Misuse,
    /// Nothing was created at this place, or not all of it: [`init_storage`](crate::init_storage) does.
    Missing,
    /// The obstacle may pass by itself, so that trying again can help.
    Passing,
    /// The system refused a thread or a descriptor, and not the storage.
    System,
    /// An operator has to act.
    Refused,
}

#[allow(dead_code, reason = "used by the drivers of this build")]
impl OpenError {
    pub(crate) fn new(kind: OpenErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    pub(crate) fn missing(text: impl Into<String>) -> Self {
        Self::new(OpenErrorKind::Missing, text)
    }

    pub(crate) fn passing(text: impl Into<String>) -> Self {
        Self::new(OpenErrorKind::Passing, text)
    }

    pub(crate) fn refused(text: impl Into<String>) -> Self {
        Self::new(OpenErrorKind::Refused, text)
    }

    pub(crate) fn misuse(text: impl Into<String>) -> Self {
        Self::new(OpenErrorKind::Misuse, text)
    }

    /// The URL makes no sense: `why`, and how to write it. Each driver's refusals of a URL come through here: a word
    /// of the URL is only shown if its [`StorageUrl`] shows it.
    pub(crate) fn of_url(url: &str, why: impl std::fmt::Display) -> Self {
        let shown = StorageUrl::from(url).to_string();
        let secrets: BTreeSet<&str> = words(url).collect();
        let secrets: BTreeSet<&str> = secrets.difference(&words(&shown).collect()).copied().collect();
        let (why, mut cleaned) = (why.to_string(), String::new());
        for part in why.split_inclusive(|letter| !is_of_word(letter)) {
            let word = part.trim_end_matches(|letter| !is_of_word(letter));
            let is_secret = !word.is_empty() && secrets.contains(word);
            cleaned += if is_secret { "…" } else { word };
            cleaned += &part[word.len()..];
        }
        Self::misuse(format!("`{shown}`: {cleaned}"))
    }

    /// Returns what it means to the caller.
    pub fn kind(&self) -> OpenErrorKind {
        self.kind
    }

    /// Whether the URL is wrong, for this build at least. No storage was contacted.
    pub fn is_misuse(&self) -> bool {
        self.kind == OpenErrorKind::Misuse
    }

    /// Whether the system refused a thread or a descriptor, and not the storage.
    pub fn is_of_system(&self) -> bool {
        self.kind == OpenErrorKind::System
    }

    /// Whether the obstacle may pass by itself, so that trying again can help.
    pub fn is_passing(&self) -> bool {
        self.kind == OpenErrorKind::Passing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown_and_the_rest_is() {
        let table = [
            ("dynamodb://KEY:SECRET@eu-west-1/table", "dynamodb://…@eu-west-1/table"),
            ("scylla://vvm:sec/r@e?t@a/keyspace?user=vvm", "scylla://…@a/keyspace?user=vvm"),
            (
                "scylla://a/keyspace?user=vvm&pass=s&ret&serial=local",
                "scylla://a/keyspace?user=vvm&pass=…&…&serial=local",
            ),
            ("postgres://me:secret@h/db?pwd=secret", "postgres://…@h/db?pwd=…"),
            ("sqlite://me:secret@h/a.db", "sqlite://…@h/a.db"),
            ("me:secret@h/db", "me:…@h/db"),
            ("//me:secret@h/db", "//…@h/db"),
            ("sqlite:/a@b.db?mode=0660&key=secret", "sqlite:/a@b.db?mode=0660&key=…"),
            ("sled:/a@b", "sled:/a@b"),
            ("k8s://a?context=b@c&kubeconfig=/d@e&key=secret", "k8s://a?context=b@c&kubeconfig=/d@e&key=…"),
            ("k8s://a?context=b@c&server=https://me:secret@d", "k8s://…@d"),
            ("k8s://me:sec?context=ret@a?context=b@c", "k8s://…@c"),
            ("/var/lib/a:b.db", "/var/lib/a:b.db"),
            ("mem:", "mem:"),
        ];
        for (url, shown) in table {
            assert_eq!(StorageUrl::from(url).to_string(), shown);
            assert_eq!(format!("{:?}", StorageUrl::from(url)), format!("\"{shown}\""));
            assert_eq!(StorageUrl::from(url).as_str(), url);
        }
    }
}
