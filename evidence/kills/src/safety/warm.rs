//! The worker of `vvm run --warm`: it works from `lead` until `stop`. It heeds no deadline and no end of its
//! connection, so nothing but its host and its containment end its work.

use super::candidates::{BEAT, Work};
use serde_json::{Value, json};
use std::{
    ffi::OsStr,
    io::{self, BufRead as _, BufReader, ErrorKind, Write as _},
    os::unix::net::UnixStream,
    path::Path,
};
use vvm_clock::SystemClock;

/// In a beat, one in so many resigns or is not ready any more.
const STAYS: u32 = 1000;

pub(super) fn work(folder: &Path, socket: &OsStr) -> io::Result<bool> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(BEAT))?;
    let mut lines = BufReader::new(stream.try_clone()?);
    let mut app = App { stream, work: None };
    app.say(&json!({ "type": "hello", "version": 1 }))?;
    app.say(&json!({ "type": "ready", "ready": true }))?;
    let mut line = Vec::new();
    loop {
        match lines.read_until(b'\n', &mut line) {
            Ok(_) if line.ends_with(b"\n") => {
                app.hear(folder, &serde_json::from_slice(&line)?)?;
                line.clear();
            }
            // No message follows. It works until it is killed.
            Ok(_) => SystemClock::block_for(BEAT),
            Err(late) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&late.kind()) => {}
            Err(cut) if cut.kind() == ErrorKind::ConnectionReset => SystemClock::block_for(BEAT),
            Err(error) => return Err(error),
        }
        if let Some((epoch, work)) = &mut app.work {
            work.beat()?;
            let epoch = epoch.clone();
            match fastrand::u32(..STAYS) {
                0 => app.say(&json!({ "type": "resign", "epoch": epoch }))?,
                1 => app.say(&json!({ "type": "ready", "ready": false }))?,
                _ => {}
            }
        }
    }
}

struct App {
    stream: UnixStream,
    work: Option<(String, Work)>,
}

impl App {
    fn say(&mut self, message: &Value) -> io::Result<()> {
        match writeln!(self.stream, "{message}") {
            Err(cut) if [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset].contains(&cut.kind()) => Ok(()),
            said => said,
        }
    }

    fn hear(&mut self, folder: &Path, message: &Value) -> io::Result<()> {
        match message["type"].as_str() {
            Some("lead") => {
                let epoch = message["epoch"].as_str().unwrap_or_default().to_owned();
                self.work = Some((epoch.clone(), Work::begin(folder, &epoch)?));
                self.say(&json!({ "type": "leading", "epoch": epoch }))
            }
            Some("stop") => {
                let Some((epoch, work)) = self.work.take() else { return Ok(()) };
                work.end()?;
                self.say(&json!({ "type": "stopped", "epoch": epoch }))?;
                self.say(&json!({ "type": "ready", "ready": true }))
            }
            _ => Ok(()),
        }
    }
}
