//! Checks fail when their invariant is violated on purpose. `cargo xtask sim --broken` shows that of the others: each is
//! the first to fail for one of its bugs.

use super::*;
use crate::{
    clock::Drift,
    records::{self, Outcome, Token, Write},
};
use ielections::{DocumentVersion, DocumentWrite, Entry, Fence, Holder, OnlyIf, Vacant, Version};
use std::num::NonZeroU32;

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

#[test]
fn external_fence_that_refuses_the_leader_violates_rising_epochs() {
    let world = world();
    let (old, leader) = (entry(1, 1), entry(2, 2));
    assert!(apply(&world, P1, &Write::Insert(1, Vacant::default(), leader.clone())).is_none());
    world.external_call(1, leader.epoch, leader.incarnation());
    world.external_call(1, old.epoch, old.incarnation());
    assert_eq!(violation(&world), "", "a deposed leader may be refused");
    world.external_call(1, Epoch::new(3).unwrap(), old.incarnation());
    world.external_call(1, leader.epoch, leader.incarnation());
    assert!(violation(&world).starts_with("rising epochs"), "{}", violation(&world));
}

/// A world whose first process has a guardian and leads slot 1.
fn guarded() -> (Arc<World>, Entry) {
    let (world, entry) = (world(), entry(1, 1));
    let _host_died = world.guards(P1, false);
    assert!(apply(&world, P1, &Write::Insert(1, Vacant::default(), entry.clone())).is_none());
    world.work_begins(P1, 1, entry.epoch, entry.incarnation());
    (world, entry)
}

fn release(entry: &Entry) -> Write {
    Write::Delete(1, entry.incarnation(), entry.epoch)
}

/// Shows I1.
#[test]
fn work_while_a_dead_host_has_processes_left_violates_i1() {
    let (world, _) = guarded();
    world.died(P1, "crashes");
    let next = entry(2, 2);
    world.work_begins(P2, 1, next.epoch, next.incarnation());
    assert!(violation(&world).starts_with("I1"), "{}", violation(&world));
}

/// Shows I2.
#[test]
fn release_of_another_record_by_a_guardian_violates_i2() {
    let (world, _) = guarded();
    let other = entry(1, 2);
    assert!(apply(&world, P2, &Write::Insert(2, Vacant::default(), other.clone())).is_none());
    world.died(P1, "crashes");
    world.ends_rest(P1);
    world.asks_documents(P1.release(true));
    let of_another = Write::Delete(2, other.incarnation(), other.epoch);
    assert!(apply(&world, P1.release(true), &of_another).is_none());
    assert!(violation(&world).starts_with("I2"), "{}", violation(&world));
}

#[test]
fn release_by_a_guardian_before_or_between_the_history_violates_it() {
    let (world, entry) = guarded();
    world.sent(P1.release(false), &release(&entry));
    assert!(violation(&world).starts_with("history"), "{}", violation(&world));
    let (world, entry) = guarded();
    world.asks_documents(P1.release(false));
    world.sent(P1.release(false), &release(&entry));
    assert_eq!(violation(&world), "");
    world.sent(P1.release(false), &batch(&entry, DocumentVersion::NONE, 1).1);
    assert!(violation(&world).starts_with("history"), "{}", violation(&world));
}

#[test]
fn guardian_that_writes_no_end_violates_the_history() {
    let (world, entry) = guarded();
    let (_, other) = batch(&entry, DocumentVersion::NONE, 1);
    assert!(apply(&world, P1.release(false), &other).is_none());
    assert!(violation(&world).starts_with("history"), "{}", violation(&world));
}

fn most(attempts: u32) -> NonZeroU32 {
    NonZeroU32::new(attempts).unwrap()
}

/// Applies the document of periods under `of`.
fn stores(world: &World, of: &Entry, after: &mut DocumentVersion, (done, attempts): (bool, u32)) {
    let own =
        serde_json::json!({ "period": "4", "done": done, "attempts": attempts, "epoch": of.epoch.get() });
    let body = serde_json::json!({ "periods": [own] }).to_string();
    let id = ielections::DocumentId::new(&b"vvm-once"[..]).unwrap();
    let put = DocumentWrite::Put { id, body: body.into(), only_if: OnlyIf::Always };
    let fence = Fence { epoch: of.epoch, incarnation: of.incarnation(), after: *after };
    assert!(apply(world, P1, &Write::Batch(1, fence, [put].into())).is_none());
    *after = after.next();
}

/// A world in which P1 leads, has counted attempt 1 of period 4, and runs it.
fn at_period() -> (Arc<World>, Entry, DocumentVersion) {
    let (world, entry, mut after) = (world(), entry(1, 1), DocumentVersion::NONE);
    assert!(apply(&world, P1, &Write::Insert(1, Vacant::default(), entry.clone())).is_none());
    stores(&world, &entry, &mut after, (false, 1));
    world.job_begins(P1, (4, most(2)), 1, (entry.epoch, entry.incarnation()));
    world.work_begins(P1, 1, entry.epoch, entry.incarnation());
    assert_eq!(violation(&world), "");
    (world, entry, after)
}

#[test]
fn run_after_the_end_of_its_period_or_beyond_its_attempts_violates_once() {
    let (world, entry, mut after) = at_period();
    world.job_ends(entry.incarnation(), true);
    stores(&world, &entry, &mut after, (true, 1));
    world.tells(P1, 4, OnceAnswer::Done);
    assert_eq!(violation(&world), "");
    world.job_begins(P2, (4, most(2)), 2, (entry.epoch, entry.incarnation()));
    assert!(violation(&world).contains("after its end"), "{}", violation(&world));

    let (world, entry, mut after) = at_period();
    stores(&world, &entry, &mut after, (false, 2));
    world.job_begins(P1, (4, most(1)), 2, (entry.epoch, entry.incarnation()));
    assert!(violation(&world).contains("has run 1 times"), "{}", violation(&world));
}
