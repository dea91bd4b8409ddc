//! The option `request_timeout` of the drivers for servers.

use std::time::Duration;

/// The default time limit of a request. It equals the time of an attempt at the default TTL of 20 s, and
/// exceeds the time that nodes of Cassandra wait for each other (1.8 s for a contended transaction).
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// With a shorter limit, a normal network would never answer in time.
const SHORTEST: Duration = Duration::from_millis(100);

/// With a longer limit, a program would seem to hang.
const LONGEST: Duration = Duration::from_secs(60);

/// Parses the value of `request_timeout`.
pub(crate) fn request_timeout(value: &str) -> Result<Duration, String> {
    duration(value).filter(|duration| (SHORTEST..=LONGEST).contains(duration)).ok_or_else(|| {
        format!("`{value}` is not a valid request timeout: write request_timeout=5s, from 100ms to 60s")
    })
}

/// Parses whole seconds or milliseconds.
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
    fn request_timeout_needs_a_unit_and_has_bounds() {
        for (text, millis) in [("5s", 5_000), ("100ms", 100), ("60s", 60_000)] {
            assert_eq!(request_timeout(text), Ok(Duration::from_millis(millis)));
        }
        for text in ["", "5", "s", "ms", "0s", "99ms", "61s", "-1s", "1.5s", "1m", "99999999999s"] {
            assert!(request_timeout(text).unwrap_err().contains("request_timeout=5s"), "{text}");
        }
    }
}
