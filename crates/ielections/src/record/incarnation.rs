//! [`Incarnation`] and [`Version`]: which acquisition attempt, and which of its writes.

use std::{fmt, str::FromStr};

/// 128 random bits, fresh for every acquisition *attempt*.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation([u8; 16]);

impl Incarnation {
    /// From 16 random bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The 16 bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for Incarnation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Eight digits are enough to tell attempts apart in a log.
        self.0.iter().take(4).try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

/// The text is not 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an incarnation is 32 hexadecimal digits")]
pub struct NotAnIncarnation;

impl FromStr for Incarnation {
    type Err = NotAnIncarnation;

    fn from_str(text: &str) -> Result<Self, NotAnIncarnation> {
        // `from_str_radix` alone would accept a sign.
        if text.len() != 32 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(NotAnIncarnation);
        }
        let number = u128::from_str_radix(text, 16).map_err(|_| NotAnIncarnation)?;
        Ok(Self(number.to_be_bytes()))
    }
}

/// Identifies one write attempt. The writer chooses it before it sends, so that a read-back recognises a
/// write without an answer, and an observer sees that a record is unchanged (I7).
///
/// New for *every* attempt, also of a renewal: confirmed by its incarnation alone, a lost renewal would count
/// as applied.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Version {
    /// The acquisition attempt.
    pub incarnation: Incarnation,
    /// The number of the write, from 0; larger for every later attempt.
    pub write: u64,
}

impl Version {
    /// The version of the attempt after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self { incarnation: self.incarnation, write: self.write + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incarnation_is_parsed_from_what_it_displays() {
        let incarnation = Incarnation::from_bytes([0xf0; 16]);
        assert_eq!(incarnation.to_string().parse(), Ok(incarnation));
        assert_eq!("+f0".parse::<Incarnation>(), Err(NotAnIncarnation));
        assert_eq!("+0000000000000000000000000000000".parse::<Incarnation>(), Err(NotAnIncarnation));
    }
}
