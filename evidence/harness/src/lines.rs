//! [`Lines`]: the output of a process, line by line.

use super::HANG_LIMIT;
use std::{
    io::{BufRead as _, BufReader, Read},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
};

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

    /// Waits for a line that contains `text`, and returns it. Skips the lines before it.
    pub fn wait_for(&mut self, text: &str) -> String {
        loop {
            match self.receiver.recv_timeout(HANG_LIMIT) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.contains(text) {
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

    /// Returns all lines up to the end of the output.
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

/// A failed test shows what its processes said.
impl Drop for Lines {
    fn drop(&mut self) {
        if thread::panicking() {
            self.seen.extend(self.receiver.try_iter());
            eprintln!("{}: {:#?}", self.what, self.seen);
        }
    }
}
