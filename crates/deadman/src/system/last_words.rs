//! What the thread says before it ends the process: who, which key, which epoch, how late.
//!
//! The process is in an unknown state: an allocator, a logger or the standard library's own standard error
//! may be locked by a thread that hangs. So: a line on the stack and a single write to the descriptor. A
//! write that blocks is the second layer's business.

use crate::Subject;
use std::fmt::{self, Write};
use vvm_clock::{Instant, Span, SystemClock};

/// Says it. No error is of any use here.
pub(super) fn say(deadline: Instant, subject: &Subject) {
    let mut line = Line::default();
    let late = Span(SystemClock::read().since(deadline));
    // A line that is too long is cut, which is no error.
    let _ = write!(
        line,
        "deadman[{}]: ending this process {late} after its kill deadline: epoch {} was neither renewed nor handed \
         back in time (storage out of reach or too slow, runtime stalled, or work that did not stop). \
         Leadership \"{}\" of \"{}\"",
        std::process::id(),
        subject.epoch,
        subject.key.escape_debug(),
        subject.holder.escape_debug(),
    );
    let _ = rustix::io::write(rustix::stdio::stderr(), line.ended());
}

/// A line of limited length. The limit is far below that of an atomic write to a pipe (4,096 bytes on Linux),
/// so that processes which share a standard error don't mix their last words.
struct Line {
    bytes: [u8; Self::LIMIT],
    length: usize,
}

impl Line {
    const LIMIT: usize = 1024;

    /// The text, and the end of the line.
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
    /// Takes what fits, leaving a byte for the end of the line.
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
    fn a_long_line_is_cut_between_characters_and_ended() {
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
