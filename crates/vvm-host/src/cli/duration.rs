//! Durations as people write them: `20s`, `500ms`, `1m30s`. A bare number is refused: nobody can know its unit.

use std::{str::FromStr, time::Duration};

/// A duration given on the command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GivenDuration(pub(crate) Duration);

/// A text that is not a duration.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NotADuration {
    /// A number alone.
    #[error("{0} of what? Write {0}s for seconds, {0}ms, {0}m or {0}h")]
    NoUnit(String),
    /// Anything else.
    #[error("write a duration like 20s, 500ms or 1m30s (units: ms, s, m, h, d)")]
    Malformed,
    /// Beyond what a clock can count.
    #[error("too long: at most 100 years")]
    TooLong,
}

/// From large to small, which is also the order to write them in.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// 100 years, well within what an `Instant` can be moved by.
const MAX_MILLIS: u64 = 100 * 365 * 86_400_000;

impl FromStr for GivenDuration {
    type Err = NotADuration;

    fn from_str(text: &str) -> Result<Self, NotADuration> {
        if text == "0" {
            return Ok(Self(Duration::ZERO));
        }
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(NotADuration::NoUnit(text.into()));
        }
        let mut millis = 0_u64;
        let mut units = UNITS.iter();
        let mut rest = text;
        while !rest.is_empty() || text.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (number, unit_on) = rest.split_at(digits);
            let letters = unit_on.bytes().take_while(u8::is_ascii_alphabetic).count();
            let (unit, after) = unit_on.split_at(letters);
            // The iterator goes on where it was, so each unit comes once and after the larger ones.
            let (_, worth) = units.find(|(name, _)| *name == unit).ok_or(NotADuration::Malformed)?;
            let number = match number.parse::<u64>() {
                Ok(number) => number,
                Err(_) if number.is_empty() => return Err(NotADuration::Malformed),
                Err(_) => return Err(NotADuration::TooLong),
            };
            millis = number
                .checked_mul(*worth)
                .and_then(|more| millis.checked_add(more))
                .filter(|sum| *sum <= MAX_MILLIS)
                .ok_or(NotADuration::TooLong)?;
            rest = after;
        }
        Ok(Self(Duration::from_millis(millis)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(text: &str) -> u128 {
        text.parse::<GivenDuration>().unwrap().0.as_millis()
    }

    #[test]
    fn durations_as_people_write_them() {
        assert_eq!(millis("20s"), 20_000);
        assert_eq!(millis("500ms"), 500);
        assert_eq!(millis("1m30s"), 90_000);
        assert_eq!(millis("1d2h3m4s5ms"), 93_784_005);
        assert_eq!(millis("0"), 0);
    }

    #[test]
    fn a_bare_number_is_refused_with_the_hint() {
        let refusal = "20".parse::<GivenDuration>().unwrap_err();
        assert_eq!(refusal, NotADuration::NoUnit("20".into()));
        assert!(refusal.to_string().contains("Write 20s"), "{refusal}");
    }

    #[test]
    fn everything_else_is_refused() {
        for text in ["", "s", "-1s", "1.5s", "20 s", "1s1s", "1s1m", "20sec", "1m30", "s20"] {
            assert_eq!(text.parse::<GivenDuration>(), Err(NotADuration::Malformed), "{text:?}");
        }
        for text in ["99999999999999999999s", "18446744073709551615d", "36501d"] {
            assert_eq!(text.parse::<GivenDuration>(), Err(NotADuration::TooLong), "{text:?}");
        }
    }
}
