//! Records on their way out.

use super::{
    actor::{Event, Kind, Turn},
    call::{Call, Reply, Request},
    task::Engine,
};
use crate::{
    Key, ReleaseOutcome,
    protocol::{Release, ReleaseEvent, ReleaseStep},
};
use tokio::sync::oneshot;

/// One record being deleted.
pub(super) struct Releasing<K> {
    pub(super) key: K,
    pub(super) release: Release,
    /// Who waits for the outcome; nobody for what a campaign left behind.
    pub(super) reply: Option<oneshot::Sender<ReleaseOutcome>>,
}

impl<K: Key, C: Call> Engine<K, C> {
    /// Turns the actor, whatever it was, into the release of its record.
    pub(super) fn begin_release(&mut self, id: usize, releasing: Releasing<K>) {
        self.wake_at(id, vvm_clock::Instant::NEVER);
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
            ReleaseStep::Done(handback) => {
                if let Some(reply) = releasing.reply.take() {
                    // A caller that no longer waits needs no answer.
                    let _ = reply.send(handback);
                }
                self.remove(id);
            }
        }
    }
}
