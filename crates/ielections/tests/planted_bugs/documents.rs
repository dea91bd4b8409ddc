//! The document contract suite.

mod planted;

use ielections::testing::document_contract::*;
use planted::Planted;
use std::collections::BTreeSet;
use tokio::task::{LocalSet, spawn_local};

mod the_model_passes {
    ielections::document_contract_suite!(crate::ModelUnderTest::fresh());
}

mod without_a_bug_it_passes {
    use super::{Bug, Planted};
    ielections::document_contract_suite!(Planted::new(Bug::None));
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
    NothingIsWritten: a_batch_under_its_fence_is_written;
    EpochIgnored: a_fence_with_one_part_wrong_refuses a_record_that_is_claimed_again_has_another_fence;
    IncarnationIgnored: a_fence_with_one_part_wrong_refuses a_record_that_is_claimed_again_has_another_fence;
    RecordIgnored: batches_in_a_slot_never_led_are_refused batches_after_a_release_are_refused
        batches_after_a_take_over_are_refused batches_in_flight_of_a_deposed_leader_are_refused
        batches_of_a_leader_after_its_deposition_are_refused;
    AfterIgnored: a_fence_with_one_part_wrong_refuses a_batch_that_arrives_twice_is_applied_once
        the_second_batch_after_the_same_one_is_refused a_batch_is_applied_only_after_the_one_before
        one_of_many_concurrent_batches_is_applied a_dropped_batch_is_applied_whole_or_not_at_all;
    AfterMayBeOlder: a_batch_that_arrives_twice_is_applied_once
        the_second_batch_after_the_same_one_is_refused;
    AfterMayBeNewer: a_batch_is_applied_only_after_the_one_before;
    FenceOfFirstVersionOnly: a_fence_stands_through_renewals renewals_and_batches_do_not_refuse_each_other;
    FenceOutlivesRelease: batches_after_a_release_are_refused the_count_survives_closing_and_reopening;
    PutConditionIgnored: a_put_applies_exactly_if_its_condition_holds one_failing_condition_refuses_the_batch
        a_document_that_was_put_again_has_another_version;
    DeleteConditionIgnored: a_delete_applies_exactly_if_its_condition_holds
        one_failing_condition_refuses_the_batch;
    VersionOfAbsentIsNone: a_put_applies_exactly_if_its_condition_holds
        a_delete_applies_exactly_if_its_condition_holds;
    AbsentIsNeverPut: a_put_applies_exactly_if_its_condition_holds;
    LastConditionIgnored: one_failing_condition_refuses_the_batch;
    HalfApplied: one_failing_condition_refuses_the_batch;
    RefusedCounts: a_fence_with_one_part_wrong_refuses one_failing_condition_refuses_the_batch;
    VersionStays: a_document_has_the_version_of_its_batch;
    VersionOfDocument: a_document_has_the_version_of_its_batch
        a_document_that_was_put_again_has_another_version;
    EmptyDoesNotCount: an_empty_batch_counts;
    CountIsShared: every_slot_has_a_count_of_its_own documents_of_different_keys_are_independent;
    CountStartsAnewAtRelease: the_count_survives_release_and_take_over
        writes_of_records_leave_documents_alone;
    CountStartsAnewAtTakeOver: the_count_survives_release_and_take_over
        writes_of_records_leave_documents_alone;
    RenewalCounts: writes_of_records_leave_documents_alone a_fence_stands_through_renewals;
    ReleaseDeletes: writes_of_records_leave_documents_alone batches_after_a_release_are_refused;
    BatchRenews: batches_leave_the_record_alone renewals_and_batches_do_not_refuse_each_other;
    CloseForgets: the_count_survives_closing_and_reopening;
    CloseDoesNothing: a_closed_handle_refuses_documents_for_good;
    IdEndsAtZero: documents_of_any_id_are_independent;
    IdCut: documents_of_any_id_are_independent;
    BodyEndsAtZero: bodies_of_any_bytes_are_kept;
    BodyCut: bodies_of_any_bytes_are_kept batches_as_large_as_the_limits_are_applied;
    BodyOfNothingIsNone: bodies_of_any_bytes_are_kept;
    KeyRunsIntoId: documents_of_different_keys_are_independent;
    LimitsIgnored: batches_beyond_a_limit_are_refused_for_good;
    LimitsAreLess: batches_as_large_as_the_limits_are_applied;
    ScanUnsorted: a_scan_keeps_to_its_prefix a_scan_takes_more_documents_than_a_page;
    ScanToPrefixAndFf: a_scan_keeps_to_its_prefix;
    ScanFromAfter: a_scan_continues_after_a_document;
    ScanEndsWithPage: a_scan_takes_more_documents_than_a_page;
    ScanSkipsBetweenPages: a_scan_takes_more_documents_than_a_page a_scan_continues_after_a_document;
    ScanByPosition: a_scan_during_writes_shows_each_lasting_document_once;
    ScanShowsDeleted: a_scan_does_not_show_deleted_documents;
    ReadIsStale: scans_show_every_counted_batch a_batch_under_its_fence_is_written;
    ChecksThenWrites: one_of_many_concurrent_batches_is_applied eight_writers_lose_no_batch
        batches_of_a_leader_after_its_deposition_are_refused;
    WritesInTwoSteps: a_dropped_batch_is_applied_whole_or_not_at_all scans_show_every_counted_batch;
    SaysWritten: eight_writers_lose_no_batch a_batch_that_arrives_twice_is_applied_once;
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
        include_str!("../../src/testing/document_contract/conditions.rs"),
        include_str!("../../src/testing/document_contract/contention.rs"),
        include_str!("../../src/testing/document_contract/fences.rs"),
        include_str!("../../src/testing/document_contract/scans.rs"),
    ];
    let written: usize = sources.iter().map(|source| source.matches("\npub async fn ").count()).sum();
    assert_eq!(written, CASES.len());
}

