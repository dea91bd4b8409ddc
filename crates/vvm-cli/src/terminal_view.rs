//! Pictures of rows of text on a terminal.

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
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// How a row looks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Style {
    #[default]
    Plain,
    Strong,
    Dim,
    Good,
    Bad,
    Orange,
}

/// Whether the terminal gets colours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Palette {
    Colours,
    Plain,
}

/// A row of text.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Row(pub(crate) String, pub(crate) Style);

impl Row {
    /// Drops what lies beyond `columns`.
    pub(crate) fn cut(&mut self, columns: usize) {
        self.0.truncate(prefix(&self.0, columns).len());
    }

    /// Returns the row as a terminal takes it, in one of the 256 colours that every terminal has.
    pub(crate) fn to_text(&self, palette: Palette) -> String {
        let Self(text, style) = self;
        let codes = match style {
            Style::Plain => return text.clone(),
            _ if palette == Palette::Plain => return text.clone(),
            Style::Strong => "1",
            Style::Dim => "38;5;245",
            Style::Good => "38;5;35",
            Style::Bad => "1;38;5;160",
            Style::Orange => "38;5;172",
        };
        format!("\x1b[{codes}m{text}\x1b[0m")
    }
}

/// Returns as much of `text` as fits into `columns`. Some letters take two.
pub(crate) fn prefix(text: &str, columns: usize) -> &str {
    let mut used = 0;
    let fits = |(_, letter): &(usize, char)| {
        used += letter.width().unwrap_or(0);
        used <= columns
    };
    let last = text.char_indices().take_while(fits).last();
    &text[..last.map_or(0, |(at, letter)| at + letter.len_utf8())]
}

/// Returns `text` in exactly `columns`: filled up with spaces, or cut, with a sign that it was.
pub(crate) fn fitted(text: &str, columns: usize) -> String {
    let is_whole = text.width() <= columns;
    let shown =
        if is_whole { text.to_owned() } else { format!("{}…", prefix(text, columns.saturating_sub(1))) };
    let gap = columns.saturating_sub(shown.width());
    format!("{shown}{:gap$}", "")
}

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
fn screen_size() -> (usize, usize) {
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
mod tests {
    use super::*;
    use rustix::{
        fs::{Mode, OFlags},
        pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    };
    use std::{
        fs::File,
        io::Read as _,
        process::{Command, Stdio},
    };

    #[test]
    fn wide_character_takes_two_columns_and_is_never_cut_in_half() {
        for (columns, expected) in [(0, ""), (1, "a"), (2, "a"), (3, "a漢"), (4, "a漢"), (9, "a漢字e")] {
            let mut row = Row("a漢字e".into(), Style::Plain);
            row.cut(columns);
            assert_eq!(row.0, expected, "{columns}");
        }
        let fitted = [2, 4, 5, 8].map(|columns| fitted("a漢字e", columns));
        assert_eq!(fitted, ["a…", "a漢…", "a漢… ", "a漢字e  "]);
    }

    #[test]
    fn colours_end_with_the_row_and_can_be_turned_off() {
        let row = Row("a".into(), Style::Strong);
        assert_eq!(row.to_text(Palette::Colours), "\x1b[1ma\x1b[0m");
        assert_eq!(row.to_text(Palette::Plain), "a");
        assert_eq!(Row("a".into(), Style::Plain).to_text(Palette::Colours), "a");
    }

    /// Tells this test, in a process of its own, to panic.
    const PART: &str = "TEST_PANICS_ON_ITS_SCREEN";

    #[test]
    fn panic_message_follows_the_restored_terminal() {
        if env::var_os(PART).is_some() {
            let _screen = Screen::enter(Palette::Plain).unwrap();
            panic!("on purpose");
        }
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let open = || {
            let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
            rustix::fs::open(&name, flags, Mode::empty()).unwrap()
        };
        let held_open = open();
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "terminal_view::tests::panic_message_follows_the_restored_terminal"])
            .arg("--nocapture")
            .env(PART, "yes")
            .stdin(Stdio::from(open()))
            .stdout(Stdio::from(open()))
            .stderr(Stdio::from(open()))
            .spawn()
            .unwrap();
        let mut terminal = File::from(master);
        let mut shown = String::new();
        while !shown.contains("test result") {
            let mut some = [0; 4096];
            let length = terminal.read(&mut some).unwrap();
            shown.push_str(&String::from_utf8_lossy(&some[..length]));
        }
        assert!(!child.wait().unwrap().success());
        let (_, after) = shown.split_once(ENTER).unwrap();
        let (before_leaving, after) = after.split_once(LEAVE).unwrap();
        assert!(!before_leaving.contains("panicked"), "{shown:?}");
        assert!(after.contains("on purpose"), "{shown:?}");
        assert!(!after.contains(LEAVE), "twice: {shown:?}");
        let modes = tcgetattr(&held_open).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO), "{modes:?}");
    }
}
