//! Campaigns, leases and releases of several candidates in a simulated [world](crate::world).

use crate::{
    tape::Tape,
    world::{Counts, World},
};
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::cell::Cell;

/// I1, I3, I5, I6, I7 and I10, with clocks that run up to 10 % fast or slow, late and lost calls, stalls,
/// crashes and kills, and guardians that release after a death, also late and twice. Then, without faults, as
/// many candidates as possible must lead.
#[test]
fn candidates_under_faults_never_lead_at_once_and_lead_again_afterwards() {
    let met = Cell::new(Counts::default());
    let mut runner = TestRunner::new(Config {
        cases: 500,
        max_shrink_iters: 300,
        failure_persistence: None,
        ..Config::default()
    });
    let outcome = runner.run(&Tape::up_to(12_000), |tape| {
        let counts = World::begin(tape).run().map_err(TestCaseError::fail)?;
        let mut sum = met.get();
        sum += counts;
        met.set(sum);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    // Without faults the test would show nothing.
    let met = met.get();
    let each = [
        met.won,
        met.taken_over,
        met.renewed,
        met.lost,
        met.killed,
        met.landed_late,
        met.own_renewed,
        met.abandoned,
        met.hinted,
        met.released_by_guardian,
        met.refused_to_guardian,
    ];
    assert!(each.iter().all(|count| *count >= 30), "{met:?}");
}
