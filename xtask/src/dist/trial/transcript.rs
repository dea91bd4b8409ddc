//! Runs commands and prints them with what they said, as a session at a shell.

use crate::dist::draft::{DistError, line};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};
use vvm_clock::{Span, SystemClock};

/// The time after which a process that says nothing has hung.
const LIMIT: Duration = Duration::from_secs(30);
const PACE: Duration = Duration::from_millis(20);

/// Prints to standard output, with other names for folders of this machine.
#[derive(Debug)]
pub(super) struct Transcript {
    names: Vec<(String, &'static str)>,
}

impl Transcript {
    pub(super) fn new(names: &[(&Path, &'static str)]) -> Self {
        Self { names: names.iter().map(|(path, name)| (path.display().to_string(), *name)).collect() }
    }

    pub(super) fn title(&self, text: &str) {
        println!("\n== {text}\n");
    }

    pub(super) fn remark(&self, text: &str) {
        println!("# {}", self.renamed(text));
    }

    /// Runs a command that must succeed, and returns what it said.
    ///
    /// # Errors
    /// It can't be started, or fails.
    pub(super) fn show(&self, command: &mut Command) -> Result<String, DistError> {
        let (status, said) = self.run(command)?;
        if status.success() {
            return Ok(said);
        }
        Err(DistError::Failed { command: line(command), status: status.to_string(), said: String::new() })
    }

    /// Runs a command that must end with this status, and returns what it said.
    ///
    /// # Errors
    /// It can't be started, or ends with another status.
    pub(super) fn show_status(&self, command: &mut Command, expected: i32) -> Result<String, DistError> {
        let (status, said) = self.run(command)?;
        println!("# exit status {}", status.code().unwrap_or(-1));
        if status.code() == Some(expected) {
            return Ok(said);
        }
        Err(DistError::Failed { command: line(command), status: status.to_string(), said: String::new() })
    }

    /// Runs a command and returns how it ended and what it said, errors last.
    ///
    /// # Errors
    /// It can't be started.
    pub(super) fn run(&self, command: &mut Command) -> Result<(ExitStatus, String), DistError> {
        println!("$ {}", self.renamed(&line(command)));
        let ended = command.stdin(Stdio::null()).output();
        let ended = ended.map_err(|cause| DistError::Start { program: line(command), cause })?;
        let said = [ended.stdout, ended.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        print!("{}", self.renamed(&said));
        Ok((ended.status, said))
    }

    /// Starts a command that goes on, and whose output goes to `log`.
    ///
    /// # Errors
    /// It can't be started.
    pub(super) fn start(&self, command: &mut Command, log: PathBuf) -> Result<Running<'_>, DistError> {
        println!("$ {} &", self.renamed(&line(command)));
        let failed = |cause| DistError::File { path: log.clone(), cause };
        let output = File::create(&log).map_err(failed)?;
        let errors = output.try_clone().map_err(failed)?;
        let started = command.stdin(Stdio::null()).stdout(output).stderr(errors).spawn();
        let child = started.map_err(|cause| DistError::Start { program: line(command), cause })?;
        Ok(Running { transcript: self, child, log, shown: 0 })
    }

    fn renamed(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (path, name)| text.replace(path, name))
    }
}

/// A process that is ended with this value.
#[derive(Debug)]
pub(super) struct Running<'a> {
    transcript: &'a Transcript,
    child: Child,
    log: PathBuf,
    /// How many bytes of the log are printed.
    shown: usize,
}

impl Running<'_> {
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns whether it has not ended.
    ///
    /// # Errors
    /// The system can't tell.
    pub(super) fn is_there(&mut self) -> Result<bool, DistError> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Waits until it has said this, prints what is new, and returns it.
    ///
    /// # Errors
    /// It says it not within half a minute.
    pub(super) fn wait_for(&mut self, text: &str) -> Result<String, DistError> {
        let start = SystemClock::read();
        loop {
            let said = fs::read(&self.log).unwrap_or_default();
            let new = String::from_utf8_lossy(said.get(self.shown..).unwrap_or_default()).into_owned();
            if new.contains(text) && new.ends_with('\n') {
                self.shown = said.len();
                print!("{}", self.transcript.renamed(&new));
                return Ok(new);
            }
            if SystemClock::read().since(start) > LIMIT {
                let limit = Span(LIMIT);
                return Err(DistError::Unexpected(format!("`{text}` was not said within {limit}: {new}")));
            }
            SystemClock::block_for(PACE);
        }
    }

    /// Waits for its end, and returns its status.
    ///
    /// # Errors
    /// It does not end within half a minute.
    pub(super) fn ended(&mut self) -> Result<ExitStatus, DistError> {
        let start = SystemClock::read();
        loop {
            if let Some(status) = self.child.try_wait()? {
                let said = fs::read(&self.log).unwrap_or_default();
                let new = String::from_utf8_lossy(said.get(self.shown..).unwrap_or_default()).into_owned();
                self.shown = said.len();
                print!("{}", self.transcript.renamed(&new));
                return Ok(status);
            }
            if SystemClock::read().since(start) > LIMIT {
                return Err(DistError::Unexpected(format!("it does not end within {}", Span(LIMIT))));
            }
            SystemClock::block_for(PACE);
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // Its descendants end with it: that is what it is for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
