//! [`Event`]: what happened to a candidate, and when. [`Timeline`]: all events, in order.

use crate::terminal_view::Style;
use ielections::Epoch;
use rustix::process::Pid;
use std::fmt;
use vvm_clock::Instant;
use vvm_containment::Ended;

/// The name of a candidate: of one `vvm run`, and of the next one that is started in its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CandidateId {
    A,
    B,
    C,
}

impl CandidateId {
    /// From top to bottom.
    pub(super) const ALL: [Self; 3] = [Self::A, Self::B, Self::C];

    /// Returns the name, as in the record.
    pub(super) fn name(self) -> &'static str {
        ["A", "B", "C"][self as usize]
    }

    /// Returns its colour in pictures.
    pub(super) fn colour(self) -> Style {
        [Style::Teal, Style::Violet, Style::Orange][self as usize]
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Event {
    pub(super) at: Instant,
    pub(super) id: CandidateId,
    pub(super) what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// The demo started a `vvm run`, whose guardian is this process.
    Started(Pid),
    /// The record names the candidate, under a new epoch.
    Elected(Epoch),
    /// The record has a new version under this epoch.
    Renewed(Epoch),
    /// The record of this epoch was released.
    Released(Epoch),
    /// A worker wrote its first line.
    WorkBegan(Epoch, Pid),
    /// The demo sent SIGKILL to guardian, host and worker.
    Crashed,
    /// The demo sent SIGTERM to the guardian.
    AskedToStop,
    /// The demo sent SIGSTOP to the host.
    HostStopped,
    /// The kill deadline of the stopped host. Known only after its end.
    Deadline,
    /// The stopped host died. Known only after the `vvm run` ended.
    HostDied,
    /// The `vvm run` ended, with everything that it had started.
    Left(Ended),
}

impl Event {
    /// Returns a line of text, in a run that began at this moment.
    pub(super) fn to_line(self, began: Instant) -> String {
        format!("{:>8.3} s  {self}", began.until(self.at).as_secs_f64())
    }
}

impl fmt::Display for Event {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.id.name();
        match self.what {
            What::Started(guardian) => write!(out, "{id} is started (vvm run, process {guardian})"),
            What::Elected(epoch) => write!(out, "{id} leads, epoch {epoch}"),
            What::Renewed(_) => write!(out, "{id} renews"),
            What::Released(_) => write!(out, "{id} has released the record"),
            What::WorkBegan(_, worker) => write!(out, "{id}'s worker begins (process {worker})"),
            What::Crashed => write!(out, "kill -9 of {id}'s guardian, host and worker, as in a crash"),
            What::AskedToStop => write!(out, "SIGTERM to {id}: a request to stop"),
            What::HostStopped => write!(out, "SIGSTOP to {id}'s host: it hangs, its worker continues"),
            What::Deadline => write!(out, "{id}'s kill deadline: 0.8 TTL after its last renewal was sent"),
            What::HostDied => write!(out, "{id}'s host, which could do nothing, was killed by the kernel"),
            What::Left(ended) => write!(out, "{id} {ended}"),
        }
    }
}

/// Everything that has happened.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    pub(super) began: Instant,
    /// In the order of their moments.
    pub(super) events: Vec<Event>,
}

impl Timeline {
    /// Returns a timeline without events.
    pub(super) fn new(began: Instant) -> Self {
        Self { began, events: Vec::new() }
    }

    /// Adds `event`, which may precede events that were added before it.
    pub(super) fn add(&mut self, event: Event) {
        let place = self.events.partition_point(|earlier| earlier.at <= event.at);
        self.events.insert(place, event);
    }

    /// Returns the first event that `is_wanted`.
    pub(super) fn first(&self, is_wanted: impl Fn(&Event) -> bool) -> Option<Event> {
        self.events.iter().copied().find(is_wanted)
    }

    /// Returns the first event of this kind.
    pub(super) fn mark(&self, what: What) -> Option<Event> {
        self.first(|event| event.what == what)
    }

    /// Returns the present leader and its epoch. A worker's first line may be read before the record is.
    pub(super) fn leader(&self) -> Option<(CandidateId, Epoch)> {
        let led = self.events.iter().filter_map(|event| match event.what {
            What::Elected(epoch) | What::WorkBegan(epoch, _) => Some((event.id, epoch)),
            _ => None,
        });
        led.max_by_key(|(_, epoch)| *epoch).filter(|(_, epoch)| self.gone(*epoch).is_none())
    }

    /// Returns when the record was released, or was seen to name another leader.
    pub(super) fn gone(&self, epoch: Epoch) -> Option<Instant> {
        let ends = |what| {
            matches!(what, What::Released(released) if released == epoch)
                || matches!(what, What::Elected(later) if later > epoch)
        };
        self.first(|event| ends(event.what)).map(|event| event.at)
    }

    /// Returns when the record was seen to be written under `epoch`, the election not included.
    pub(super) fn renewals(&self, epoch: Epoch) -> impl DoubleEndedIterator<Item = Instant> {
        let renewals = self.events.iter().filter(move |event| event.what == What::Renewed(epoch));
        renewals.map(|event| event.at)
    }

    /// Returns whether a worker has begun under `epoch`, in a `vvm run` that has not ended.
    pub(super) fn is_working(&self, epoch: Epoch) -> bool {
        let began = self.first(|event| matches!(event.what, What::WorkBegan(of, _) if of == epoch));
        began.is_some_and(|began| self.left(began.id, began.at).is_none())
    }

    /// Returns when the `vvm run` that this candidate had at `moment` ended.
    pub(super) fn left(&self, id: CandidateId, moment: Instant) -> Option<Instant> {
        let left = |event: &Event| event.id == id && event.at > moment && matches!(event.what, What::Left(_));
        self.first(left).map(|event| event.at)
    }

    /// Returns the event of the first worker that began after `moment`.
    pub(super) fn next_at_work(&self, moment: Instant) -> Option<Event> {
        self.first(|event| event.at > moment && matches!(event.what, What::WorkBegan(..)))
    }
}
