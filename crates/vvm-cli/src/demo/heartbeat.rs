//! What a worker writes down: a line of fixed width for each beat, and how to read them back.
//!
//! Fixed, and a divisor of a page: a line is then copied whole or not at all, even if its writer is killed while it
//! writes, so that no beat is ever doubtful.

use super::event::Lane;
use ielections::Epoch;
use rustix::process::{Pid, getpid};
use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

/// How long a worker rests between two lines.
pub(crate) const REST: Duration = Duration::from_millis(20);

/// The width of a line, its newline included.
const WIDTH: usize = 64;

/// What a worker says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Word {
    /// Before the first act.
    Begin,
    /// At work.
    Beat,
    /// After the last act.
    End,
}

const WORDS: [(Word, &str); 3] = [(Word::Begin, "begin"), (Word::Beat, "beat"), (Word::End, "end")];

/// One line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Line {
    pub(crate) at: Instant,
    pub(crate) epoch: Epoch,
    pub(crate) worker: Pid,
    pub(crate) word: Word,
}

impl Line {
    fn to_text(self) -> String {
        let word = WORDS.iter().find(|(word, _)| *word == self.word).map_or("", |(_, text)| text);
        let (nanos, epoch, worker) = (self.at.as_nanos(), self.epoch.get(), self.worker.as_raw_pid());
        // 20, 19 and 10 digits are what the largest of each has.
        format!("{nanos:>20} {epoch:>19} {worker:>10} {word:<11}\n")
    }

    fn from_text(text: &[u8]) -> Option<Self> {
        let text = str::from_utf8(text).ok()?.strip_suffix('\n')?;
        let mut parts = text.split_ascii_whitespace();
        let at = Instant::from_nanos(parts.next()?.parse().ok()?);
        let epoch = Epoch::new(parts.next()?.parse().ok()?).ok()?;
        let worker = Pid::from_raw(parts.next()?.parse().ok()?)?;
        let word = parts.next()?;
        let (word, _) = WORDS.into_iter().find(|(_, text)| *text == word)?;
        parts.next().is_none().then_some(Self { at, epoch, worker, word })
    }
}

/// Where a worker writes.
#[derive(Debug)]
pub(crate) struct Log {
    file: File,
    epoch: Epoch,
}

impl Log {
    /// The log at `path`, to be continued under `epoch`.
    ///
    /// # Errors
    /// When the file can't be opened.
    pub(crate) fn open(path: &Path, epoch: Epoch) -> io::Result<Self> {
        Ok(Self { file: OpenOptions::new().append(true).create(true).open(path)?, epoch })
    }

    /// Writes `word` with the present time. A line is in the file, for every reader, when this returns.
    ///
    /// # Errors
    /// When the file can't be written.
    pub(crate) fn write(&mut self, word: Word) -> io::Result<()> {
        let line = Line { at: SystemClock::read(), epoch: self.epoch, worker: getpid(), word };
        self.file.write_all(line.to_text().as_bytes())
    }
}

/// A log can't be read as what a worker writes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    /// The file itself.
    #[error("the log of {lane}'s workers can't be read: {cause}")]
    File { lane: Lane, cause: io::Error },
    /// What stands in it.
    #[error("the log of {lane}'s workers is damaged: line {number} is none of theirs")]
    Line { lane: Lane, number: usize },
}

/// A log as it grows, or all of it at once.
#[derive(Debug)]
pub(crate) struct Reader {
    lane: Lane,
    path: PathBuf,
    /// None as long as no worker has written.
    file: Option<File>,
    /// What has been read of a line that was not whole yet.
    rest: Vec<u8>,
    lines_read: usize,
}

impl Reader {
    /// Reads what `lane`'s workers write to `path`, from the beginning.
    pub(crate) fn new(lane: Lane, path: PathBuf) -> Self {
        Self { lane, path, file: None, rest: Vec::new(), lines_read: 0 }
    }

    /// The lines that are new since the last call.
    ///
    /// # Errors
    /// When the file can't be read or a line is damaged.
    pub(crate) fn new_lines(&mut self) -> Result<Vec<Line>, Unreadable> {
        let lane = self.lane;
        self.read().map_err(|cause| Unreadable::File { lane, cause })?;
        let whole = self.rest.len() / WIDTH * WIDTH;
        let texts = self.rest.drain(..whole).collect::<Vec<_>>();
        let lines = texts.chunks(WIDTH).map(|text| {
            self.lines_read += 1;
            Line::from_text(text).ok_or(Unreadable::Line { lane, number: self.lines_read })
        });
        lines.collect()
    }

    /// All lines, of a log that nobody writes to any more.
    ///
    /// # Errors
    /// As [`new_lines`](Self::new_lines), and when the last line is not whole.
    pub(crate) fn all(mut self) -> Result<Vec<Line>, Unreadable> {
        let lines = self.new_lines()?;
        if self.rest.is_empty() {
            return Ok(lines);
        }
        Err(Unreadable::Line { lane: self.lane, number: self.lines_read + 1 })
    }

    fn read(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => match File::open(&self.path) {
                Ok(file) => none.insert(file),
                Err(refusal) if refusal.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(refusal) => return Err(refusal),
            },
        };
        file.read_to_end(&mut self.rest).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(nanos: u64, epoch: u64, worker: i32, word: Word) -> Line {
        let (epoch, worker) = (Epoch::new(epoch).unwrap(), Pid::from_raw(worker).unwrap());
        Line { at: Instant::from_nanos(nanos), epoch, worker, word }
    }

    #[test]
    fn every_line_has_the_width_that_divides_a_page_and_survives() {
        let shortest = line(0, 1, 1, Word::End);
        let longest = line(u64::MAX, Epoch::MAX, i32::MAX, Word::Begin);
        for line in [shortest, longest] {
            let text = line.to_text();
            assert_eq!(text.len(), WIDTH);
            assert_eq!(4096 % WIDTH, 0);
            assert_eq!(Line::from_text(text.as_bytes()), Some(line));
        }
    }

    #[test]
    fn a_log_is_read_as_it_grows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("A.log");
        let mut reader = Reader::new(Lane::A, path.clone());
        assert_eq!(reader.new_lines().unwrap(), []);
        let epoch = Epoch::new(7).unwrap();
        let mut log = Log::open(&path, epoch).unwrap();
        log.write(Word::Begin).unwrap();
        let [begin] = reader.new_lines().unwrap()[..] else { panic!("one line") };
        assert_eq!((begin.epoch, begin.worker, begin.word), (epoch, getpid(), Word::Begin));
        log.write(Word::Beat).unwrap();
        log.write(Word::End).unwrap();
        let words = reader.new_lines().unwrap().into_iter().map(|line| line.word);
        assert_eq!(words.collect::<Vec<_>>(), [Word::Beat, Word::End]);
        assert_eq!(reader.new_lines().unwrap(), []);
    }

    #[test]
    fn a_damaged_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("B.log");
        let whole = line(5, 1, 9, Word::Begin).to_text();
        std::fs::write(&path, format!("{whole}{}", &whole[..WIDTH - 1])).unwrap();
        let mut reader = Reader::new(Lane::B, path.clone());
        assert_eq!(reader.new_lines().unwrap().len(), 1, "the second may still be under way");
        let refusal = reader.all().unwrap_err().to_string();
        assert!(refusal.contains("line 2"), "{refusal}");
        std::fs::write(&path, format!("{whole}{}", whole.replace("begin", "broke"))).unwrap();
        let refusal = Reader::new(Lane::B, path).all().unwrap_err().to_string();
        assert!(refusal.contains("B's workers") && refusal.contains("line 2"), "{refusal}");
    }
}
