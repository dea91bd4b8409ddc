//! `vvm watch`: the leaders, and each change. Reads as a standby does, at a modest interval.
//!
//! `look` reads, `slots` remembers what was seen, `change` is a difference, `draw` the picture.

mod change;
mod draw;
mod look;
mod slots;

use crate::{
    args::WatchArgs,
    inspection::{conclude, inspect},
    signals::{Signals, ends_a_candidate},
    terminal_view::{Palette, Screen, palette_of_standard_output},
};
use draw::Scene;
use look::Looks;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::Signal,
};
use slots::Slots;
use std::{
    future::pending,
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};
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
