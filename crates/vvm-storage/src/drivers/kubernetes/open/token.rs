//! [`Token`]: what a request logs in with. A Pod's token is replaced in its file, so the file is read again.

use super::OpenError;
use std::{
    fmt, fs,
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use vvm_clock::{Clock, Instant, SystemClock};

/// For how long a token that was read is used. Kubernetes replaces one when a fifth of its life is left.
const READ_AGAIN: Duration = Duration::from_secs(60);

/// The token of a user.
pub(super) enum Token {
    /// The user has a certificate, or nothing.
    None,
    Is(String),
    File(TokenFile),
}

/// A file with a token, and what was read.
pub(super) struct TokenFile {
    path: PathBuf,
    read: Mutex<Option<(String, Instant)>>,
}

impl From<PathBuf> for TokenFile {
    fn from(path: PathBuf) -> Self {
        Self { path, read: Mutex::default() }
    }
}

impl Token {
    /// Returns the token. A file is read at most once a minute, unless the token was refused.
    pub(super) fn get(&self, clock: &SystemClock) -> Result<Option<String>, OpenError> {
        match self {
            Self::None => Ok(None),
            Self::Is(token) => Ok(Some(token.clone())),
            Self::File(file) => {
                let mut read = file.read.lock().unwrap_or_else(PoisonError::into_inner);
                let now = clock.now();
                if let Some((token, since)) = &*read
                    && now.since(*since) < READ_AGAIN
                {
                    return Ok(Some(token.clone()));
                }
                let unusable = |why| OpenError::File { path: file.path.clone(), why };
                let text = fs::read_to_string(&file.path).map_err(|cause| unusable(cause.to_string()))?;
                let token = text.trim().to_owned();
                if token.is_empty() {
                    return Err(unusable("it is empty".into()));
                }
                *read = Some((token.clone(), now));
                Ok(Some(token))
            }
        }
    }

    /// The server refused it: the next request reads the file again.
    pub(super) fn was_refused(&self) {
        if let Self::File(file) = self {
            file.read.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }
}

/// Never shows the token.
impl fmt::Debug for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => out.write_str("no token"),
            Self::Is(_) => out.write_str("a token"),
            Self::File(file) => write!(out, "the token in {}", file.path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_read_again_after_a_refusal_and_not_before_a_minute() {
        let clock = SystemClock::start().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let token = Token::File(path.clone().into());
        assert!(token.get(&clock).unwrap_err().to_string().contains("token can't be used"));
        fs::write(&path, "one\n").unwrap();
        assert_eq!(token.get(&clock).unwrap().as_deref(), Some("one"));
        fs::write(&path, "two\n").unwrap();
        assert_eq!(token.get(&clock).unwrap().as_deref(), Some("one"));
        token.was_refused();
        assert_eq!(token.get(&clock).unwrap().as_deref(), Some("two"));
        assert!(!format!("{token:?}").contains("two"));
    }
}
