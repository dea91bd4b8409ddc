//! How long a step may take (I10): a test that hangs must not keep a server for hours and say nothing.
//!
//! Only without a terminal. At a terminal a person can interrupt, and a step stays in the terminal's
//! process group so that this reaches all of it.

use std::{
    io::{self, IsTerminal as _},
    os::unix::process::CommandExt as _,
    process::{Command, ExitStatus},
    time::Duration,
};
use vvm_clock::{Span, SystemClock};

/// Several times what the longest step takes on 2 cores, and the build of all dependencies with it.
const LIMIT: Duration = Duration::from_secs(45 * 60);
const PACE: Duration = Duration::from_millis(100);

/// Runs `command` to its end, or ends it.
///
/// # Errors
/// That it can't be started, or took too long.
pub(crate) fn run(command: &mut Command) -> io::Result<ExitStatus> {
    if io::stdin().is_terminal() { command.status() } else { run_for(command, LIMIT) }
}

fn run_for(command: &mut Command, limit: Duration) -> io::Result<ExitStatus> {
    let start = SystemClock::read();
    let mut child = command.process_group(0).spawn()?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if SystemClock::read().since(start) > limit {
            // The whole group: what cargo started holds our output open. The shell's own kill is on every
            // system.
            Command::new("sh").args(["-c", &format!("kill -s KILL -- -{}", child.id())]).status()?;
            child.wait()?;
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("ended after {}: it hangs", Span(limit)),
            ));
        }
        SystemClock::block_for(PACE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hangs_is_ended_with_all_that_it_started() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 | sleep 1000"]);
        let ended = run_for(&mut command, Duration::from_millis(50));
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn what_ends_in_time_has_its_status() {
        let mut command = Command::new("sh");
        let status = run_for(command.args(["-c", "exit 3"]), Duration::from_secs(60)).unwrap();
        assert_eq!(status.code(), Some(3));
    }
}
