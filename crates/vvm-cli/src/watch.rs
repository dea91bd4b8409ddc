//! `vvm watch`: a line for each change. Reads as a standby does, at a modest interval.
//!
//! [`Looks`] reads, [`Slots`] remembers what was seen, and a change is a difference.

mod changes;

use crate::{
    args::{InvalidValue, TargetArgs, parse_duration},
    inspection::{conclude, inspect},
    shown::{Palette, Style},
};
use changes::Slots;
use clap::Args;
use ielections::{ReadError, Slot};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    error::Error,
    io::{self, Write as _},
    num::NonZeroU32,
    process::ExitCode,
    time::Duration,
};
use vvm_clock::{Instant, SystemWallClock, WallClock as _};
use vvm_host::operate::{InspectError, Purpose, StorageInspector};

pub(crate) fn main(args: &WatchArgs) -> ExitCode {
    let watched = inspect(args.target.pair(), Purpose::Look, async |inspector| watch(args, inspector).await);
    watched.map_or_else(|refusal| conclude(&refusal).into(), |()| ExitCode::SUCCESS)
}

/// Prints a line for each change, until the reader of standard output is gone.
async fn watch(args: &WatchArgs, inspector: &StorageInspector) -> Result<(), InspectError> {
    let (mut slots, mut settled, mut due) = (Slots::default(), None, inspector.clock.now());
    let palette = Palette::of_standard_output();
    // Without a change there is no write that would fail.
    while !is_reader_gone() {
        let look = Looks(inspector).at(due, settled).await;
        settled = look.settled;
        due = look.at.after(args.interval);
        let mut out = io::stdout().lock();
        for change in slots.changes(look)? {
            let style = if change.what.is_alarming() { Style::Bad } else { Style::Plain };
            let line = match args.json {
                true => change.to_json().map_err(io::Error::from),
                false => Ok(palette.paint(&change.to_string(), style)),
            };
            let written = line.and_then(|line| writeln!(out, "{line}")).and_then(|()| out.flush());
            written.map_err(InspectError::Output)?;
        }
    }
    Ok(())
}

/// Returns whether standard output is a pipe or socket without a reader.
fn is_reader_gone() -> bool {
    let stdout = rustix::stdio::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&at_once)).is_ok_and(|ready| ready > 0)
}

/// Watch the leaders: one line for each change.
///
/// It only reads, and sees what a standby sees: records and their renewals. A crash shows as renewals that stop
/// for a TTL. The time that a leader has left is known to the leader alone (--http, /metrics).
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  vvm watch --storage sqlite:/var/lib/payroll/leader.db --name payroll

On a terminal, what an operator should look into is red. NO_COLOR is respected. Ctrl-C ends it.
For a table of all slots: watch -n 1 vvm status --name payroll

Exit status: 0 if the reader of its output has gone; 64 wrong arguments; 66 no such storage; 69 the storage refused;
71 the system refused")]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// How often to read the storage
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_poll)]
    pub(crate) interval: Duration,
    /// Print one JSON object a line for each change
    #[arg(long)]
    pub(crate) json: bool,
}

fn parse_poll(text: &str) -> Result<Duration, Box<dyn Error + Send + Sync>> {
    let interval = parse_duration(text)?;
    if interval < Duration::from_millis(100) {
        return Err(
            InvalidValue("write 100ms or more: each read costs the storage as much as a standby's").into()
        );
    }
    Ok(interval)
}

/// What one look found.
struct Found {
    slots: Vec<(u32, Slot)>,
    paused: Option<Paused>,
}

/// A pause that stands.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Paused {
    by: String,
    /// In Unix time.
    since: Duration,
}

/// One look.
struct Look {
    found: Result<Found, ReadError>,
    /// The slot count, once it is settled.
    settled: Option<NonZeroU32>,
    at: Instant,
    /// The same moment in Unix time.
    wall: Duration,
}

/// A source of looks.
struct Looks<'watch>(&'watch StorageInspector);

impl Looks<'_> {
    /// Looks at `due`, or at once if that is past.
    async fn at(&self, due: Instant, mut settled: Option<NonZeroU32>) -> Look {
        self.0.clock.sleep_until(due).await;
        let found = self.read(&mut settled).await;
        Look { found, settled, at: self.0.clock.now(), wall: SystemWallClock.since_unix_epoch() }
    }

    async fn read(&self, settled: &mut Option<NonZeroU32>) -> Result<Found, ReadError> {
        let StorageInspector { storage, cluster, .. } = self.0;
        if settled.is_none() {
            *settled = storage.slot_count(cluster).await?;
        }
        let keys = self.0.keys_of(*settled);
        let (slots, requests) = storage.scan_with_requests(cluster, &keys).await?;
        let slots = keys.iter().map(|key| key.slot.get().get()).zip(slots).collect();
        let paused = requests.pause.as_ref();
        let paused =
            paused.map(|pause| Paused { by: pause.by().to_owned(), since: pause.since_unix_epoch() });
        Ok(Found { slots, paused })
    }
}
