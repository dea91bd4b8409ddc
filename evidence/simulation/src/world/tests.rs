//! Every check fails when its invariant is violated on purpose.

use super::*;
use ielections::{Entry, Holder, Vacant, Version};

const P1: Process = Process(1);
const P2: Process = Process(2);

fn world() -> Arc<World> {
    let clock = MockClock::starting_at(Instant::from_nanos(1));
    let world =
        World::new(clock.clone(), Inbox::default(), Rng::with_seed(1), FaultRates::none(), Trace::new(false));
    for process in [P1, P2] {
        world.born(process, Arc::new(clock.clone()));
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
        world.work_ends(process);
    }
    assert!(violation(&world).starts_with("rising epochs"), "{}", violation(&world));
}

#[test]
fn deadline_later_than_the_applied_write_allows_violates_i3() {
    let world = world();
    let write = Write::Insert(1, Vacant::default(), entry(1, 1));
    assert!(apply(&world, P1, &write).is_none());
    let bound = world.clock.now().after(Duration::from_secs(16));
    world.deadline_set(P1, Some(bound));
    assert_eq!(violation(&world), "");
    world.deadline_set(P1, Some(bound.after(Duration::from_nanos(1))));
    assert!(violation(&world).starts_with("I3"), "{}", violation(&world));
}

#[test]
fn work_without_a_deadline_violates_i4() {
    let world = world();
    let entry = entry(1, 1);
    world.work_begins(P1, 1, entry.epoch, entry.incarnation());
    world.check();
    assert!(violation(&world).starts_with("I4"), "{}", violation(&world));
}

/// Shows I5.
#[test]
fn early_take_over_violates_i5() {
    let world = world();
    let (dead, next) = (entry(1, 1), entry(2, 2));
    assert!(apply(&world, P1, &Write::Insert(1, Vacant::default(), dead.clone())).is_none());
    world.clock.advance(Duration::from_secs(18));
    assert!(apply(&world, P2, &Write::TakeOver(1, dead, next)).is_none());
    assert!(violation(&world).starts_with("I5"), "{}", violation(&world));
}

/// Shows I6.
#[test]
fn release_during_a_renewal_violates_i6() {
    let world = world();
    let entry = entry(1, 1);
    let release = Write::Delete(1, entry.incarnation(), entry.epoch);
    world.renewal_begins(entry.incarnation());
    world.renewal_begins(entry.incarnation());
    world.renewal_ends(entry.incarnation());
    world.sent(P2, &release);
    assert!(violation(&world).starts_with("I6"), "{}", violation(&world));
}

#[test]
fn release_after_the_last_renewal_is_no_violation() {
    let world = world();
    let entry = entry(1, 1);
    world.renewal_begins(entry.incarnation());
    world.renewal_ends(entry.incarnation());
    world.sent(P1, &Write::Delete(1, entry.incarnation(), entry.epoch));
    assert_eq!(violation(&world), "");
}

/// Shows I7.
#[test]
fn take_over_of_its_own_record_violates_i7() {
    let world = world();
    let (own, next) = (entry(1, 1), entry(2, 2));
    assert!(apply(&world, P1, &Write::Insert(1, Vacant::default(), own.clone())).is_none());
    world.clock.advance(Duration::from_secs(21));
    assert!(apply(&world, P1, &Write::TakeOver(1, own, next)).is_none());
    assert!(violation(&world).starts_with("I7"), "{}", violation(&world));
}

/// Shows I7.
#[test]
fn loss_to_its_own_write_violates_i7() {
    let world = world();
    let entry = entry(1, 1);
    assert!(apply(&world, P1, &Write::Insert(1, Vacant::default(), entry.clone())).is_none());
    world.lost_to(P2, entry.incarnation());
    assert_eq!(violation(&world), "");
    world.lost_to(P1, entry.incarnation());
    assert!(violation(&world).starts_with("I7"), "{}", violation(&world));
}

/// Shows I6.
#[test]
fn release_during_work_violates_i6() {
    let world = world();
    let entry = entry(1, 1);
    assert!(apply(&world, P1, &Write::Insert(1, Vacant::default(), entry.clone())).is_none());
    world.work_begins(P1, 1, entry.epoch, entry.incarnation());
    assert!(apply(&world, P1, &Write::Delete(1, entry.incarnation(), entry.epoch)).is_none());
    assert!(violation(&world).starts_with("I6"), "{}", violation(&world));
}
