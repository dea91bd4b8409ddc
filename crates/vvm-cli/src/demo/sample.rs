//! The events of a run in which every check holds, for tests.

use super::{
    timeline::{
        CandidateId::{self, A, B, C},
        Event, Timeline, What,
    },
    work::WorkPeriod,
    worker::Line,
};
use ielections::{Epoch, Ttl};
use rustix::process::Pid;
use std::time::Duration;
use vvm_clock::Instant;
use vvm_containment::Ended;

pub(super) const BEGAN: Instant = Instant::from_nanos(500_000_000_000);

pub(super) fn ttl() -> Ttl {
    Ttl::new(Duration::from_secs(2)).unwrap()
}

pub(super) fn at(millis: u64) -> Instant {
    BEGAN.after(Duration::from_millis(millis))
}

pub(super) fn process(number: i32) -> Pid {
    Pid::from_raw(number).unwrap()
}

pub(super) fn epoch(leader: u64) -> Epoch {
    Epoch::new(1_795_243_929_000 + leader * 1_000).unwrap()
}

pub(super) fn line(millis: u64, leader: u64, worker: i32, count: u32) -> Line {
    Line { at: at(millis), epoch: epoch(leader), worker: process(worker), count }
}

/// Candidate, worker, election, beginning of work, renewals, end of work.
type Leadership = (CandidateId, i32, u64, u64, &'static [u64], u64);

const LEADERSHIPS: [Leadership; 4] = [
    (A, 103, 120, 140, &[600, 1090, 1580], 1590),
    (B, 203, 3590, 3610, &[4080, 4570], 4803),
    (C, 303, 5110, 5130, &[5600, 6090], 7680),
    (A, 113, 8100, 8120, &[8590, 9080], 9203),
];

/// A crash, a clean stop, and a host that hangs.
pub(super) fn events() -> Vec<Event> {
    let mut events = Vec::new();
    let mut add = |millis, id, what| events.push(Event { at: at(millis), id, what });
    for (millis, id, guardian) in [(5, A, 100), (5, B, 200), (5, C, 300), (3700, A, 110), (5200, B, 210)] {
        add(millis, id, What::Started(process(guardian)));
    }
    for (count, (id, worker, elected, began, renewals, _)) in (1..).zip(LEADERSHIPS) {
        add(elected, id, What::Elected(epoch(count)));
        add(began, id, What::WorkBegan(epoch(count), process(worker)));
        renewals.iter().for_each(|millis| add(*millis, id, What::Renewed(epoch(count))));
    }
    add(1600, A, What::Crashed);
    add(1602, A, What::Left(Ended::Signalled(9)));
    add(4800, B, What::AskedToStop);
    add(4810, B, What::Released(epoch(2)));
    add(4815, B, What::Left(Ended::Exited(0)));
    add(6340, C, What::HostStopped);
    add(7688, C, What::Deadline);
    add(7689, C, What::HostDied);
    add(7692, C, What::Left(Ended::Exited(137)));
    add(9212, A, What::Released(epoch(4)));
    events
}

pub(super) fn until(millis: u64) -> Timeline {
    let mut timeline = Timeline::new(BEGAN);
    events().into_iter().filter(|event| event.at <= at(millis)).for_each(|event| timeline.add(event));
    timeline
}

/// What the logs of the run have: first and last lines.
pub(super) fn work() -> Vec<WorkPeriod> {
    let mut work = Vec::new();
    for (leader, (id, worker, _, began, _, ended)) in (1..).zip(LEADERSHIPS) {
        WorkPeriod::add(&mut work, id, line(began, leader, worker, 0));
        WorkPeriod::add(&mut work, id, line(ended, leader, worker, 1));
    }
    work
}
