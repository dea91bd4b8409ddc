//! Commands that end: what hangs is killed with all that it started (I10), and so is what an interrupt finds. Each
//! command has a process group of its own, so that one signal reaches all of it.

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};
use std::{
    fs::{self, File},
    io::{self, Read as _, Seek as _},
    os::unix::process::CommandExt as _,
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use vvm_clock::{DisplayDuration, SystemClock};

/// Several times what the longest step takes on 2 cores, and the build of all dependencies with it.
pub(crate) const STEP: Duration = Duration::from_secs(45 * 60);
const PACE: Duration = Duration::from_millis(50);

static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// From now on INT, TERM and HUP end the commands that run, instead of this process alone. A signal that is
/// ignored stays so, as HUP does under `nohup`.
pub(crate) fn heed_interrupts() -> io::Result<()> {
    let ignored = ignored(&fs::read_to_string("/proc/self/status").unwrap_or_default());
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        if ignored & (1 << (signal - 1)) == 0 {
            flag::register(signal, Arc::clone(&INTERRUPTED))?;
        }
    }
    Ok(())
}

fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

pub(crate) fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Runs `command` to its end, at most for `limit`, and returns its output. Fails if not started, late, or interrupted.
pub(crate) fn output(command: &mut Command, limit: Duration) -> io::Result<Output> {
    let (mut stdout, mut stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
    command.stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
    let status = wait(command, within(limit))?;
    Ok(Output { status, stdout: text(&mut stdout)?, stderr: text(&mut stderr)? })
}

fn text(file: &mut File) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut text)?;
    Ok(text)
}

/// As [`output`], but what it writes to standard error is shown.
pub(crate) fn stdout(command: &mut Command, limit: Duration) -> io::Result<Output> {
    let mut stdout = tempfile::tempfile()?;
    command.stdout(stdout.try_clone()?);
    let status = wait(command, within(limit))?;
    Ok(Output { status, stdout: text(&mut stdout)?, stderr: Vec::new() })
}

/// Runs `command` to its end, showing `see` each line. Kills it if `see` finds nothing new for `silence`.
pub(crate) fn watch(
    command: &mut Command,
    silence: Duration,
    mut see: impl FnMut(&str) -> bool,
) -> io::Result<ExitStatus> {
    // A file, since processes that outlive the command may keep a pipe open for ever.
    let written = tempfile::NamedTempFile::new()?;
    command.stdout(append(&written)?).stderr(append(&written)?);
    let mut reader = written.reopen()?;
    let (mut rest, mut last) = (Vec::new(), SystemClock::read());
    let mut read = |last: &mut _| {
        reader.read_to_end(&mut rest)?;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            if see(String::from_utf8_lossy(&line).trim_end()) {
                *last = SystemClock::read();
            }
        }
        io::Result::Ok(())
    };
    let status = wait(command, || {
        read(&mut last)?;
        let silent = SystemClock::read().since(last);
        if silent > silence {
            Err(hangs(format!("killed after {} without a result", DisplayDuration(silent))))
        } else {
            Ok(())
        }
    });
    read(&mut last)?;
    status
}

/// Two descriptors of one position would overwrite each other.
fn append(file: &tempfile::NamedTempFile) -> io::Result<File> {
    File::options().append(true).open(file.path())
}

fn within(limit: Duration) -> impl FnMut() -> io::Result<()> {
    let start = SystemClock::read();
    move || {
        let took = SystemClock::read().since(start);
        if took > limit {
            Err(hangs(format!("killed after {}: it hangs", DisplayDuration(took))))
        } else {
            Ok(())
        }
    }
}

fn hangs(how: String) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, how)
}

fn wait(command: &mut Command, mut may_go_on: impl FnMut() -> io::Result<()>) -> io::Result<ExitStatus> {
    let mut child = command.stdin(Stdio::null()).process_group(0).spawn()?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        let verdict = if is_interrupted() {
            Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted"))
        } else {
            may_go_on()
        };
        if let Err(cause) = verdict {
            end(&mut child)?;
            return Err(cause);
        }
        SystemClock::block_for(PACE);
    }
}

/// Ends the group: first by TERM, so that servers which `child` started are ended by it.
fn end(child: &mut Child) -> io::Result<()> {
    let start = SystemClock::read();
    for signal in ["TERM", "KILL"] {
        // The shell's own kill is on every system. The group may have ended already.
        let _gone = Command::new("sh")
            .args(["-c", &format!("kill -s {signal} -- -{}", child.id())])
            .stderr(Stdio::null())
            .status()?;
        while signal == "TERM" && SystemClock::read().since(start) < Duration::from_secs(10) {
            if child.try_wait()?.is_some() {
                break;
            }
            SystemClock::block_for(PACE);
        }
    }
    child.wait()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_hangs_is_ended_with_all_that_it_started() {
        let hung = output(&mut shell("sleep 1000 | sleep 1000"), Duration::from_millis(50));
        assert_eq!(hung.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn silent_command_is_ended_after_its_last_result() {
        let mut seen = Vec::new();
        let hung =
            watch(&mut shell("echo case; echo noise >&2; sleep 1000"), Duration::from_millis(300), |line| {
                seen.push(line.to_owned());
                line == "case"
            });
        assert_eq!(hung.unwrap_err().kind(), io::ErrorKind::TimedOut);
        seen.sort();
        assert_eq!(seen, ["case", "noise"]);
    }

    #[test]
    fn signals_that_are_ignored_are_read_from_the_status() {
        assert_eq!(ignored("Name:\tx\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001003\n"), 0x1003);
        assert_eq!(ignored(""), 0);
    }

    #[test]
    fn what_ends_in_time_has_its_status_and_output() {
        let ended = output(&mut shell("echo out; exit 3"), Duration::from_secs(60)).unwrap();
        assert_eq!((ended.status.code(), &*ended.stdout), (Some(3), &b"out\n"[..]));
    }
}
