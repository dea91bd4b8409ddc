//! Durations such as `20s`, `500ms`, `1.5s` and `1h30m`. A number without a unit is refused.

use jiff::{Span, SpanRelativeTo};
use std::time::Duration;

/// A text that is not a duration.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum NotADuration {
    /// A number alone.
    #[error("{0} of what? Write {0}s for seconds, {0}ms, {0}m or {0}h")]
    NoUnit(String),
    /// Anything else.
    #[error("write a duration like 20s, 500ms, 1.5s or 1h30m, at most 100 years (units: ms, s, m, h, d)")]
    Malformed,
}

/// 100 years. Larger ones could overflow an `Instant`.
const MAX: Duration = Duration::from_hours(100 * 365 * 24);

/// Parses a duration.
///
/// # Errors
/// [`NotADuration`].
pub(super) fn parse_duration(text: &str) -> Result<Duration, NotADuration> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(NotADuration::NoUnit(text.into()));
    }
    text.parse::<Span>()
        .and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()))
        .and_then(Duration::try_from)
        .ok()
        .filter(|duration| *duration <= MAX)
        .ok_or(NotADuration::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_fractions_and_sums_are_parsed() {
        let texts = ["0", "500ms", "1.5s", "20s", "2m", "1m30s", "1h30m", "1d2h3m4s5ms", "36500d"];
        let millis = texts.map(|text| parse_duration(text).unwrap().as_millis());
        let expected = [0, 500, 1_500, 20_000, 120_000, 90_000, 5_400_000, 93_784_005, 36_500 * 86_400_000];
        assert_eq!(millis, expected);
    }

    #[test]
    fn number_without_unit_is_refused_with_a_hint() {
        let refusal = parse_duration("20").unwrap_err();
        assert_eq!(refusal, NotADuration::NoUnit("20".into()));
        assert!(refusal.to_string().contains("Write 20s"), "{refusal}");
        assert_eq!(parse_duration("1.5"), Err(NotADuration::NoUnit("1.5".into())));
    }

    #[test]
    fn malformed_and_too_long_durations_are_refused() {
        let malformed = ["", "s", "-1s", "1s ago", "1s1s", "1s1m", "1m30", "s20", "1M", "1mo", "1y", "nan"];
        let long = ["99999999999999999999s", "18446744073709551615d", "36501d", "876000h1ms"];
        for text in malformed.into_iter().chain(long) {
            assert_eq!(parse_duration(text), Err(NotADuration::Malformed), "{text:?}");
        }
    }
}
