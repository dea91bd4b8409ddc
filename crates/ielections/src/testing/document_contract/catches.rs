//! The suite catches: each case is shown a storage with a bug that it must not pass, and the same one
//! without, which it must.

mod bug;
mod planted;

use super::*;
use crate::testing::{Model, contract::catches::Name};
use bug::Bug;
use planted::Planted;
use std::collections::BTreeSet;
use tokio::task::{LocalSet, spawn_local};

mod the_model_passes {
    use super::{Model, Name};
    crate::document_contract_suite!(Model::<Name>::new());
}

mod without_a_bug_it_passes {
    use super::{Bug, Planted};
    crate::document_contract_suite!(Planted::new(Bug::None));
}

/// A bug and the cases that must fail because of it.
macro_rules! catches {
    ($($bug:ident: $($case:ident)+;)*) => {
        /// The cases that are shown to fail.
        const SHOWN: &[&str] = &[$($(stringify!($case)),+),*];

        /// Every pair in which the case passed.
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
    RecordIgnored: nothing_is_written_where_nobody_led nothing_is_written_after_a_release
        nothing_is_written_after_a_take_over batches_of_a_deposed_leader_never_land
        a_deposed_leader_that_goes_on_writes_nothing;
    AfterIgnored: a_fence_with_one_part_wrong_refuses a_batch_that_arrives_twice_lands_once
        of_two_batches_after_the_same_one_lands a_batch_lands_only_after_the_one_before
        one_of_many_batches_at_once_lands a_dropped_batch_is_applied_whole_or_not_at_all;
    AfterMayBeOlder: a_batch_that_arrives_twice_lands_once of_two_batches_after_the_same_one_lands;
    AfterMayBeNewer: a_batch_lands_only_after_the_one_before;
    FenceOfFirstVersionOnly: a_fence_stands_through_renewals renewals_and_batches_do_not_refuse_each_other;
    FenceOutlivesRelease: nothing_is_written_after_a_release the_count_survives_closing_and_reopening;
    PutConditionIgnored: a_put_asks_for_what_its_condition_says one_condition_that_fails_keeps_the_batch_out
        a_document_that_was_put_again_has_another_version;
    DeleteConditionIgnored: a_delete_asks_for_what_its_condition_says one_condition_that_fails_keeps_the_batch_out;
    VersionOfAbsentIsNone: a_put_asks_for_what_its_condition_says a_delete_asks_for_what_its_condition_says;
    AbsentIsNeverPut: a_put_asks_for_what_its_condition_says;
    LastConditionIgnored: one_condition_that_fails_keeps_the_batch_out;
    HalfApplied: one_condition_that_fails_keeps_the_batch_out;
    RefusedCounts: a_fence_with_one_part_wrong_refuses one_condition_that_fails_keeps_the_batch_out;
    VersionStays: a_document_has_the_version_of_its_batch;
    VersionOfDocument: a_document_has_the_version_of_its_batch a_document_that_was_put_again_has_another_version;
    EmptyDoesNotCount: an_empty_batch_counts;
    CountIsShared: every_slot_has_a_count_of_its_own documents_of_different_keys_do_not_meet;
    CountStartsAnewAtRelease: the_count_survives_release_and_take_over writes_of_records_leave_documents_alone;
    CountStartsAnewAtTakeOver: the_count_survives_release_and_take_over writes_of_records_leave_documents_alone;
    RenewalCounts: writes_of_records_leave_documents_alone a_fence_stands_through_renewals;
    ReleaseDeletes: writes_of_records_leave_documents_alone nothing_is_written_after_a_release;
    BatchRenews: batches_leave_the_record_alone renewals_and_batches_do_not_refuse_each_other;
    CloseForgets: the_count_survives_closing_and_reopening;
    CloseDoesNothing: a_closed_handle_refuses_documents_for_good;
    IdEndsAtZero: documents_of_any_id_do_not_meet;
    IdCut: documents_of_any_id_do_not_meet;
    BodyEndsAtZero: bodies_of_any_bytes_are_kept;
    BodyCut: bodies_of_any_bytes_are_kept what_limits_allow_is_carried_whole;
    BodyOfNothingIsNone: bodies_of_any_bytes_are_kept;
    KeyRunsIntoId: documents_of_different_keys_do_not_meet;
    LimitsIgnored: what_is_beyond_a_limit_is_refused_for_good;
    LimitsAreLess: what_limits_allow_is_carried_whole;
    ScanUnsorted: a_scan_keeps_to_its_prefix a_scan_takes_more_documents_than_a_page;
    ScanToPrefixAndFf: a_scan_keeps_to_its_prefix;
    ScanFromAfter: a_scan_goes_on_behind_a_document;
    ScanEndsWithPage: a_scan_takes_more_documents_than_a_page;
    ScanSkipsBetweenPages: a_scan_takes_more_documents_than_a_page a_scan_goes_on_behind_a_document;
    ScanByPosition: a_scan_misses_nothing_that_stands_all_the_while;
    ScanShowsDeleted: a_scan_does_not_show_deleted_documents;
    ReadIsStale: what_was_counted_is_shown a_batch_under_its_fence_is_written;
    ChecksThenWrites: one_of_many_batches_at_once_lands eight_writers_lose_no_batch
        a_deposed_leader_that_goes_on_writes_nothing;
    WritesInTwoSteps: a_dropped_batch_is_applied_whole_or_not_at_all what_was_counted_is_shown;
    SaysWritten: eight_writers_lose_no_batch a_batch_that_arrives_twice_lands_once;
}

#[tokio::test]
async fn every_planted_bug_is_caught() {
    // All on this thread, so that the panics that we want are captured with the output of this test.
    assert_eq!(LocalSet::new().run_until(uncaught()).await, []);
}

#[test]
fn every_case_is_shown_to_fail() {
    let shown: BTreeSet<_> = SHOWN.iter().copied().collect();
    let cases: BTreeSet<_> = CASES.iter().copied().collect();
    assert_eq!(cases.difference(&shown).collect::<Vec<_>>(), [""; 0].iter().collect::<Vec<_>>());
    assert_eq!(cases.len(), CASES.len(), "a case is listed twice");
}

#[test]
fn every_case_that_is_written_is_in_the_list() {
    let sources = [
        include_str!("closing.rs"),
        include_str!("conditions.rs"),
        include_str!("contention.rs"),
        include_str!("counts.rs"),
        include_str!("dropping.rs"),
        include_str!("fences.rs"),
        include_str!("hostile.rs"),
        include_str!("late.rs"),
        include_str!("limits.rs"),
        include_str!("scans.rs"),
    ];
    let written: usize = sources.iter().map(|source| source.matches("\npub async fn ").count()).sum();
    assert_eq!(written, CASES.len());
}
