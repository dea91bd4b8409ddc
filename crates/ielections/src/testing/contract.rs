//! The storage contract suite: one case and one test for each promise of [`TtlStorage`]. A new storage implements
//! [`StorageUnderTest`] and writes one line, [`storage_contract_suite!`](crate::storage_contract_suite). A case writes
//! through one handle and reads through another, as two processes would. Time is real.

pub(in crate::testing) mod claims;
pub(in crate::testing) mod contention;
mod scans;
pub(in crate::testing) mod scene;

pub use claims::*;
pub use contention::*;
pub use scans::*;

use super::lateness::{Explained, decide, too_late};
use crate::{Key, TtlStorage};
use async_trait::async_trait;
use futures_util::future::{Either, select};
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::runtime::Builder;
use vvm_clock::{Clock, SystemClock};

/// A storage that the suite can open any number of times.
#[async_trait]
pub trait StorageUnderTest: Send + Sync + 'static {
    /// Its keys.
    type Key: Key;

    /// Opens another handle on the same data, as another process would. Also reopens it after a handle was closed.
    async fn open(&self) -> Arc<dyn TtlStorage<Self::Key>>;

    /// The key of this name. Different names are different keys, for any bytes.
    fn key(&self, name: &[u8]) -> Self::Key;
}

/// Makes one test per case: `storage_contract_suite!(MyStorage::fresh())`. The expression is evaluated once per attempt
/// on a tokio runtime, may `await`, and makes a new [`StorageUnderTest`]. To run a suite alone, give it a module.
#[macro_export]
macro_rules! storage_contract_suite {
    ($factory:expr) => {
        $crate::storage_contract_suite! { @cases tests $factory }
    };
    (@cases $($then:tt)*) => {
        $crate::storage_contract_suite! {
            @$($then)*; contract:
            a_claim_takes_a_slot_that_was_never_led
            a_claim_takes_a_released_slot
            a_claim_of_a_held_slot_is_refused
            a_claim_that_names_a_wrong_last_epoch_is_refused
            a_late_claim_is_refused_after_the_release
            a_take_over_replaces_the_observed_version
            a_take_over_of_another_version_is_refused
            a_renewal_replaces_the_held_version
            a_renewal_of_another_version_is_refused
            a_renewal_is_not_applied_twice
            a_release_applies_to_any_version
            a_release_of_another_incarnation_or_epoch_is_refused
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
            a_record_stands_until_a_write_replaces_it
            a_proven_age_is_never_larger_than_the_time_since_the_write
            a_refused_write_proves_no_more_age_than_a_read
            keys_of_any_bytes_are_independent
            keys_that_begin_alike_are_independent
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
    (@tests $factory:expr; $suite:ident: $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                $crate::testing::contract::run(async || $factory, async |storage| {
                    $crate::testing::$suite::$case(&storage).await;
                });
            }
        )*
    };
    (@names; $suite:ident: $($case:ident)*) => {
        &[$(stringify!($case)),*]
    };
}

/// The names of all cases, as the macro makes them.
pub const CASES: &[&str] = storage_contract_suite!(@cases names);

/// How long a case may take. The longest one writes for 30 s.
pub const LONGEST_CASE: Duration = Duration::from_secs(300);

/// The least lateness that explains a case that was not done in time, or a call without an answer.
const EXPLAINS: Duration = Duration::from_millis(100);

/// Runs a case on a new storage and runtime. Panics if it fails, or takes [`LONGEST_CASE`] on a punctual machine.
pub fn run<S: StorageUnderTest>(factory: impl AsyncFn() -> S, case: impl AsyncFn(S)) {
    decide(Explained { by: EXPLAINS, is_any: false }, || {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let storage = factory().await;
            let clock = SystemClock::start().unwrap();
            match select(pin!(case(storage)), clock.sleep(LONGEST_CASE)).await {
                Either::Left(((), _)) => {}
                Either::Right(_) => too_late(format!("not done after {LONGEST_CASE:?}")),
            }
        });
    });
}
