//! The document contract suite: one case and one test for each promise of [`DocumentStorage`](crate::DocumentStorage).
//! The storage implements [`StorageUnderTest`], and writes one line:
//! [`document_contract_suite!`](crate::document_contract_suite).

mod conditions;
mod contention;
mod fences;
mod scans;
mod stage;

pub use conditions::*;
pub use contention::*;
pub use fences::*;
pub use scans::*;

pub use super::contract::StorageUnderTest;

/// Makes one `#[tokio::test]` per case for the documents of a storage: `document_contract_suite!(MyStorage::fresh())`,
/// as [`storage_contract_suite!`](crate::storage_contract_suite) does for its leader records.
#[macro_export]
macro_rules! document_contract_suite {
    ($factory:expr) => {
        $crate::document_contract_suite! { @cases tests $factory }
    };
    (@cases $($then:tt)*) => {
        $crate::storage_contract_suite! {
            @$($then)*; document_contract:
            a_batch_under_its_fence_is_written
            a_fence_with_one_part_wrong_refuses
            a_fence_stands_through_renewals
            batches_in_a_slot_never_led_are_refused
            batches_after_a_release_are_refused
            batches_after_a_take_over_are_refused
            a_record_that_is_claimed_again_has_another_fence
            a_batch_that_arrives_twice_is_applied_once
            the_second_batch_after_the_same_one_is_refused
            a_batch_is_applied_only_after_the_one_before
            batches_in_flight_of_a_deposed_leader_are_refused
            a_put_applies_exactly_if_its_condition_holds
            a_delete_applies_exactly_if_its_condition_holds
            one_failing_condition_refuses_the_batch
            a_document_has_the_version_of_its_batch
            a_document_that_was_put_again_has_another_version
            an_empty_batch_counts
            every_slot_has_a_count_of_its_own
            the_count_survives_release_and_take_over
            the_count_survives_closing_and_reopening
            writes_of_records_leave_documents_alone
            batches_leave_the_record_alone
            renewals_and_batches_do_not_refuse_each_other
            documents_of_any_id_are_independent
            bodies_of_any_bytes_are_kept
            documents_of_different_keys_are_independent
            batches_as_large_as_the_limits_are_applied
            batches_beyond_a_limit_are_refused_for_good
            a_scan_keeps_to_its_prefix
            a_scan_continues_after_a_document
            a_scan_takes_more_documents_than_a_page
            a_scan_does_not_show_deleted_documents
            a_scan_during_writes_shows_each_lasting_document_once
            scans_show_every_counted_batch
            one_of_many_concurrent_batches_is_applied
            eight_writers_lose_no_batch
            batches_of_a_leader_after_its_deposition_are_refused
            a_dropped_batch_is_applied_whole_or_not_at_all
            a_closed_handle_refuses_documents_for_good
        }
    };
}

/// The names of all cases, as the macro makes them.
pub const CASES: &[&str] = document_contract_suite!(@cases names);
