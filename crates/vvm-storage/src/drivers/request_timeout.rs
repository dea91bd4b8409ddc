//! The option `request_timeout` of the drivers that ask servers.

use std::time::Duration;

/// How long a request may take where the URL doesn't say: as an attempt may at the default TTL of 20 s, and a
/// little more than the nodes of Cassandra wait for each other (1.8 s for the contention of a transaction).
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// Less would be a network that never answers.
const SHORTEST: Duration = Duration::from_millis(100);

/// More would be a program that hangs.
const LONGEST: Duration = Duration::from_secs(60);

/// The value of `request_timeout`.
pub(crate) fn request_timeout(value: &str) -> Result<Duration, String> {
    duration(value).filter(|duration| (SHORTEST..=LONGEST).contains(duration)).ok_or_else(|| {
        format!("`{value}` is no time for a request: write request_timeout=5s, from 100ms to 60s")
    })
}

/// Whole seconds or milliseconds.
pub(crate) fn duration(value: &str) -> Option<Duration> {
    let number = |text: &str| text.parse::<u32>().ok().map(u64::from);
    match value.strip_suffix("ms") {
        Some(millis) => number(millis).map(Duration::from_millis),
        None => value.strip_suffix('s').and_then(number).map(Duration::from_secs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_timeout_has_a_unit_and_bounds() {
        for (text, millis) in [("5s", 5_000), ("100ms", 100), ("60s", 60_000)] {
            assert_eq!(request_timeout(text), Ok(Duration::from_millis(millis)));
        }
        for text in ["", "5", "s", "ms", "0s", "99ms", "61s", "-1s", "1.5s", "1m", "99999999999s"] {
            assert!(request_timeout(text).unwrap_err().contains("request_timeout=5s"), "{text}");
        }
    }
}
