//! [`Tape`]: the random choices of one run, as a value that proptest can shrink. Past its end every choice is
//! the simplest one.

use proptest::{collection::vec, prelude::*};
use std::time::Duration;

/// Read once from start to end.
#[derive(Clone, Debug)]
pub(crate) struct Tape {
    choices: Vec<u16>,
    next: usize,
}

impl Tape {
    /// Tapes of up to `length` choices.
    pub(crate) fn up_to(length: usize) -> impl Strategy<Value = Self> {
        vec(any::<u16>(), 0..length).prop_map(|choices| Self { choices, next: 0 })
    }

    fn next(&mut self) -> u64 {
        let choice = self.choices.get(self.next).copied().unwrap_or(0);
        self.next += 1;
        choice.into()
    }

    /// A number below `limit`; 0 is the simplest.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        ((self.next() * limit as u64) >> 16) as usize
    }

    /// `true` with a probability of `percent` in a hundred; `false` is simpler.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        (self.next() * 100) >> 16 >= 100 - percent
    }

    /// A span up to `longest`; shorter is simpler.
    pub(crate) fn span(&mut self, longest: Duration) -> Duration {
        longest.mul_f64(self.next() as f64 / f64::from(u16::MAX))
    }
}
