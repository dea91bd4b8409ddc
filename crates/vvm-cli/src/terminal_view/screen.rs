//! [`Screen`]: the terminal while the program draws on it: the alternate screen, no cursor, keys that come at
//! once and are not shown. Dropping it restores the terminal on every way out, a panic included.

use super::row::{Palette, Row};
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

/// The size that a terminal has if it does not say.
const USUAL: (usize, usize) = (80, 24);

/// Selects the alternate screen, without line wrap (some letters take two columns) and without a cursor; and
/// undoes that (xterm's modes 1049, 7 and 25, which other terminals ignore).
const ENTER: &str = "\x1b[?1049h\x1b[?7l\x1b[?25l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// Returns the colours for standard output, if it is a terminal that a picture can be drawn on. `NO_COLOR`
/// turns them off (no-color.org).
pub(crate) fn palette_of_standard_output() -> Option<Palette> {
    let dumb = env::var_os("TERM").is_none_or(|name| name == "dumb");
    let colours = env::var_os("NO_COLOR").is_none_or(|wish| wish.is_empty());
    let palette = if colours { Palette::Colours } else { Palette::Plain };
    (!dumb && io::stdout().is_terminal()).then_some(palette)
}

/// The terminal, until this is dropped.
#[derive(Debug)]
pub(crate) struct Screen {
    palette: Palette,
    saved: Arc<Saved>,
}

/// What is to be restored.
#[derive(Debug)]
struct Saved {
    /// The settings of the keyboard, if there is one.
    keyboard: Option<Termios>,
    /// Whether the terminal is in use. Restored twice, it would move its cursor back over what was printed
    /// since.
    in_use: AtomicBool,
}

impl Screen {
    /// Takes the terminal. From now on a panic restores it first, or its message would be lost with the
    /// alternate screen.
    ///
    /// # Errors
    /// When standard output is gone.
    pub(crate) fn enter(palette: Palette) -> io::Result<Self> {
        let keyboard = tcgetattr(rustix::stdio::stdin()).ok();
        let saved = Arc::new(Saved { keyboard, in_use: AtomicBool::new(false) });
        let (of_panic, usual) = (Arc::clone(&saved), panic::take_hook());
        panic::set_hook(Box::new(move |panic| {
            let _ = of_panic.restore();
            usual(panic);
        }));
        let screen = Self { palette, saved };
        screen.saved.take()?;
        Ok(screen)
    }

    /// Returns whether standard input is a keyboard.
    pub(crate) fn has_keyboard(&self) -> bool {
        self.saved.keyboard.is_some()
    }

    /// Handles Ctrl-Z: restores the terminal, stops this process, and takes the terminal again once the
    /// process is continued.
    ///
    /// # Errors
    /// When standard output is gone.
    pub(crate) fn suspend(&self) -> io::Result<()> {
        self.saved.restore()?;
        // A process that can't be stopped continues.
        let _ = kill_process(getpid(), Signal::STOP);
        self.saved.take()
    }

    /// Restores the terminal, and returns the colours for lines that follow.
    pub(crate) fn leave(self) -> Palette {
        self.palette
    }

    /// Draws what `picture` returns for the present size, in columns and rows. It must not be larger.
    ///
    /// # Errors
    /// When standard output is gone.
    pub(crate) fn draw(&self, picture: impl FnOnce(usize, usize) -> Vec<Row>) -> io::Result<()> {
        let (columns, rows) = screen_size();
        // Shown in one piece where the terminal can do that (mode 2026).
        let mut text = String::from("\x1b[?2026h\x1b[H");
        for (place, row) in picture(columns, rows).iter().enumerate() {
            if place > 0 {
                text.push_str("\r\n");
            }
            text.push_str(&row.to_text(self.palette));
            // Erases the rest of an older row.
            text.push_str("\x1b[K");
        }
        text.push_str("\x1b[J\x1b[?2026l");
        write(&text)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing restored.
        let _ = self.saved.restore();
    }
}

impl Saved {
    fn take(&self) -> io::Result<()> {
        if let Some(keyboard) = &self.keyboard {
            let mut quiet = keyboard.clone();
            quiet.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            // If refused, keys come by the line and are shown; the picture works all the same.
            let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &quiet);
        }
        self.in_use.store(true, Ordering::Release);
        write(ENTER)
    }

    fn restore(&self) -> io::Result<()> {
        if !self.in_use.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let written = write(LEAVE);
        if let Some(keyboard) = &self.keyboard {
            let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, keyboard);
        }
        written
    }
}

/// Returns columns and rows of the terminal at standard output, or those of a usual one if it does not say.
pub(crate) fn screen_size() -> (usize, usize) {
    let size = tcgetwinsize(rustix::stdio::stdout()).ok();
    let size = size.filter(|size| size.ws_col > 0 && size.ws_row > 0);
    size.map_or(USUAL, |size| (usize::from(size.ws_col), usize::from(size.ws_row)))
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests;
