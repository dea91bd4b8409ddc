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
    panic,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// The key of that name.
pub(super) const ESCAPE: u8 = 27;

/// What a terminal that does not say how large it is counts as.
const USUAL: (usize, usize) = (80, 24);

/// The other screen, no cursor, and no going on in the next row for what is too wide, as letters of two columns may be;
/// and back (xterm's modes 1049, 25 and 7, which those who don't know them ignore).
const ENTER: &str = "\x1b[?1049h\x1b[?7l\x1b[?25l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

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
    before: Arc<Before>,
}

/// What there is to give back.
#[derive(Debug)]
struct Before {
    /// How the keyboard was, if there is one.
    keyboard: Option<Termios>,
    /// Given back twice, a terminal would put its cursor where it was at first, over what was said since.
    is_taken: AtomicBool,
}

impl Screen {
    /// Takes the terminal. From here on a panic gives it back before it says what it is: what it said on the other screen,
    /// nobody would see.
    ///
    /// # Errors
    /// When standard output is gone.
    pub(super) fn enter(palette: Palette) -> io::Result<Self> {
        let keyboard = tcgetattr(rustix::stdio::stdin()).ok();
        let before = Arc::new(Before { keyboard, is_taken: AtomicBool::new(false) });
        let (of_panic, usual) = (Arc::clone(&before), panic::take_hook());
        panic::set_hook(Box::new(move |panic| {
            let _ = of_panic.give_back();
            usual(panic);
        }));
        let screen = Self { palette, before };
        screen.before.take()?;
        Ok(screen)
    }

    /// What tells that a key was pressed; none without a keyboard.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub(super) fn keyboard(&self) -> io::Result<Option<Readable>> {
        self.before.keyboard.is_some().then(|| Readable::of(rustix::stdio::stdin())).transpose()
    }

    /// Ctrl-Z: gives the terminal back, stops as a shell's job does, and takes it again when it is continued.
    ///
    /// # Errors
    /// When standard output is gone.
    pub(super) fn suspend(&self) -> io::Result<()> {
        self.before.give_back()?;
        // One that can't be stopped goes on.
        let _ = kill_process(getpid(), Signal::STOP);
        self.before.take()
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

impl Before {
    fn take(&self) -> io::Result<()> {
        if let Some(keyboard) = &self.keyboard {
            let mut quiet = keyboard.clone();
            quiet.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            // Refused, keys come by the line, and are shown: no reason not to watch.
            let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &quiet);
        }
        self.is_taken.store(true, Ordering::Release);
        write(ENTER)
    }

    fn give_back(&self) -> io::Result<()> {
        if !self.is_taken.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let given_back = write(LEAVE);
        if let Some(keyboard) = &self.keyboard {
            let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, keyboard);
        }
        given_back
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nobody is left to tell that the terminal is gone.
        let _ = self.before.give_back();
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests;
