//! `vvm watch`: who leads, as it changes. Only looks, as a standby does, and at a modest interval.
//!
//! - `slots`: what was seen of each slot. `change`: what happened to one.
//! - `draw`: how that looks on a terminal.

mod change;
mod draw;
mod slots;

use crate::inspection::inspect;
use crate::{
    cli::args::WatchArgs,
    signals::{Signals, ends_a_candidate},
    terminal_view::{Palette, Screen, palette_of_standard_output},
};
use draw::Scene;
use ielections::{ReadError, Slot};
use rustix::process::Signal;
use slots::Slots;
use std::{
    future::pending,
    io::{self, Write as _},
    num::NonZeroU32,
    process::ExitCode,
    time::Duration,
};
use vvm_clock::{Instant, SystemWallClock, WallClock as _};
use vvm_containment::Readable;
use vvm_host::operate::{InspectError, Purpose, StorageInspector};
use vvm_storage::Pause;

/// How often a terminal is drawn while nothing happens: as often as the tenths of a second that it shows are
/// read.
const FRAME: Duration = Duration::from_millis(250);

/// The byte that the Escape key sends.
const ESCAPE: u8 = 27;

/// How many changes are kept: more than a terminal is high.
const REMEMBERED: usize = 200;

/// `vvm watch`.
pub(crate) fn main(args: &WatchArgs) -> ExitCode {
    match inspect((&args.storage, &args.name), Purpose::Look, async |desk| watch(desk, args).await) {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => crate::inspection::conclude(&refusal),
    }
}

async fn watch(desk: &StorageInspector, args: &WatchArgs) -> Result<(), InspectError> {
    match palette_of_standard_output() {
        Some(palette) if !args.json => on_a_terminal(args, &Looks(desk), palette).await,
        _ => in_lines(args, &Looks(desk)).await,
    }
}

/// A line for each change, as long as somebody reads them.
async fn in_lines(args: &WatchArgs, looks: &Looks<'_>) -> Result<(), InspectError> {
    let (mut slots, mut settled, mut due) = (Slots::default(), None, looks.0.clock.now());
    loop {
        let look = looks.at(due, settled).await;
        settled = look.settled;
        due = look.at.after(args.interval);
        let mut out = io::stdout().lock();
        for change in slots.changes(look)? {
            let line = if args.json { change.to_json() } else { change.to_string() };
            writeln!(out, "{line}").and_then(|()| out.flush()).map_err(InspectError::Output)?;
        }
    }
}

/// A picture that moves, until somebody asks for the end.
async fn on_a_terminal(args: &WatchArgs, looks: &Looks<'_>, palette: Palette) -> Result<(), InspectError> {
    let mut signals = Signals::catch_also(&[Signal::WINCH, Signal::TSTP]).map_err(InspectError::system)?;
    let signalled = Readable::of(&signals).map_err(InspectError::system)?;
    let screen = Screen::enter(palette).map_err(InspectError::Output)?;
    let keyboard = screen.has_keyboard().then(|| Readable::of(rustix::stdio::stdin()));
    let keyboard = keyboard.transpose().map_err(InspectError::system)?;
    let (mut slots, mut history) = (Slots::default(), Vec::new());
    let clock = &looks.0.clock;
    // Kept until it is answered, however many frames that takes.
    let mut looking = Box::pin(looks.at(clock.now(), None));
    loop {
        let scene = Scene { name: &args.name, slots: &slots, history: &history, now: clock.now() };
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
                        // Drawn anew is what all others ask for, if anything.
                        _ => {}
                    }
                }
            }
            key = key => if matches!(key.map_err(InspectError::system)?, b'q' | b'Q' | ESCAPE) { return Ok(()) },
            look = &mut looking => {
                looking = Box::pin(looks.at(look.at.after(args.interval), look.settled));
                history.extend(slots.changes(look)?);
                let excess = history.len().saturating_sub(REMEMBERED);
                history.drain(..excess);
            }
            () = clock.sleep(FRAME) => {}
        }
    }
}

/// Returns a key that was pressed, if one was. The end of standard input counts as Escape.
fn pressed_key() -> Option<u8> {
    let mut key = [0];
    match rustix::io::read(rustix::stdio::stdin(), &mut key) {
        Ok(0) => Some(ESCAPE),
        Ok(_) => Some(key[0]),
        Err(_) => None,
    }
}

/// How looks are taken.
struct Looks<'watch>(&'watch StorageInspector);

/// What a look found.
struct Found {
    slots: Vec<(u32, Slot)>,
    paused: Option<Paused>,
}

/// A pause that stands.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Paused {
    by: String,
    /// In Unix time, for people.
    since: Duration,
}

impl Paused {
    fn of(pause: &Pause) -> Self {
        Self { by: pause.by().to_owned(), since: pause.since_unix_epoch() }
    }
}

/// What a look came to.
struct Look {
    found: Result<Found, ReadError>,
    /// How many slots there are, once somebody has settled that.
    settled: Option<NonZeroU32>,
    at: Instant,
    /// The same in Unix time, for people.
    wall: Duration,
}

impl Looks<'_> {
    /// One look, not before `due`. Never fails: what went wrong is what was found.
    async fn at(&self, due: Instant, mut settled: Option<NonZeroU32>) -> Look {
        self.0.clock.sleep_until(due).await;
        let found = self.read(&mut settled).await;
        Look { found, settled, at: self.0.clock.now(), wall: SystemWallClock.since_unix_epoch() }
    }

    async fn read(&self, settled: &mut Option<NonZeroU32>) -> Result<Found, ReadError> {
        let Self(desk) = self;
        if settled.is_none() {
            *settled = desk.storage.slot_count(&desk.cluster).await?;
        }
        let keys = desk.keys_of(*settled);
        let (slots, requests) = desk.storage.scan_with_requests(&desk.cluster, &keys).await?;
        let slots = keys.iter().map(|key| key.slot.get().get()).zip(slots).collect();
        Ok(Found { slots, paused: requests.pause.as_ref().map(Paused::of) })
    }
}
