//! The message of the thread before it ends the process.
//!
//! A thread that hangs may hold the lock of the allocator, a logger or the library's standard error. So the
//! message is made on the stack, and written with one system call. If that blocks, the second layer acts.

use crate::Subject;
use std::fmt::{self, Write};
use vvm_clock::{Instant, Span, SystemClock};

/// Writes the message to standard error, and ignores errors.
pub(super) fn write_last_words(deadline: Instant, subject: &Subject) {
    let mut line = Line::default();
    let late = Span(SystemClock::read().since(deadline));
    // A line that is too long is truncated.
    let _ = write!(
        line,
        "deadman[{}]: ending this process {late} after its kill deadline: epoch {} was neither renewed nor \
         handed back in time (storage out of reach or too slow, runtime stalled, or work that did not stop). \
         Leadership \"{}\" of \"{}\"",
        std::process::id(),
        subject.epoch,
        subject.key.escape_debug(),
        subject.holder.escape_debug(),
    );
    let _ = rustix::io::write(rustix::stdio::stderr(), line.ended());
}

/// A line of limited length, far below the limit of an atomic write to a pipe (4,096 bytes on Linux), so that
/// processes with one standard error don't mix their messages.
struct Line {
    bytes: [u8; Self::LIMIT],
    length: usize,
}

impl Line {
    const LIMIT: usize = 1024;

    /// Returns the text with the end of the line.
    fn ended(&mut self) -> &[u8] {
        self.bytes[self.length] = b'\n';
        &self.bytes[..=self.length]
    }
}

impl Default for Line {
    fn default() -> Self {
        Self { bytes: [0; Self::LIMIT], length: 0 }
    }
}

impl Write for Line {
    /// Appends the part that fits, and leaves a byte for the end of the line.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = Self::LIMIT - 1 - self.length;
        let taken = &text.as_bytes()[..text.floor_char_boundary(room)];
        self.bytes[self.length..][..taken.len()].copy_from_slice(taken);
        self.length += taken.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_line_is_truncated_between_characters() {
        let mut line = Line::default();
        line.write_str("a").unwrap();
        for _ in 0..Line::LIMIT {
            line.write_str("é").unwrap();
        }
        let text = std::str::from_utf8(line.ended()).unwrap();
        assert_eq!(text.len(), Line::LIMIT);
        assert!(text.ends_with("é\n"));
    }
}
