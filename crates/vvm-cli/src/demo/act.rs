//! [`Act`]: what is being shown at the moment, for those who watch.

use std::fmt;

/// The acts, in their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    Gather,
    Renew,
    Crash,
    Stop,
    Hang,
    Close,
}

impl Act {
    /// Its number, from 1.
    pub(crate) fn number(self) -> usize {
        self as usize + 1
    }

    /// How many there are.
    pub(crate) const COUNT: usize = Self::Close as usize + 1;
}

impl fmt::Display for Act {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Gather => "Three candidates, one record: one of them takes it, and its worker begins.",
            Self::Renew => "The leader renews its record four times a TTL. The others see it, and stand by.",
            Self::Crash => "The leader's machine crashes. Its record must stand unchanged for one TTL.",
            Self::Stop => {
                "The leader is asked to stop: its worker ends first, then the record is free at once."
            }
            Self::Hang => {
                "The leader's host hangs for ever. The kernel ends it at 0.8 TTL, before the next one leads."
            }
            Self::Close => "All are asked to stop. Then the workers' own logs are compared.",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acts_are_counted_from_the_first_to_the_last() {
        assert_eq!((Act::Gather.number(), Act::Close.number()), (1, Act::COUNT));
    }
}
