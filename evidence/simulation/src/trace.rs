//! [`Trace`]: the events of a run, line by line. Printed on request, and always hashed, to compare two runs
//! of one seed.

use std::fmt::{self, Write};
use vvm_clock::Instant;

#[derive(Debug, Default)]
pub(crate) struct Trace {
    print: bool,
    hash: u64,
    buffer: String,
}

impl Trace {
    pub(crate) fn new(print: bool) -> Self {
        // The offset basis of FNV-1a.
        Self { print, hash: 0xcbf2_9ce4_8422_2325, buffer: String::new() }
    }

    pub(crate) fn line(&mut self, now: Instant, line: fmt::Arguments<'_>) {
        self.buffer.clear();
        let seconds = now.since(Instant::ORIGIN).as_secs_f64();
        // Writing to a string cannot fail.
        let _ = write!(self.buffer, "{seconds:>11.6}  {line}");
        for byte in self.buffer.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if self.print {
            println!("{}", self.buffer);
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}
