//! The storage contract suite.

mod planted;

use ielections::testing::contract::*;
use planted::Planted;
use std::collections::BTreeSet;
use tokio::task::{LocalSet, spawn_local};

mod the_model_passes {
    ielections::storage_contract_suite!(crate::ModelUnderTest::fresh());
}

mod without_a_bug_it_passes {
    use super::{Bug, Planted};
    ielections::storage_contract_suite!(Planted::new(Bug::None));
}

/// A bug and the cases that must fail because of it.
macro_rules! catches {
    ($($bug:ident: $($case:ident)+;)*) => {
        /// The cases that fail because of some bug.
        const SHOWN: &[&str] = &[$($(stringify!($case)),+),*];

        /// Runs every pair. Returns those in which the case passed.
        async fn uncaught() -> Vec<(Bug, &'static str)> {
            let mut trials = Vec::new();
            $($(
                let storage = Planted::new(Bug::$bug);
                let trial = spawn_local(async move { bounded($case(&storage)).await });
                trials.push((Bug::$bug, stringify!($case), trial));
            )+)*
            let mut uncaught = Vec::new();
            for (bug, case, trial) in trials {
                if trial.await.is_ok() {
                    uncaught.push((bug, case));
                }
            }
            uncaught
        }
    };
}

catches! {
    ClaimNeedsEpoch: a_claim_takes_a_slot_that_was_never_led;
    ClaimNeedsFreshSlot: a_claim_takes_a_released_slot;
    ClaimOverwrites: a_claim_of_a_held_slot_is_refused a_record_stands_until_a_write_replaces_it;
    ClaimIgnoresEpoch: a_claim_that_names_a_wrong_last_epoch_is_refused
        a_late_claim_is_refused_after_the_release;
    ClaimLies: a_claim_of_a_held_slot_is_refused a_claim_that_names_a_wrong_last_epoch_is_refused
        a_late_claim_is_refused_after_the_release a_take_over_of_another_version_is_refused
        one_of_many_claims_wins
        one_of_many_take_overs_wins_each_epoch;
    TakeOverByIncarnation: a_take_over_of_another_version_is_refused;
    TakeOverIgnoresEpoch: a_take_over_of_another_version_is_refused;
    TakeOverOfFirstVersionOnly: a_take_over_replaces_the_observed_version;
    SwapByIncarnation: a_renewal_of_another_version_is_refused a_renewal_is_not_applied_twice
        eight_writers_lose_no_renewal;
    SwapByWrite: a_renewal_of_another_version_is_refused;
    SwapIgnoresEpoch: a_renewal_of_another_version_is_refused;
    SwapOnlyOnce: a_renewal_replaces_the_held_version;
    SwapLies: a_renewal_of_another_version_is_refused a_renewal_is_not_applied_twice
        eight_writers_lose_no_renewal;
    SwapDenies: eight_writers_lose_no_renewal a_renewal_replaces_the_held_version;
    ReleaseOfFirstVersionOnly: a_release_applies_to_any_version;
    ReleaseByEpoch: a_release_of_another_incarnation_or_epoch_is_refused;
    ReleaseByIncarnation: a_release_of_another_incarnation_or_epoch_is_refused;
    ReleaseLies: a_release_of_another_incarnation_or_epoch_is_refused a_release_of_a_vacant_slot_is_refused;
    ReleaseForgetsEpoch: epochs_survive_release a_claim_takes_a_released_slot
        a_late_claim_is_refused_after_the_release the_smallest_and_the_largest_epoch_are_kept;
    RefusalShowsNothing: a_claim_of_a_held_slot_is_refused a_take_over_of_another_version_is_refused
        a_renewal_of_another_version_is_refused a_release_of_another_incarnation_or_epoch_is_refused
        a_refused_write_proves_no_more_age_than_a_read;
    TtlInMilliseconds: every_part_of_a_record_is_read_as_it_was_written;
    WriteAsI32: every_part_of_a_record_is_read_as_it_was_written;
    SwapKeepsHolder: holders_of_any_bytes_are_kept;
    HolderEndsAtZero: holders_of_any_bytes_are_kept;
    HolderCut: holders_of_any_bytes_are_kept;
    EpochAsU32: the_smallest_and_the_largest_epoch_are_kept;
    ReadIsStale: a_read_sees_every_write_that_was_answered_before_it;
    ScanSorts: a_scan_keeps_the_order_of_its_keys;
    ScanSkipsVacant: a_scan_shows_slots_that_were_never_led;
    ScanStopsAfterBatch: a_scan_takes_more_keys_than_a_batch;
    Expires: a_record_stands_until_a_write_replaces_it epochs_survive_expiry;
    ExpiresAndForgets: epochs_survive_expiry a_record_stands_until_a_write_replaces_it;
    AgeIsGuessed: a_proven_age_is_never_larger_than_the_time_since_the_write
        a_refused_write_proves_no_more_age_than_a_read;
    AgeIsOfTheClaim: a_proven_age_is_never_larger_than_the_time_since_the_write;
    RefusalAgeIsGuessed: a_refused_write_proves_no_more_age_than_a_read;
    KeyEndsAtZero: keys_of_any_bytes_are_independent;
    KeyIgnoresCase: keys_of_any_bytes_are_independent;
    KeyCut: a_long_key_is_carried_whole_or_refused_for_good;
    KeyMeetsFolder: keys_that_begin_alike_are_independent;
    LimitsAreIgnored: a_long_key_is_carried_whole_or_refused_for_good;
    ChecksThenWrites: one_of_many_claims_wins one_of_many_take_overs_wins_each_epoch
        eight_writers_lose_no_renewal;
    WritesInTwoSteps: a_dropped_write_is_applied_whole_or_not_at_all;
    CloseDoesNothing: a_closed_handle_refuses_everything_for_good;
    CloseForgets: epochs_survive_closing_and_reopening;
    CloseClosesAll: closing_one_handle_leaves_the_others_open;
}

