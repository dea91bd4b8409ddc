//! Datagrams between leaders and their successors: lost, late, doubled and reordered. And who may claim by right (I5).

use super::World;
use crate::clock::Process;
use fastrand::Rng;
use ielections::{
    Entry, Epoch, Incarnation,
    successor::{Datagram, FromStandby, Pairing, PeerInbox, PeerLink, PeerMessage, Withdrawal},
};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::watch;
use vvm_clock::{Clock, Instant};
use vvm_storage::ElectionKey;

#[derive(Default)]
pub(crate) struct Peers {
    links: Vec<PeerAddress>,
    offered_by: BTreeMap<[u8; 16], Process>,
    /// The support period of each offer that was named.
    named: BTreeMap<[u8; 16], (Incarnation, Epoch, Duration)>,
    acknowledged: BTreeMap<[u8; 16], (Process, Instant)>,
}

#[derive(Clone)]
struct PeerAddress {
    process: Process,
    slot: u32,
    inbox: Arc<Mutex<Option<PeerInbox>>>,
}

impl Peers {
    /// Notes what follows from a datagram for the right to claim. Returns the support period of a new naming, and whether
    /// the leader has named another successor before.
    fn sent(&mut self, process: Process, now: Instant, datagram: &Datagram) -> Option<bool> {
        match datagram {
            Datagram::ToStandby(ping) if ping.below.is_some() => {
                let Pairing { incarnation, epoch, offer } = ping.pairing;
                let is_another = self.named.values().any(|(of, at, _)| (*of, *at) == (incarnation, epoch));
                let period = ping.period.get();
                self.named.insert(offer, (incarnation, epoch, period)).is_none().then_some(is_another)
            }
            Datagram::ToLeader(FromStandby::Answer { pairing, acknowledges: true, .. }) => {
                self.acknowledged.insert(pairing.offer, (process, now));
                None
            }
            Datagram::ToLeader(FromStandby::Offer(pairing)) => {
                self.offered_by.insert(pairing.offer, process);
                None
            }
            Datagram::ToStandby(_) | Datagram::ToLeader(_) => None,
        }
    }

    /// Whether a claim of this record, sent then, is by the right of a successor: P has passed since its last
    /// acknowledgement, on the fastest clock that I1 allows.
    pub(super) fn may_claim(&self, writer: Process, entry: &Entry, sent_at: Instant) -> bool {
        self.acknowledged.iter().any(|(offer, (process, at))| {
            *process == writer
                && self.named.get(offer).is_some_and(|(incarnation, epoch, period)| {
                    entry.is_of(*incarnation, *epoch) && sent_at.since(*at) >= period.mul_f64(1.0 / 1.1)
                })
        })
    }
}

/// The network of one campaign.
pub(crate) struct SimLink {
    world: Arc<World>,
    process: Process,
    slot: u32,
    inbox: Arc<Mutex<Option<PeerInbox>>>,
    rng: Mutex<Rng>,
    may_stop: watch::Sender<u64>,
}

impl SimLink {
    pub(crate) fn new(world: &Arc<World>, process: Process, slot: u32, rng: Rng) -> Arc<Self> {
        let inbox = Arc::new(Mutex::default());
        world.state().peers.links.push(PeerAddress { process, slot, inbox: Arc::clone(&inbox) });
        let (world, rng, may_stop) = (Arc::clone(world), Mutex::new(rng), watch::Sender::new(0));
        Arc::new(Self { world, process, slot, inbox, rng, may_stop })
    }

    /// Asks to stop, and waits until no right depends on this process.
    pub(crate) async fn stop(&self) {
        let mut may_stop = self.may_stop.subscribe();
        deliver(&self.inbox, PeerMessage::Stop);
        if may_stop.changed().await.is_ok() {
            self.world.count(|counts| counts.stops_allowed += 1);
        }
    }

    fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.rng.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn delay(rng: &mut Rng) -> Duration {
        let most = if rng.u32(..20) == 0 { 5_000 } else { 60 };
        Duration::from_millis(rng.u64(..most))
    }
}

fn deliver(inbox: &Mutex<Option<PeerInbox>>, message: PeerMessage) {
    let inbox = inbox.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(inbox) = inbox {
        inbox.deliver(message);
    }
}

impl PeerLink<ElectionKey> for SimLink {
    fn connect(&self, inbox: PeerInbox) {
        *self.inbox.lock().unwrap_or_else(PoisonError::into_inner) = Some(inbox);
    }

    fn find_leader(&self, _slot: &ElectionKey, entry: &Entry) -> bool {
        self.world.state().claimants.get(&entry.incarnation()) != Some(&self.process)
    }

    fn send(&self, datagram: Datagram) {
        let (world, now) = (&self.world, self.world.clock.now());
        let mut state = world.state();
        if let Some(is_another) = state.peers.sent(self.process, now, &datagram) {
            state.counts.named += 1;
            state.counts.named_another += u64::from(is_another);
        }
        // Now and then one arrives at every process of the slot: only the one that it is for heeds it (N8).
        let to = match datagram {
            _ if self.draw(|rng| rng.u32(..30) == 0) => None,
            Datagram::ToStandby(ping) => state.peers.offered_by.get(&ping.pairing.offer).copied(),
            Datagram::ToLeader(FromStandby::Offer(pairing) | FromStandby::Answer { pairing, .. }) => {
                state.claimants.get(&pairing.incarnation).copied()
            }
        };
        let is_reached = |peer: &&PeerAddress| {
            let is_other = peer.process != self.process && peer.slot == self.slot;
            is_other && to.is_none_or(|to| to == peer.process) && state.processes.contains_key(&peer.process)
        };
        let links: Vec<_> = state.peers.links.iter().filter(is_reached).cloned().collect();
        // After the last fault, none is lost.
        let is_faulty = state.rates.process_fault_every < crate::faults::NO_FAULT;
        drop(state);
        for PeerAddress { inbox, .. } in links {
            let copies = self.draw(|rng| match rng.u32(..10) {
                0 if is_faulty => 0,
                1 if is_faulty => 2,
                _ => 1,
            });
            for _ in 0..copies {
                let delay =
                    self.draw(|rng| if is_faulty { Self::delay(rng) } else { Duration::from_millis(5) });
                let (clock, inbox) = (world.clock.clone(), Arc::clone(&inbox));
                let travel = async move {
                    clock.sleep(delay).await;
                    deliver(&inbox, PeerMessage::Received(datagram));
                };
                world.spawn(Process::WORLD, "datagram", Box::pin(travel));
            }
        }
    }

    fn tighten(&self, kill_at: Instant) {
        let delay = self.draw(Self::delay);
        let (clock, inbox) = (self.world.clock.clone(), Arc::clone(&self.inbox));
        let confirm = async move {
            clock.sleep(delay).await;
            deliver(&inbox, PeerMessage::InForce(kill_at));
        };
        self.world.spawn(Process::WORLD, "guardian", Box::pin(confirm));
    }

    fn may_stop(&self) {
        self.may_stop.send_modify(|count| *count += 1);
    }

    fn withdrawn(&self, _why: Withdrawal) {}

    fn has_succeeded(&self) {}
}

impl fmt::Debug for SimLink {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "link of {}", self.process)
    }
}
