//! A scripted run for tests: what a real one looks like when all goes well, with every moment known.

use super::{
    check::Evidence,
    event::{Event, Lane, What},
    heartbeat::{Line, Word},
    timeline::Timeline,
};
use ielections::{Epoch, Ttl};
use rustix::process::Pid;
use std::time::Duration;
use vvm_clock::Instant;
use vvm_containment::Ended;

/// When it begins: not at the clock's origin, as no real one does.
pub(super) const BEGAN: Instant = Instant::from_nanos(500_000_000_000);

/// The TTL of a rehearsal.
pub(super) fn ttl() -> Ttl {
    Ttl::new(Duration::from_secs(2)).unwrap()
}

/// `millis` after the beginning.
pub(super) fn at(millis: u64) -> Instant {
    BEGAN.after(Duration::from_millis(millis))
}

/// A process of this number.
pub(super) fn process(number: i32) -> Pid {
    Pid::from_raw(number).unwrap()
}

/// The epoch of the `count`th leader.
pub(super) fn epoch(count: u64) -> Epoch {
    Epoch::new(1_795_243_929_000 + count * 1_000).unwrap()
}

/// A run with a crash, a stop, and a host stopped for ever.
pub(super) fn events() -> Vec<Event> {
    use Lane::{A, B, C};
    use What::*;
    let mut events = Vec::new();
    let mut add = |millis, lane, what| events.push(Event { at: at(millis), lane, what });
    for (lane, number) in [(A, 100), (B, 200), (C, 300)] {
        add(5, lane, Started(process(number)));
    }
    add(120, A, Elected(epoch(1)));
    add(140, A, WorkBegan(epoch(1), process(103)));
    for millis in [600, 1090, 1580] {
        add(millis, A, Renewed(epoch(1)));
    }
    add(1600, A, Crashed);
    add(1590, A, WorkEnded(epoch(1), process(103)));
    add(1602, A, Left(Ended::Signalled(9)));
    add(3590, B, Elected(epoch(2)));
    add(3610, B, WorkBegan(epoch(2), process(203)));
    add(3700, A, Started(process(110)));
    for millis in [4080, 4570] {
        add(millis, B, Renewed(epoch(2)));
    }
    add(4800, B, AskedToStop);
    add(4803, B, WorkEnded(epoch(2), process(203)));
    add(4810, B, Released(epoch(2)));
    add(4815, B, Left(Ended::Exited(0)));
    add(5110, C, Elected(epoch(3)));
    add(5130, C, WorkBegan(epoch(3), process(303)));
    add(5200, B, Started(process(210)));
    for millis in [5600, 6090] {
        add(millis, C, Renewed(epoch(3)));
    }
    add(6340, C, HostStopped);
    add(7689, C, HostDied);
    add(7680, C, WorkEnded(epoch(3), process(303)));
    add(7692, C, Left(Ended::Exited(137)));
    add(7688, C, Deadline);
    add(8100, A, Elected(epoch(4)));
    add(8120, A, WorkBegan(epoch(4), process(113)));
    for millis in [8590, 9080] {
        add(millis, A, Renewed(epoch(4)));
    }
    add(9200, A, AskedToStop);
    add(9201, B, AskedToStop);
    add(9203, A, WorkEnded(epoch(4), process(113)));
    add(9212, A, Released(epoch(4)));
    add(9215, A, Left(Ended::Exited(0)));
    add(9216, B, Left(Ended::Signalled(15)));
    events
}

/// The events until `millis`, folded.
pub(super) fn until(millis: u64) -> Timeline {
    let mut timeline = Timeline::beginning_at(BEGAN);
    events().into_iter().filter(|event| event.at <= at(millis)).for_each(|event| timeline.take(event));
    timeline
}

/// The whole run, folded.
pub(super) fn whole() -> Timeline {
    until(u64::MAX / 1_000_000_000)
}

/// What the workers of the run have written: their first lines and their last.
pub(super) fn evidence() -> Evidence {
    let line = |event: &Event| match event.what {
        What::WorkBegan(epoch, worker) => Some(Line { at: event.at, epoch, worker, word: Word::Begin }),
        What::WorkEnded(epoch, worker) => Some(Line { at: event.at, epoch, worker, word: Word::End }),
        _ => None,
    };
    let logs = Lane::ALL.map(|lane| {
        let of_lane = events().into_iter().filter(|event| event.lane == lane);
        (lane, of_lane.filter_map(|event| line(&event)).collect::<Vec<_>>())
    });
    Evidence::of(&logs)
}
