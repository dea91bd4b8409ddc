//! The document contract suite: one case for each thing that [`DocumentStorage`](crate::DocumentStorage)
//! promises, and one test per case.
//!
//! A storage that has documents has a [`StorageUnderTest`] already, for its leader records; one more line,
//! [`document_contract_suite!`](crate::document_contract_suite), runs this one. What a case writes through
//! one handle it reads through another, as two processes would. Each case takes the storage for itself.

mod calls;
mod closing;
mod conditions;
mod contention;
mod counts;
mod dropping;
mod fences;
mod hostile;
mod late;
mod limits;
mod scans;
mod stage;

pub use closing::*;
pub use conditions::*;
pub use contention::*;
pub use counts::*;
pub use dropping::*;
pub use fences::*;
pub use hostile::*;
pub use late::*;
pub use limits::*;
pub use scans::*;

pub use super::contract::{StorageUnderTest, bounded};

/// Makes one `#[tokio::test]` per case for the documents of a storage:
/// `document_contract_suite!(MyStorage::fresh())`, as
/// [`storage_contract_suite!`](crate::storage_contract_suite) does for its leader records.
#[macro_export]
macro_rules! document_contract_suite {
    ($factory:expr) => {
        $crate::document_contract_suite! { @cases tests $factory }
    };
    // The one list of cases: tests and names are both made from it.
    (@cases $($then:tt)*) => {
        $crate::document_contract_suite! {
            @$($then)*;
            a_batch_under_its_fence_is_written
            a_fence_with_one_part_wrong_refuses
            a_fence_stands_through_renewals
            nothing_is_written_where_nobody_led
            nothing_is_written_after_a_release
            nothing_is_written_after_a_take_over
            a_record_that_is_claimed_again_has_another_fence
            a_batch_that_arrives_twice_lands_once
            of_two_batches_after_the_same_one_lands
            a_batch_lands_only_after_the_one_before
            batches_of_a_deposed_leader_never_land
            a_put_asks_for_what_its_condition_says
            a_delete_asks_for_what_its_condition_says
            one_condition_that_fails_keeps_the_batch_out
            a_document_has_the_version_of_its_batch
            a_document_that_was_put_again_has_another_version
            an_empty_batch_counts
            every_slot_has_a_count_of_its_own
            the_count_survives_release_and_take_over
            the_count_survives_closing_and_reopening
            writes_of_records_leave_documents_alone
            batches_leave_the_record_alone
            renewals_and_batches_do_not_refuse_each_other
            documents_of_any_id_do_not_meet
            bodies_of_any_bytes_are_kept
            documents_of_different_keys_do_not_meet
            what_limits_allow_is_carried_whole
            what_is_beyond_a_limit_is_refused_for_good
            a_scan_keeps_to_its_prefix
            a_scan_goes_on_behind_a_document
            a_scan_takes_more_documents_than_a_page
            a_scan_does_not_show_deleted_documents
            a_scan_misses_nothing_that_stands_all_the_while
            what_was_counted_is_shown
            one_of_many_batches_at_once_lands
            eight_writers_lose_no_batch
            a_deposed_leader_that_goes_on_writes_nothing
            a_dropped_batch_is_applied_whole_or_not_at_all
            a_closed_handle_refuses_documents_for_good
        }
    };
    (@tests $factory:expr; $($case:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let storage = $factory;
                $crate::testing::document_contract::bounded(
                    $crate::testing::document_contract::$case(&storage)
                ).await;
            }
        )*
    };
    (@names; $($case:ident)*) => {
        &[$(stringify!($case)),*]
    };
}

/// The names of all cases, as the macro makes them.
pub const CASES: &[&str] = document_contract_suite!(@cases names);

#[cfg(test)]
mod catches;
