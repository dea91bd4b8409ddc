//! Releases: how the engine deletes a record.

use super::{
    actor::{Event, Kind, Releasing, Turn},
    actors::Engine,
    call::{Call, Reply, Request},
};
use crate::{
    Key,
    protocol::{ReleaseEvent, ReleaseStep},
};
use vvm_clock::Instant;

impl<K: Key, C: Call> Engine<K, C> {
    /// Turns the actor into the release of its record.
    pub(super) fn begin_release(&mut self, id: usize, releasing: Releasing<K>) {
        self.wake_at(id, Instant::NEVER);
        if let Some(actor) = self.actors.get_mut(id) {
            actor.kind = Kind::Releasing(Box::new(releasing));
            self.queue(id, Turn::Other);
        }
    }

    pub(super) fn release_event(&mut self, id: usize, event: Event) {
        let event = match event {
            Event::Woken => ReleaseEvent::Woken,
            Event::MaySend => ReleaseEvent::MaySend,
            Event::Answered(Reply::Deleted(outcome)) => ReleaseEvent::Deleted(outcome),
            Event::Answered(_) => return,
        };
        let now = self.now;
        let Kind::Releasing(releasing) = &mut self.actors[id].kind else { return };
        match releasing.release.on(now, event) {
            ReleaseStep::Sleep(until) => self.wake_at(id, until),
            ReleaseStep::Send => self.queue(id, Turn::Other),
            ReleaseStep::Delete { incarnation, epoch, timeout } => {
                let key = releasing.key.clone();
                self.call(id, timeout, Request::Delete(key, incarnation, epoch));
            }
            ReleaseStep::Done(outcome) => {
                if let Some(reply) = releasing.reply.take() {
                    // A dropped caller needs no answer.
                    let _ = reply.send(outcome);
                }
                self.remove(id);
            }
        }
    }
}
