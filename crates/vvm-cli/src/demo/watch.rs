//! [`Watch`]: everything that is going on, looked at often, told to the timeline and to whoever watches.
//!
//! What lives here: waiting until something has happened, and what is looked at meanwhile: the record, the workers'
//! logs, ends of processes, signals to us. What does not: what is done when (`script`), and what it proves (`verdict`).

use super::{
    act::Act,
    audience::Audience,
    candidate::{self, Folder},
    cut::Cut,
    draw_terminal::Scene,
    event::{Event, Lane, What},
    hanging::{End, Hanging},
    place::Place,
    record::Record,
    timeline::Timeline,
};
use crate::signals::{Signals, asks_to_stop};
use ielections::Ttl;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::Signal,
};
use std::time::Duration;
use vvm_clock::SystemClock;
use vvm_containment::{Containment, end_all};
use vvm_containment::{Ended, Family, Reap, reap};

/// How often everything is looked at.
const PACE: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// Everything that is watched.
#[derive(Debug)]
pub(crate) struct Watch<'run> {
    pub(super) folder: Folder<'run>,
    pub(super) ttl: Ttl,
    pub(super) family: Family,
    pub(super) signals: Signals,
    pub(super) record: &'run mut Record,
    pub(super) audience: &'run mut dyn Audience,
    pub(super) places: [Place; 3],
    /// The host that was stopped.
    pub(super) hanging: Option<Hanging>,
    pub(super) timeline: Timeline,
    pub(super) act: Act,
}

/// Whether `signal` is meant to end the demo: also one that comes because the terminal is gone.
fn ends_us(signal: Signal) -> bool {
    asks_to_stop(signal) || matches!(signal, Signal::HUP | Signal::QUIT)
}