/// The bug of a storage, described by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bug {
    None,
    NothingIsWritten,
    EpochIgnored,
    IncarnationIgnored,
    /// Only the count is compared.
    RecordIgnored,
    AfterIgnored,
    AfterMayBeOlder,
    AfterMayBeNewer,
    FenceOfFirstVersionOnly,
    FenceOutlivesRelease,
    PutConditionIgnored,
    DeleteConditionIgnored,
    /// A missing document counts as one of version 0.
    VersionOfAbsentIsNone,
    /// A document that was deleted is not absent.
    AbsentIsNeverPut,
    LastConditionIgnored,
    /// The writes before the failing condition are applied.
    HalfApplied,
    RefusedCounts,
    VersionStays,
    /// Each document counts its own puts.
    VersionOfDocument,
    EmptyDoesNotCount,
    CountIsShared,
    CountStartsAnewAtRelease,
    CountStartsAnewAtTakeOver,
    RenewalCounts,
    ReleaseDeletes,
    BatchRenews,
    CloseForgets,
    CloseDoesNothing,
    IdEndsAtZero,
    IdCut,
    BodyEndsAtZero,
    BodyCut,
    BodyOfNothingIsNone,
    KeyRunsIntoId,
    LimitsIgnored,
    LimitsAreLess,
    ScanUnsorted,
    ScanToPrefixAndFf,
    ScanFromAfter,
    ScanEndsWithPage,
    ScanSkipsBetweenPages,
    /// A page begins at an index, not after a document.
    ScanByPosition,
    ScanShowsDeleted,
    /// Other handles see the documents of the batch before.
    ReadIsStale,
    /// Other writes may come between the check and the write.
    ChecksThenWrites,
    /// Writes the first document, then the rest.
    WritesInTwoSteps,
    /// Answers a refused batch as written.
    SaysWritten,
}
