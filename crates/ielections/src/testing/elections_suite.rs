//! The elections suite: tests elections on a storage, from the claim to the next leader. A storage implements
//! [`ElectionsTestSuite`] and writes one line, [`elections_test_suite!`](crate::elections_test_suite). Each case
//! simulates several processes, each with its own handle, elections and deadman, which records instead of killing.

mod acquiring;
mod fenced;
mod renewing;
mod running;
mod scene;

pub use acquiring::*;
pub use fenced::*;
pub use renewing::*;
pub use running::*;
pub use scene::{Process, Scene};

use super::lateness::{Explained, decide, once, too_late};
use crate::{Ttl, testing::contract::StorageUnderTest};
use futures_util::future::{Either, select};
use std::{
    cell::Cell,
    pin::pin,
    sync::{Arc, OnceLock},
};
use testing_time::MockClock;
use tokio::runtime::{Builder, Runtime};

/// A storage under test, with the TTL and the clock of its test.
///
/// Time is real, or that of a mock clock, which jumps to the next timer whenever no task can run. Bounds that
/// keep leaders apart are exact on both. Bounds of speed have some slack in real time.
pub trait ElectionsTestSuite: StorageUnderTest {
    /// The TTL of most leaderships of the suite; some have twice as much. At least
    /// [`Limits::min_ttl`](crate::Limits::min_ttl). In real time, use four seconds: a case that fails while the
    /// machine is late by a twentieth of it is inconclusive.
    fn ttl(&self) -> Ttl;

    /// The storage's clock, if it is a mock. Only if nothing else is waited for: time jumps whenever no task can run.
    fn mock_clock(&self) -> Option<MockClock> {
        None
    }
}

/// Makes one test per case for a storage: `elections_test_suite!(MyStorage::fresh())`, as
/// [`storage_contract_suite!`](crate::storage_contract_suite) does.
#[macro_export]
macro_rules! elections_test_suite {
    ($factory:expr) => {
        $crate::elections_test_suite! { @cases tests $factory }
    };
    (@cases $($then:tt)*) => {
        $crate::elections_test_suite! {
            @$($then)*;
            a_free_slot_is_led_at_once
            a_second_candidate_waits_and_wins_after_the_release
            a_candidate_with_zero_timeout_reads_once
            a_candidate_gives_up_in_time
            a_candidacy_for_no_slot_is_refused
            a_ttl_too_short_for_the_storage_is_refused
            a_dead_leader_is_followed_after_its_ttl
            an_observer_waits_the_ttl_of_the_writer
            a_leader_that_renews_is_never_followed
            one_of_many_candidates_follows
            a_try_gives_up_on_a_live_leader
            a_try_takes_over_from_a_dead_leader
            a_try_gives_up_on_an_unusable_storage
            a_try_continues_after_a_short_outage
            epochs_rise_over_release_expiry_and_reopening
            eight_leaders_in_turn_have_rising_epochs
            the_same_holder_twice_is_two_leaders_in_turn
            as_many_lead_as_there_are_slots
            leaderships_of_one_process_end_on_their_own
            closing_one_handle_disturbs_no_other
            a_claim_with_lost_answer_is_confirmed_by_read_back
            a_claim_applied_late_is_confirmed_by_the_next_attempt
            a_claim_that_arrives_after_the_release_is_refused
            a_take_over_with_lost_answer_is_confirmed_by_read_back
            a_claim_confirmed_late_is_renewed_before_it_counts
            an_abandoned_claim_is_deleted
            claims_that_are_not_applied_are_tried_again
            a_storage_that_refuses_for_good_ends_a_campaign
            acquisition_without_a_deadman_fails
            a_renewal_moves_the_deadline_to_its_send
            a_leadership_is_renewed_for_as_long_as_it_is_held
            a_renewal_with_lost_answer_is_confirmed_by_read_back
            a_renewal_applied_late_is_confirmed_by_the_next_attempt
            a_renewal_answered_after_its_timeout_is_confirmed_by_the_next_attempt
            a_renewal_that_arrives_after_the_release_is_refused
            a_lost_renewal_is_not_confirmed_by_the_record_before_it
            a_short_outage_costs_no_leadership
            a_hung_storage_costs_the_leadership_in_time
            work_that_does_not_stop_is_ended_at_the_deadline
            a_stolen_record_is_a_loss_at_once
            a_vanished_record_is_a_loss_at_once
            a_storage_that_was_replaced_is_a_loss_at_once
            a_standing_shows_how_much_time_is_left
            a_standing_at_risk_is_a_warning
            work_that_ends_hands_back
            run_cancels_the_work_and_waits_for_it
            a_loss_cancels_the_work_at_once
            a_release_leaves_only_the_epoch
            a_release_with_lost_answer_is_confirmed
            a_release_without_the_storage_disarms
            a_release_waits_for_the_renewal_in_flight
            a_dropped_leadership_stays_armed_and_is_not_renewed
            a_dropped_candidacy_acquires_nothing
            a_candidacy_dropped_during_its_claim_leaves_no_record
            a_candidacy_dropped_at_its_success_leaves_no_record
            cleanup_ends_and_refuses_campaigns
            cleanup_waits_until_work_has_stopped
            cleanup_may_be_called_again
            cleanup_leaves_what_was_dropped
        }
    };
    (@tests $factory:expr; $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                $crate::testing::elections_suite::run(async || $factory, async |scene| {
                    $crate::testing::elections_suite::$case(&scene).await;
                });
            }
        )*
    };
    (@names; $($case:ident)*) => {
        &[$(stringify!($case)),*]
    };
}

