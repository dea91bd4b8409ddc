//! [`Screen`]: the terminal, as long as it is ours: a screen beside the usual one, without a cursor, with keys that come at
//! once and are not shown. Dropping it gives all of that back, on every way out, a panic included.

use super::draw::{self, Scene};
use crate::{demo::draw_terminal::Palette, readable::Readable};
use rustix::{
    process::{Signal, getpid, kill_process},
    termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr},
};
use std::{
    env,
    io::{self, IsTerminal as _, Write as _},
};

/// The key of that name.
pub(super) const ESCAPE: u8 = 27;

/// What a terminal that does not say how large it is counts as.
const USUAL: (usize, usize) = (80, 24);

/// The other screen, no cursor; and back (xterm's modes 1049 and 25, which those who don't know them ignore).
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// Standard output, if a picture can be drawn there, and in which colours.
pub(super) fn of_standard_output(json: bool) -> Option<Palette> {
    let dumb = env::var_os("TERM").is_none_or(|name| name == "dumb");
    (!json && !dumb && io::stdout().is_terminal()).then(Palette::of_environment)
}

/// A key that was pressed, if one was. The end of the keyboard counts as Escape.
pub(super) fn key() -> Option<u8> {
    let mut key = [0];
    match rustix::io::read(rustix::stdio::stdin(), &mut key) {
        Ok(0) => Some(ESCAPE),
        Ok(_) => Some(key[0]),
        Err(_) => None,
    }
}

/// The terminal, while it is ours.
#[derive(Debug)]
pub(super) struct Screen {
    palette: Palette,
    /// How the keyboard was, if there is one.
    keyboard: Option<Termios>,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// When standard output is gone.
    pub(super) fn enter(palette: Palette) -> io::Result<Self> {
        let screen = Self { palette, keyboard: tcgetattr(rustix::stdio::stdin()).ok() };
        screen.take()?;
        Ok(screen)
    }

    /// What tells that a key was pressed; none without a keyboard.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub(super) fn keyboard(&self) -> io::Result<Option<Readable>> {
        self.keyboard.is_some().then(|| Readable::of(rustix::stdio::stdin())).transpose()
    }

    fn take(&self) -> io::Result<()> {
        if let Some(keyboard) = &self.keyboard {
            let mut quiet = keyboard.clone();
            quiet.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            // Refused, keys come by the line, and are shown: no reason not to watch.
            let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &quiet);
        }
        write(ENTER)
    }

    fn give_back(&self) -> io::Result<()> {
        let given_back = write(LEAVE);
        if let Some(keyboard) = &self.keyboard {
            let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, keyboard);
        }
        given_back
    }

    /// Ctrl-Z: gives the terminal back, stops as a shell's job does, and takes it again when it is continued.
    ///
    /// # Errors
    /// When standard output is gone.
    pub(super) fn suspend(&self) -> io::Result<()> {
        self.give_back()?;
        // One that can't be stopped goes on.
        let _ = kill_process(getpid(), Signal::STOP);
        self.take()
    }

    /// Draws a picture as large as the terminal is now.
    ///
    /// # Errors
    /// When standard output is gone.
    pub(super) fn draw(&self, scene: &Scene<'_>) -> io::Result<()> {
        let size = tcgetwinsize(rustix::stdio::stdout()).ok();
        let size = size.filter(|size| size.ws_col > 0 && size.ws_row > 0);
        let (columns, rows) = size.map_or(USUAL, |size| (usize::from(size.ws_col), usize::from(size.ws_row)));
        // Shown at once where the terminal knows how (mode 2026); else ignored.
        let mut text = String::from("\x1b[?2026h\x1b[H");
        for (place, row) in draw::picture(scene, columns, rows).iter().enumerate() {
            if place > 0 {
                text.push_str("\r\n");
            }
            text.push_str(&row.to_text(self.palette));
            // What stood further right before.
            text.push_str("\x1b[K");
        }
        text.push_str("\x1b[J\x1b[?2026l");
        write(&text)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nobody is left to tell that the terminal is gone.
        let _ = self.give_back();
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
