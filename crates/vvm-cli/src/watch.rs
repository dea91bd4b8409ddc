//! `vvm watch`: the leaders, and each change. Reads as a standby does, at a modest interval.
//!
//! `look` reads, `slots` remembers what was seen, `change` is a difference, `draw` the picture.

mod changes;
mod draw;

use crate::{
    args::{InvalidValue, TargetArgs, parse_duration},
    inspection::{conclude, inspect},
    runtime::{Signals, ends_a_candidate},
    terminal_view::{Palette, Screen, palette_of_standard_output},
};
use changes::Slots;
use clap::Args;
use draw::Scene;
use ielections::{ReadError, Slot};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::Signal,
};
use std::{
    error::Error,
    future::pending,
    io::{self, Write as _},
    num::NonZeroU32,
    process::ExitCode,
    time::Duration,
};
use vvm_clock::{Instant, SystemWallClock, WallClock as _};
use vvm_containment::Readable;
use vvm_host::operate::{InspectError, Purpose, StorageInspector};

/// Time between two pictures without a change. They show tenths of a second, which are not legible faster.
const FRAME: Duration = Duration::from_millis(250);

/// The byte that the Escape key sends.
const ESCAPE: u8 = 27;

/// How many changes are kept: more than a terminal has rows.
const KEPT: usize = 200;

pub(crate) fn main(args: &WatchArgs) -> ExitCode {
    let watched =
        inspect(args.target.pair(), Purpose::Look, async |inspector| match palette_of_standard_output() {
            Some(palette) if !args.json => on_a_terminal(args, inspector, palette).await,
            _ => in_lines(args, inspector).await,
        });
    watched.map_or_else(|refusal| conclude(&refusal).into(), |()| ExitCode::SUCCESS)
}

/// Prints a line for each change, until the reader of standard output is gone.
async fn in_lines(args: &WatchArgs, inspector: &StorageInspector) -> Result<(), InspectError> {
    let (mut slots, mut settled, mut due) = (Slots::default(), None, inspector.clock.now());
    // Without a change there is no write that would fail.
    while !is_reader_gone() {
        let look = Looks(inspector).at(due, settled).await;
        settled = look.settled;
        due = look.at.after(args.interval);
        let mut out = io::stdout().lock();
        for change in slots.changes(look)? {
            let line =
                if args.json { change.to_json().map_err(io::Error::from) } else { Ok(change.to_string()) };
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

/// Draws pictures until a key or a signal ends it.
async fn on_a_terminal(
    args: &WatchArgs,
    inspector: &StorageInspector,
    palette: Palette,
) -> Result<(), InspectError> {
    let mut signals = Signals::catch_also(&[Signal::WINCH, Signal::TSTP]).map_err(InspectError::system)?;
    let signalled = Readable::of(&signals).map_err(InspectError::system)?;
    let screen = Screen::enter(palette).map_err(InspectError::Output)?;
    let keyboard = screen.has_keyboard().then(|| Readable::of(rustix::stdio::stdin()));
    let keyboard = keyboard.transpose().map_err(InspectError::system)?;
    let (mut slots, mut history) = (Slots::default(), Vec::new());
    let (clock, looks) = (&inspector.clock, Looks(inspector));
    // Kept until it is answered, over any number of frames.
    let mut looking = Box::pin(looks.at(clock.now(), None));
    loop {
        let scene = Scene { name: &args.target.name, slots: &slots, history: &history, now: clock.now() };
        screen.draw(|columns, rows| draw::picture(&scene, columns, rows)).map_err(InspectError::Output)?;
        let key = async {
            match &keyboard {
                Some(keyboard) => keyboard.find(pressed_key).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            caught = signalled.find(|| signals.pending()) => {
                for caught in caught.map_err(InspectError::system)? {
                    match caught.signal {
                        Signal::TSTP => screen.suspend().map_err(InspectError::Output)?,
                        signal if ends_a_candidate(signal) => return Ok(()),
                        // WINCH only needs the next picture.
                        _ => {}
                    }
                }
            }
            key = key => match key.map_err(InspectError::system)? {
                b'q' | b'Q' | ESCAPE => return Ok(()),
                _ => {}
            },
            look = &mut looking => {
                looking = Box::pin(looks.at(look.at.after(args.interval), look.settled));
                history.extend(slots.changes(look)?);
                let excess = history.len().saturating_sub(KEPT);
                history.drain(..excess);
            }
            () = clock.sleep(FRAME) => {}
        }
    }
}

/// Returns a key that was pressed, if any. The end of standard input counts as Escape.
fn pressed_key() -> Option<u8> {
    let mut key = [0];
    match rustix::io::read(rustix::stdio::stdin(), &mut key) {
        Ok(0) => Some(ESCAPE),
        Ok(_) => Some(key[0]),
        Err(_) => None,
    }
}

/// Watch the leaders: live on a terminal, otherwise one line for each change.
///
/// It only reads, and sees what a standby sees: records and their renewals. It shows when a renewal was last
/// seen, and what that leaves of the TTL before a standby may take over. The time that a leader has left is
/// known to the leader alone (--http, /metrics). A crash shows as renewals that stop.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  vvm watch --storage sqlite:/var/lib/payroll/leader.db --name payroll

On a terminal, q or Ctrl-C quits. NO_COLOR is respected.

Exit status: 0; 64 wrong arguments; 66 no such storage; 69 the storage refused;
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