/// The names of all cases, as the macro makes them.
pub const CASES: &[&str] = elections_test_suite!(@cases names);

/// How many TTLs a case may take. The longest one leads eight times in turn.
const LONGEST_CASE: u32 = 60;

/// The part of a TTL by which a late machine explains a failure: a call may take a tenth, a write wait for two syncs.
const EXPLAINS: u32 = 20;

/// Runs one case on a new storage and a new runtime. In real time, an attempt that fails on a machine that was late
/// meanwhile is inconclusive, and is repeated.
///
/// # Panics
/// If the case fails or does not end.
pub fn run<Suite: ElectionsTestSuite>(factory: impl AsyncFn() -> Suite, case: impl AsyncFn(Scene<Suite>)) {
    // The first storage tells the TTL, and whether time is real. It is taken by the first attempt.
    let (runtime, mock) = new_runtime();
    let first = runtime.block_on(factory());
    let (ttl, is_real) = (first.ttl().get(), first.mock_clock().is_none());
    let first = Cell::new(Some((runtime, mock, first)));
    let attempt = || {
        let (runtime, mock, suite) = first.take().unwrap_or_else(|| {
            let (runtime, mock) = new_runtime();
            let suite = runtime.block_on(factory());
            (runtime, mock, suite)
        });
        runtime.block_on(async {
            let scene = Scene::on(suite);
            // Measured from here, since the factory may wait for a server.
            if let Some(clock) = scene.suite.mock_clock() {
                mock.set(clock).unwrap();
            }
            let (clock, longest) = (Arc::clone(&scene.clock), ttl * LONGEST_CASE);
            match select(pin!(case(scene)), clock.sleep(longest)).await {
                Either::Left(((), _)) => {}
                Either::Right(_) => too_late(format!("not done after {longest:?}")),
            }
        });
    };
    if is_real { decide(Explained { by: ttl / EXPLAINS, is_any: true }, attempt) } else { once(attempt) }
}

/// A runtime that advances the mock clock, once it is set, whenever no task can run.
fn new_runtime() -> (Runtime, Arc<OnceLock<MockClock>>) {
    let mock = Arc::new(OnceLock::<MockClock>::new());
    let idle = Arc::clone(&mock);
    let runtime = Builder::new_current_thread()
        .enable_all()
        .on_thread_park(move || {
            if let Some(clock) = idle.get() {
                clock.advance_to_next();
            }
        })
        .build()
        .unwrap();
    (runtime, mock)
}
