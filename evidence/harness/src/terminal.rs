//! A terminal with a shell that has job control.

use super::{Lines, Trial};
use rustix::{
    fs::{Mode, OFlags},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use std::{
    fs::File,
    io::Write as _,
    process::{Child, Command, Stdio},
};

/// A shell on a terminal of its own.
#[derive(Debug)]
pub struct Terminal {
    /// The shell on it.
    pub shell: Child,
    keyboard: File,
    /// What it shows.
    pub screen: Lines,
}

impl Terminal {
    /// A new one, whose shell listens.
    pub fn new(trial: &Trial) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let side = || {
            let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
            Stdio::from(rustix::fs::open(&name, flags, Mode::empty()).unwrap())
        };
        let shell = Command::new("setsid")
            .args(["--ctty", "bash", "--norc", "--noprofile", "--noediting", "-i"])
            .env("TRIAL", trial.mark())
            .env("PS1", "")
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .unwrap();
        let keyboard = File::from(master);
        let screen = Lines::of("the screen", keyboard.try_clone().unwrap());
        let mut terminal = Self { shell, keyboard, screen };
        // Without echo, the screen shows only output. The word is split, so that its own echo does not match.
        terminal.type_line("stty -echo; echo rea''dy");
        terminal.screen.wait_for("ready");
        terminal
    }

    /// Types a line.
    pub fn type_line(&mut self, line: &str) {
        self.press(format!("{line}\n").as_bytes());
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).unwrap();
    }

    /// Resizes the window. The kernel tells the foreground process group.
    pub fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.keyboard, size).unwrap();
    }

    /// Ends the shell, which ends the terminal.
    pub fn close(mut self) {
        // Not `exit`, which stays if the shell has not heard yet that a stopped job has ended.
        self.type_line("exec true");
        self.shell.wait().unwrap();
    }
}
