//! Pictures of rows of text on a terminal, for `watch` and `demo`.
//!
//! `row` is a row of text, `lanes` bars over time, `screen` the terminal.

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
    time::Duration,
};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};
use vvm_clock::Instant;

/// How a row looks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Style {
    #[default]
    Plain,
    Strong,
    Dim,
    Good,
    Bad,
    // Colours without a meaning of their own.
    Teal,
    Violet,
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
            Style::Teal => "38;5;37",
            Style::Violet => "38;5;134",
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

/// How many columns apart two moments of an axis are, at least.
const APART: usize = 10;

/// Which moment stands in which column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) began: Instant,
    pub(crate) length: Duration,
    /// Columns to the left of the beginning.
    pub(crate) margin: usize,
    /// Columns of the whole length.
    pub(crate) columns: usize,
}

/// Columns with the same sign, from one moment to another, both included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bar {
    pub(crate) from: Instant,
    pub(crate) to: Instant,
    pub(crate) sign: char,
}

impl Scale {
    /// Returns the column of `moment`, which lies beyond the last one if the moment does.
    fn column(&self, moment: Instant) -> usize {
        let share = self.began.until(moment).as_secs_f64() / self.length.as_secs_f64();
        self.margin + (share * self.columns as f64) as usize
    }

    /// Returns a lane that begins with `name`, with bars that each lie over those before it.
    pub(crate) fn lane(&self, name: &str, bars: impl IntoIterator<Item = Bar>) -> String {
        let mut lane = name.chars().collect::<Vec<_>>();
        for Bar { from, to, sign } in bars {
            let columns = self.column(from)..self.column(to) + 1;
            lane.resize(lane.len().max(columns.end), ' ');
            lane[columns].fill(sign);
        }
        lane.into_iter().collect()
    }

    /// Returns texts, each below its moment. Without room, the later one moves to the right.
    pub(crate) fn captions(&self, mut captions: Vec<(Instant, String)>) -> String {
        captions.sort_by_key(|(at, _)| *at);
        let mut row = String::new();
        for (at, caption) in captions {
            let used = row.chars().count();
            let gap = self.column(at).saturating_sub(used).max(usize::from(used > 0));
            row = format!("{row}{:gap$}{caption}", "");
        }
        row
    }

    /// Returns a row of moments: multiples of `step`, or of twice as much and so on where that is too dense.
    pub(crate) fn axis(&self, mut step: Duration) -> String {
        while self.column(self.began.after(step)) < self.margin + APART && step < self.length {
            step *= 2;
        }
        let moments = (0..).map(|count| step * count).take_while(|moment| *moment < self.length);
        let label = |moment: Duration| (self.began.after(moment), format!("╵{} s", moment.as_secs_f64()));
        self.captions(moments.map(label).collect())
    }
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

    const BEGAN: Instant = Instant::from_nanos(500_000_000_000);

    fn at(seconds: u64) -> Instant {
        BEGAN.after(Duration::from_secs(seconds))
    }

    /// A column for each second.
    fn scale() -> Scale {
        Scale { began: BEGAN, length: Duration::from_secs(30), margin: 2, columns: 30 }
    }

    #[test]
    fn later_bar_lies_over_earlier_one() {
        let bar = |from, to, sign| Bar { from: at(from), to: at(to), sign };
        assert_eq!(scale().lane("A", [bar(0, 5, '░'), bar(2, 3, '█')]), "A ░░██░░");
    }

    #[test]
    fn captions_without_room_move_to_the_right() {
        let captions = [(5, "second"), (3, "first"), (14, "third")];
        let captions = captions.map(|(second, text)| (at(second), text.to_owned()));
        assert_eq!(scale().captions(captions.into()), "     first second third");
    }

    #[test]
    fn moments_of_an_axis_are_ten_columns_apart_or_more() {
        let axis = |step| scale().axis(Duration::from_secs(step));
        assert_eq!(axis(10), "  ╵0 s      ╵10 s     ╵20 s");
        assert_eq!(axis(3), "  ╵0 s        ╵12 s       ╵24 s");
        assert_eq!(axis(60), "  ╵0 s");
    }
}