impl Watch<'_> {
    /// Begins the next act.
    pub(super) fn begin(&mut self, act: Act) -> Result<(), Cut> {
        self.act = act;
        self.audience.act(act).map_err(Cut::Audience)
    }

    /// Looks until `found` finds what is awaited.
    ///
    /// # Errors
    /// When it takes too long, and whenever the run is cut short.
    pub(super) fn until<T>(
        &mut self,
        awaited: &'static str,
        mut found: impl FnMut(&Timeline) -> Option<T>,
    ) -> Result<T, Cut> {
        // Only against waiting for ever; what is late by its own bound is the verdict's to say.
        let limit = self.ttl.get() * 3 + Duration::from_secs(30);
        let give_up_at = SystemClock::read().after(limit);
        loop {
            if let Some(found) = found(&self.timeline) {
                return Ok(found);
            }
            if SystemClock::read() >= give_up_at {
                return Err(Cut::InVain { awaited, limit });
            }
            self.look()?;
        }
    }

    /// Starts a `vvm run` in `lane`.
    pub(super) fn start(&mut self, lane: Lane) -> Result<(), Cut> {
        let guardian = candidate::start(self.folder, lane, self.ttl).map_err(Cut::Processes)?;
        self.place(lane).settle(guardian);
        self.note(lane, What::Started(guardian))
    }

    /// Ends a whole `vvm run` by SIGKILL.
    pub(super) fn crash(&mut self, lane: Lane) -> Result<(), Cut> {
        let Some(guardian) = self.place(lane).dismiss() else { return Ok(()) };
        // Noted before it is done: what follows is counted from here.
        self.note(lane, What::Crashed)?;
        candidate::crash(&self.family, guardian);
        Ok(())
    }

    /// Asks a `vvm run` to stop.
    pub(super) fn ask_to_stop(&mut self, lane: Lane) -> Result<(), Cut> {
        let Some(guardian) = self.place(lane).dismiss() else { return Ok(()) };
        self.note(lane, What::AskedToStop)?;
        candidate::ask_to_stop(&self.family, guardian);
        Ok(())
    }

    /// Stops the host of a `vvm run` for ever.
    pub(super) fn hang(&mut self, lane: Lane) -> Result<(), Cut> {
        let Some(guardian) = self.place(lane).dismiss() else { return Ok(()) };
        self.note(lane, What::HostStopped)?;
        let process = candidate::hang(&self.family, guardian).map_err(Cut::Processes)?;
        self.hanging = Some(Hanging::new(lane, process));
        Ok(())
    }

    /// How the last `vvm run` of `lane` has ended, if it has.
    pub(super) fn ended(&self, lane: Lane) -> Option<Ended> {
        self.places[lane as usize].ended
    }

    /// Ends all that is left, and returns once nothing is.
    pub(super) fn clean_up(&mut self) {
        end_all(&Containment::by_family(self.family), drop, drop);
    }

    fn place(&mut self, lane: Lane) -> &mut Place {
        &mut self.places[lane as usize]
    }

    /// One look at everything.
    fn look(&mut self) -> Result<(), Cut> {
        self.rest();
        if let Some((lane, what)) = self.record.look()? {
            self.note(lane, what)?;
        }
        self.look_at_the_logs()?;
        self.look_at_processes()?;
        if let Some(caught) =
            self.signals.pending().into_iter().flatten().find(|caught| ends_us(caught.signal))
        {
            return Err(Cut::Interrupted(caught.signal));
        }
        let scene =
            Scene { timeline: &self.timeline, act: self.act, ttl: self.ttl, now: SystemClock::read() };
        self.audience.moment(&scene).map_err(Cut::Audience)
    }

    /// Until it is time for the next look; less when a signal comes or the stopped host is dead.
    fn rest(&mut self) {
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        let living = self.hanging.as_ref().filter(|hanging| hanging.is_not_known_to_be_dead());
        fds.extend(living.map(|hanging| PollFd::new(hanging, PollFlags::IN)));
        // Interrupted is as good as rested.
        let _ = poll(&mut fds, Some(&PACE));
        let died = fds.get(1).is_some_and(|process| !process.revents().is_empty());
        if let Some(hanging) = self.hanging.as_mut().filter(|_| died) {
            hanging.died_at(SystemClock::read());
        }
    }

    fn look_at_the_logs(&mut self) -> Result<(), Cut> {
        for lane in Lane::ALL {
            let family = self.family;
            for event in self.place(lane).new_work(&family)? {
                self.tell(event)?;
            }
        }
        Ok(())
    }

    fn look_at_processes(&mut self) -> Result<(), Cut> {
        while let Reap::One(reaped) = reap() {
            let left = self.places.iter_mut().find(|place| place.guardian == Some(reaped.pid));
            // Others were left to us by a guardian that was killed.
            let Some(place) = left else { continue };
            let (lane, unasked) = (place.lane, !place.dismissed);
            place.vacate(reaped.ended);
            self.tell_the_end_of_the_hanging(lane)?;
            self.note(lane, What::Left(reaped.ended))?;
            if unasked {
                return Err(Cut::LeftUnasked { lane, ended: reaped.ended });
            }
        }
        Ok(())
    }

    /// When the host that was stopped had to be dead, and when it was.
    fn tell_the_end_of_the_hanging(&mut self, lane: Lane) -> Result<(), Cut> {
        let Some(hanging) = self.hanging.take_if(|hanging| hanging.lane == lane) else { return Ok(()) };
        let End { deadline, died } = hanging.end(&self.folder.result(lane));
        if let Some(at) = deadline {
            self.tell(Event { at, lane, what: What::Deadline })?;
        }
        died.map_or(Ok(()), |at| self.tell(Event { at, lane, what: What::HostDied }))
    }

    /// Something that is happening now.
    fn note(&mut self, lane: Lane, what: What) -> Result<(), Cut> {
        self.tell(Event { at: SystemClock::read(), lane, what })
    }

    /// Something that has happened.
    fn tell(&mut self, event: Event) -> Result<(), Cut> {
        self.timeline.take(event);
        self.audience.event(&event, self.timeline.began).map_err(Cut::Audience)
    }
}
