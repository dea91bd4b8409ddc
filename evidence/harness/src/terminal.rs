//! A terminal, bare or with a shell that has job control.

use super::{HANG_LIMIT, Trial, program};
use rustix::{
    fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};
use std::{
    ffi::CString,
    fs::File,
    io::{BufRead as _, BufReader, Read, Write as _},
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
};

/// A terminal that is lost when this value is dropped, as when an emulator closes.
#[derive(Debug)]
pub struct PseudoTerminal {
    master: OwnedFd,
    name: CString,
}

impl PseudoTerminal {
    pub fn open() -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        Self { master, name }
    }

    pub fn side(&self) -> Stdio {
        self.open_side().into()
    }

    pub fn open_side(&self) -> OwnedFd {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        rustix::fs::open(&self.name, flags, Mode::empty()).unwrap()
    }

    /// Reads what was written to it, so that its writers don't block.
    pub fn discard(&self) -> Vec<u8> {
        fcntl_setfl(&self.master, fcntl_getfl(&self.master).unwrap() | OFlags::NONBLOCK).unwrap();
        let (mut all, mut screen) = (Vec::new(), [0; 4096]);
        // No output, or no writer left.
        while let Ok(read @ 1..) = rustix::io::read(&self.master, &mut screen) {
            all.extend_from_slice(&screen[..read]);
        }
        all
    }

    pub fn type_line(&self, line: &str) {
        rustix::io::write(&self.master, format!("{line}\n").as_bytes()).unwrap();
    }

    /// A shell with job control, which leads the terminal's session. Its output goes elsewhere: reading it at
    /// the master would keep the terminal alive.
    pub fn shell(&self, trial: &Trial) -> (Child, Lines) {
        let mut shell = shell(trial);
        let mut shell = shell.stdin(self.side()).stdout(Stdio::piped()).stderr(self.side()).spawn().unwrap();
        let output = Lines::of("the shell's output", shell.stdout.take().unwrap());
        (shell, output)
    }
}

fn shell(trial: &Trial) -> Command {
    let mut shell = program::command("setsid");
    shell.args(["--ctty", "bash", "--norc", "--noprofile", "--noediting", "-i"]);
    shell.env("TRIAL", trial.mark()).env("PS1", "");
    shell
}

#[derive(Debug)]
pub struct Terminal {
    pub shell: Child,
    keyboard: File,
    pub screen: Lines,
}

impl Terminal {
    pub fn new(trial: &Trial) -> Self {
        let bare = PseudoTerminal::open();
        let [stdin, stdout, stderr] = [bare.side(), bare.side(), bare.side()];
        let shell = shell(trial).stdin(stdin).stdout(stdout).stderr(stderr).spawn().unwrap();
        let keyboard = File::from(bare.master);
        let screen = Lines::of("the screen", keyboard.try_clone().unwrap());
        let mut terminal = Self { shell, keyboard, screen };
        // Without echo, the screen shows only output. The word is split, so that its own echo does not match. A key that
        // sends a signal would discard output that is on its way.
        terminal.type_line("stty -echo noflsh; echo rea''dy");
        terminal.screen.wait_for("ready");
        terminal
    }

    pub fn type_line(&mut self, line: &str) {
        self.press(format!("{line}\n").as_bytes());
    }

    pub fn press(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).unwrap();
    }

    pub fn close(mut self) {
        // Not `exit`: it fails while the shell does not know yet that a stopped job has ended.
        self.type_line("exec true");
        self.shell.wait().unwrap();
    }
}

/// The lines of one output. Its thread ends with the last process that can write there.
#[derive(Debug)]
pub struct Lines {
    what: &'static str,
    receiver: Receiver<String>,
    seen: Vec<String>,
}

impl Lines {
    /// Reads `output`. `what` names it in failures.
    pub fn of(what: &'static str, output: impl Read + Send + 'static) -> Self {
        let (sender, receiver) = channel();
        thread::spawn(move || {
            let mut reader = BufReader::new(output);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                if sender.send(text).is_err() {
                    return;
                }
                line.clear();
            }
        });
        Self { what, receiver, seen: Vec::new() }
    }

    /// Waits for the next line with `text` as whole words and returns it: `up` is not in a folder like `.tmpSupnbb`.
    pub fn wait_for(&mut self, text: &str) -> String {
        loop {
            match self.receiver.recv_timeout(HANG_LIMIT) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if has_words(&line, text) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("no {text:?} on {}: {:#?}", self.what, self.seen),
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("{} ended without {text:?}: {:#?}", self.what, self.seen)
                }
            }
        }
    }

    pub fn rest(&mut self) -> Vec<String> {
        loop {
            match self.receiver.recv_timeout(HANG_LIMIT) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Timeout) => panic!("{} does not end: {:#?}", self.what, self.seen),
                Err(RecvTimeoutError::Disconnected) => return std::mem::take(&mut self.seen),
            }
        }
    }
}

/// Whether `text` is in `line`, and no letter or digit continues its words.
fn has_words(line: &str, text: &str) -> bool {
    let joins = |one: Option<char>, other: Option<char>| {
        one.zip(other).is_some_and(|(one, other)| one.is_alphanumeric() && other.is_alphanumeric())
    };
    // Sequences for a terminal end in letters.
    let is_screen = line.contains('\x1b') && line.contains(text);
    is_screen
        || line.match_indices(text).any(|(at, _)| {
            let (before, after) = (&line[..at], &line[at + text.len()..]);
            !joins(before.chars().next_back(), text.chars().next())
                && !joins(text.chars().next_back(), after.chars().next())
        })
}

/// A failed test shows what its processes said.
impl Drop for Lines {
    fn drop(&mut self) {
        if thread::panicking() {
            self.seen.extend(self.receiver.try_iter());
            eprintln!("{}: {:#?}", self.what, self.seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::has_words;

    #[test]
    fn word_is_not_found_in_the_name_of_a_random_folder() {
        assert!(!has_words("'/tmp/.tmpSupnbb/leader.db'", "up"));
        assert!(has_words("/tmp/.tmpSupnbb: up 4", "up") && has_words("up", "up") && has_words("", ""));
        assert!(has_words("\x1b[?1049hpayroll", "\x1b[?1049h"));
    }
}
