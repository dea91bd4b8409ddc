//! The storage contract suite: one case for each thing that [`TtlStorage`] promises, and one test per case.
//!
//! A new storage implements [`StorageUnderTest`] and writes one line,
//! [`storage_contract_suite!`](crate::storage_contract_suite). What a case writes through one handle it reads
//! through another, as two processes would. Time is real: what must not end early is given the time to.
//!
//! Each case takes the storage for itself: the factory makes a fresh one for each.

#[cfg(test)]
pub(in crate::testing) mod catches;
mod claims;
mod closing;
mod contention;
mod dropping;
mod epochs;
pub(in crate::testing) mod hostile;
mod never_early;
mod reads;
mod releases;
mod renewals;
mod scans;
pub(in crate::testing) mod scene;
mod settling;

pub use claims::*;
pub use closing::*;
pub use contention::*;
pub use dropping::*;
pub use epochs::*;
pub use hostile::*;
pub use never_early::*;
pub use reads::*;
pub use releases::*;
pub use renewals::*;
pub use scans::*;

use crate::{Key, TtlStorage};
use async_trait::async_trait;
use futures_util::future::{Either, select};
use std::{pin::pin, sync::Arc, time::Duration};
use vvm_clock::{Clock, SystemClock};

/// A storage that the suite can open as often as it likes.
#[async_trait]
pub trait StorageUnderTest: Send + Sync + 'static {
    /// Its keys.
    type Key: Key;

    /// A handle of its own on the same data, as another process would have. After a handle was closed, this
    /// is how the suite opens the storage again.
    async fn open(&self) -> Arc<dyn TtlStorage<Self::Key>>;

    /// The key of this name. Different names are different keys, whatever bytes they have.
    fn key(&self, name: &[u8]) -> Self::Key;
}

/// Makes one `#[tokio::test]` per case for a storage: `storage_contract_suite!(MyStorage::fresh())`.
///
/// The expression is evaluated once in each test, may `await`, and gives a fresh [`StorageUnderTest`]. The
/// crate that uses it needs `tokio` with `macros` and `rt-multi-thread`. A suite in a module of its own can
/// be run alone.
#[macro_export]
macro_rules! storage_contract_suite {
    ($factory:expr) => {
        $crate::storage_contract_suite! { @cases tests $factory }
    };
    // The one list of cases: tests and names are both made from it.
    (@cases $($then:tt)*) => {
        $crate::storage_contract_suite! {
            @$($then)*;
            a_claim_takes_a_slot_that_was_never_led
            a_claim_takes_a_released_slot
            a_claim_of_a_held_slot_is_refused
            a_claim_that_names_a_wrong_last_epoch_is_refused
            a_ghost_of_a_claim_is_refused_after_its_release
            a_take_over_replaces_what_was_observed
            a_take_over_of_anything_else_is_refused
            a_renewal_replaces_what_is_held
            a_renewal_of_anything_else_is_refused
            a_renewal_does_not_land_twice
            a_release_vacates_whatever_the_version
            a_release_by_anybody_else_is_refused
            a_release_of_a_vacant_slot_is_refused
            every_part_of_a_record_is_read_as_it_was_written
            a_read_sees_every_write_that_was_answered_before_it
            a_scan_keeps_the_order_of_its_keys
            a_scan_shows_slots_that_were_never_led
            a_scan_takes_more_keys_than_a_batch
            epochs_survive_release
            epochs_survive_expiry
            epochs_survive_closing_and_reopening
            the_smallest_and_the_largest_epoch_are_kept
            a_record_stands_until_somebody_replaces_it
            a_proven_age_is_never_larger_than_the_time_since_the_write
            a_refused_write_proves_no_more_age_than_a_read
            keys_of_any_bytes_do_not_meet
            a_long_key_is_carried_whole_or_refused_for_good
            holders_of_any_bytes_are_kept
            one_of_many_claims_wins
            one_of_many_take_overs_wins_each_epoch
            eight_writers_lose_no_renewal
            a_dropped_write_is_applied_whole_or_not_at_all
            a_closed_handle_refuses_everything_for_good
            closing_one_handle_leaves_the_others_open
        }
    };
    (@tests $factory:expr; $($case:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let storage = $factory;
                $crate::testing::contract::bounded($crate::testing::contract::$case(&storage)).await;
            }
        )*
    };
    (@names; $($case:ident)*) => {
        &[$(stringify!($case)),*]
    };
}

/// The names of all cases, as the macro makes them.
pub const CASES: &[&str] = storage_contract_suite!(@cases names);

/// The longest that a case may take. The longest one writes for 30 s.
pub const LONGEST_CASE: Duration = Duration::from_secs(300);

/// Runs a case to its end, and fails it where it hangs.
///
/// # Panics
/// When the case fails, or takes longer than [`LONGEST_CASE`].
pub async fn bounded(case: impl Future<Output = ()>) {
    let clock = SystemClock::start().unwrap();
    match select(pin!(case), clock.sleep(LONGEST_CASE)).await {
        Either::Left(((), _)) => {}
        Either::Right(_) => panic!("not done after {LONGEST_CASE:?}"),
    }
}