#[tokio::test]
async fn every_planted_bug_is_caught() {
    // All on this thread, so that the expected panics are captured with the output of this test.
    assert_eq!(LocalSet::new().run_until(uncaught()).await, []);
}

#[test]
fn every_case_fails_for_some_planted_bug() {
    let shown: BTreeSet<_> = SHOWN.iter().copied().collect();
    let cases: BTreeSet<_> = CASES.iter().copied().collect();
    assert_eq!(cases.difference(&shown).collect::<Vec<_>>(), [""; 0].iter().collect::<Vec<_>>());
    assert_eq!(cases.len(), CASES.len(), "a case is listed twice");
}

#[test]
fn every_case_is_in_the_list() {
    let sources = [
        include_str!("../../src/testing/contract/claims.rs"),
        include_str!("../../src/testing/contract/contention.rs"),
        include_str!("../../src/testing/contract/scans.rs"),
    ];
    let written: usize = sources.iter().map(|source| source.matches("\npub async fn ").count()).sum();
    assert_eq!(written, CASES.len());
}

/// The bug of a storage, described by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bug {
    None,
    ClaimNeedsEpoch,
    ClaimNeedsFreshSlot,
    ClaimOverwrites,
    ClaimIgnoresEpoch,
    ClaimLies,
    TakeOverByIncarnation,
    TakeOverIgnoresEpoch,
    TakeOverOfFirstVersionOnly,
    SwapByIncarnation,
    SwapByWrite,
    SwapIgnoresEpoch,
    SwapOnlyOnce,
    SwapLies,
    /// Answers one applied swap in ten as not applied.
    SwapDenies,
    ReleaseOfFirstVersionOnly,
    ReleaseByEpoch,
    ReleaseByIncarnation,
    ReleaseLies,
    ReleaseForgetsEpoch,
    RefusalShowsNothing,
    TtlInMilliseconds,
    WriteAsI32,
    SwapKeepsHolder,
    HolderEndsAtZero,
    HolderCut,
    EpochAsU32,
    /// Other handles than the writer's see the state before its last write.
    ReadIsStale,
    ScanSorts,
    ScanSkipsVacant,
    ScanStopsAfterBatch,
    Expires,
    ExpiresAndForgets,
    AgeIsGuessed,
    /// A renewal does not start the age anew.
    AgeIsOfTheClaim,
    RefusalAgeIsGuessed,
    KeyEndsAtZero,
    KeyIgnoresCase,
    KeyCut,
    /// A key that fills its folder's name meets the folder of longer keys.
    KeyMeetsFolder,
    LimitsAreIgnored,
    /// Other writes may come between the check and the write.
    ChecksThenWrites,
    /// Writes the holder first, then the rest.
    WritesInTwoSteps,
    CloseDoesNothing,
    CloseForgets,
    CloseClosesAll,
}
