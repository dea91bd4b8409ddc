//! Checks fail when their invariant is violated on purpose. `cargo xtask sim --broken` shows that of the others.

use super::*;
use crate::{
    clock::Drift,
    records::{self, Outcome, Token, Write},
};
use ielections::{DocumentVersion, DocumentWrite, Entry, Epoch, Fence, Holder, OnlyIf, Vacant, Version};

const P1: Process = Process(1001);
const P2: Process = Process(2001);

fn world() -> Arc<World> {
    let clock = MockClock::starting_at(Instant::from_nanos(1));
    let rng = &mut Rng::with_seed(1);
    let (rates, trace) = (FaultRates::none(), Trace::new(false));
    let world = World::new(clock.clone(), Inbox::default(), rng.fork(), rates, trace, Promises::ALL);
    for process in [P1, P2] {
        world.born(process, SimClock::draw(&clock, Drift::Within, rng), false);
    }
    world
}

fn entry(epoch: u64, seed: u8) -> Entry {
    Entry {
        holder: Holder::new("me").unwrap(),
        version: Version { incarnation: Incarnation::from_bytes([seed; 16]), write: 0 },
        ttl: Ttl::DEFAULT,
        epoch: Epoch::new(epoch).unwrap(),
    }
}

fn violation(world: &World) -> String {
    world.state().violation.clone().unwrap_or_default()
}

fn apply(world: &World, process: Process, write: &Write) -> Outcome {
    world.apply(&world.sent(process, write), write)
}

/// Shows I1.
#[test]
fn two_processes_at_work_on_one_slot_violate_i1() {
    let world = world();
    let (one, two) = (entry(1, 1), entry(2, 2));
    world.work_begins(P1, 1, one.epoch, one.incarnation());
    world.work_begins(P2, 2, two.epoch, two.incarnation());
    assert_eq!(violation(&world), "");
    world.work_begins(P2, 1, two.epoch, two.incarnation());
    assert!(violation(&world).starts_with("I1"), "{}", violation(&world));
}

#[test]
fn work_at_the_same_epoch_again_violates_rising_epochs() {
    let world = world();
    let entry = entry(1, 1);
    for process in [P1, P2] {
        world.work_begins(process, 1, entry.epoch, entry.incarnation());
        world.work_ends(process, entry.incarnation());
    }
    assert!(violation(&world).starts_with("rising epochs"), "{}", violation(&world));
}

fn batch(of: &Entry, after: DocumentVersion, number: u64) -> (Token, Write) {
    let token = Token { incarnation: of.incarnation(), writer: 1, number };
    let put =
        DocumentWrite::Put { id: records::document(1).unwrap(), body: token.body(), only_if: OnlyIf::Always };
    let fence = Fence { epoch: of.epoch, incarnation: of.incarnation(), after };
    (token, Write::Batch(1, fence, [put].into()))
}

/// Shows I7.
#[test]
fn batch_that_is_confirmed_and_has_not_landed_violates_i7() {
    let world = world();
    let entry = entry(1, 1);
    assert!(apply(&world, P1, &Write::Insert(1, Vacant::default(), entry.clone())).is_none());
    let (token, write) = batch(&entry, DocumentVersion::NONE, 1);
    assert!(apply(&world, P1, &write).is_none());
    let first = DocumentVersion::NONE.next();
    world.batch_answered(1, token, &Ok(first));
    assert_eq!(violation(&world), "");
    world.batch_answered(1, token, &Ok(first.next()));
    assert!(violation(&world).starts_with("I7"), "{}", violation(&world));
}
