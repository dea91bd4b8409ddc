//! What the libraries below have to say, on standard error, for whoever asks with `VVM_LOG`.
//!
//! Without it, only what nobody else says: what concerns the leadership stands in our own lines.

use crate::announce::{say, write_line};
use std::io;
use tracing_subscriber::EnvFilter;

/// In the form of `tracing_subscriber::EnvFilter`, e.g. `debug` or `ielections=trace`.
const VARIABLE: &str = "VVM_LOG";

/// Errors; but not the orchestrator's, whose every problem ends up in the last line of a run.
const USUAL: &str = "error,vvm_orch=off,ielections=off";

/// Starts to write.
pub(super) fn start() {
    let wanted = std::env::var(VARIABLE).unwrap_or_else(|_| USUAL.into());
    let filter = EnvFilter::try_new(&wanted).unwrap_or_else(|refusal| {
        say!("{VARIABLE}: {refusal}: write a level, or TARGET=LEVEL,…");
        EnvFilter::new(USUAL)
    });
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).without_time();
    // Refused only where there is one already, and then that one is what somebody wanted.
    let _ = subscriber.with_writer(|| Droppable).try_init();
}

/// A line at a time, and what can't be written at once is dropped: a log must not hold up a renewal.
struct Droppable;

impl io::Write for Droppable {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        write_line(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
