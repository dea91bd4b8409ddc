//! What a storage may do wrong, and the public cases that have to fail on it.

/// Makes the enum of the faults, and the list of the cases that each has to fail.
macro_rules! faults {
    ($($fault:ident: $($case:ident)*;)*) => {
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum StorageFault {
            NoFault,
            /// No fault either: what a storage may say of its limits.
            NoLimits,
            $($fault,)*
        }

        pub(crate) const FAULTS: &[(StorageFault, &[&str])] =
            &[$((StorageFault::$fault, &[$(stringify!($case)),*]),)*];
    };
}

faults! {
    // Which write is applied.
    RefusesANewSlot: a_claim_takes_a_slot_that_was_never_led a_free_slot_is_led_at_once;
    RefusesAReleasedSlot: a_claim_takes_a_released_slot a_second_candidate_waits_and_wins_after_the_release;
    ClaimOverwrites: a_claim_of_a_held_slot_is_refused a_record_stands_until_a_write_replaces_it;
    ClaimIgnoresTheLastEpoch: a_claim_that_names_a_wrong_last_epoch_is_refused
        a_late_claim_is_refused_after_the_release a_claim_that_arrives_after_the_release_is_refused;
    ComparesIncarnations: a_take_over_of_another_version_is_refused a_renewal_of_another_version_is_refused
        a_renewal_is_not_applied_twice eight_writers_lose_no_renewal;
    ComparesNumbersOfWrites: a_renewal_of_another_version_is_refused;
    IgnoresTheEpoch: a_take_over_of_another_version_is_refused a_renewal_of_another_version_is_refused;
    AppliesToTheFirstVersionOnly: a_take_over_replaces_the_observed_version a_renewal_replaces_the_held_version
        a_release_applies_to_any_version;
    RenewsAReleasedSlot: a_renewal_that_arrives_after_the_release_is_refused
        a_renewal_of_another_version_is_refused;
    ReleaseComparesEpochs: a_release_of_another_incarnation_or_epoch_is_refused;
    ReleaseComparesIncarnations: a_release_of_another_incarnation_or_epoch_is_refused;
    ChecksBeforeItWrites: one_of_many_claims_wins one_of_many_take_overs_wins_each_epoch
        eight_writers_lose_no_renewal;
    WritesInTwoSteps: a_dropped_write_is_applied_whole_or_not_at_all;

    // What a write answers.
    AnswersARefusalAsApplied: a_claim_of_a_held_slot_is_refused a_take_over_of_another_version_is_refused
        a_renewal_of_another_version_is_refused a_release_of_a_vacant_slot_is_refused;
    LiesAboutARenewal: eight_writers_lose_no_renewal a_renewal_replaces_the_held_version;
    LosesRenewals: a_renewal_replaces_the_held_version a_leadership_is_renewed_for_as_long_as_it_is_held
        leaderships_of_one_process_end_on_their_own a_try_gives_up_on_a_live_leader
        a_leader_that_renews_is_never_followed;
    LosesReleases: a_release_leaves_only_the_epoch an_abandoned_claim_is_deleted
        acquisition_without_a_deadman_fails;
    RefusalGuessesAnAge: a_refused_write_proves_no_more_age_than_a_read;
    RefusalShowsAnEmptySlot: a_refused_write_proves_no_more_age_than_a_read
        a_claim_applied_late_is_confirmed_by_the_next_attempt
        a_renewal_applied_late_is_confirmed_by_the_next_attempt
        a_renewal_answered_after_its_timeout_is_confirmed_by_the_next_attempt;

    // What is stored.
    KeepsTheHolder: holders_of_any_bytes_are_kept;
    EndsAHolderAtZero: holders_of_any_bytes_are_kept;
    CutsTheHolder: holders_of_any_bytes_are_kept;
    HalvesTheTtl: every_part_of_a_record_is_read_as_it_was_written a_dead_leader_is_followed_after_its_ttl
        an_observer_waits_the_ttl_of_the_writer one_of_many_candidates_follows
        a_try_takes_over_from_a_dead_leader;
    RoundsTheTtl: every_part_of_a_record_is_read_as_it_was_written;
    CutsTheNumberOfWrites: every_part_of_a_record_is_read_as_it_was_written;
    CutsTheEpoch: the_smallest_and_the_largest_epoch_are_kept;
    ForgetsEpochs: epochs_survive_release a_claim_takes_a_released_slot a_late_claim_is_refused_after_the_release
        the_smallest_and_the_largest_epoch_are_kept;
    LetsRecordsExpire: a_record_stands_until_a_write_replaces_it epochs_survive_expiry;
    ForgetsAllWhenItCloses: epochs_survive_closing_and_reopening the_count_survives_closing_and_reopening;
    ClosesNothing: a_closed_handle_refuses_everything_for_good a_closed_handle_refuses_documents_for_good;
    ClosesAllHandles: closing_one_handle_leaves_the_others_open closing_one_handle_disturbs_no_other;

    EndsAKeyAtZero: keys_of_any_bytes_are_independent;
    IgnoresCaseOfKeys: keys_of_any_bytes_are_independent;
    CutsKeys: a_long_key_is_carried_whole_or_refused_for_good;
    NameOfAFolder: keys_that_begin_alike_are_independent;
    IgnoresItsLimitOfKeys: a_long_key_is_carried_whole_or_refused_for_good;

    // What a read shows.
    ReadsBehind: a_read_sees_every_write_that_was_answered_before_it;
    ReadsItsOwnWrites: a_read_sees_every_write_that_was_answered_before_it;
    ScansInItsOwnOrder: a_scan_keeps_the_order_of_its_keys;
    ScansOneBatch: a_scan_takes_more_keys_than_a_batch;
    ScansOneBatchOfSome: a_scan_takes_more_keys_than_a_batch;
    ScanSkipsNewSlots: a_scan_shows_slots_that_were_never_led;
    CountsAgesFromTheClaim: a_proven_age_is_never_larger_than_the_time_since_the_write;
    GuessesAges: a_proven_age_is_never_larger_than_the_time_since_the_write
        a_second_candidate_waits_and_wins_after_the_release a_leader_that_renews_is_never_followed
        one_of_many_candidates_follows the_same_holder_twice_is_two_leaders_in_turn
        as_many_lead_as_there_are_slots;

    // Which batch of documents is applied.
    LosesBatches: a_batch_under_its_fence_is_written;
    FenceIgnoresTheEpoch: a_fence_with_one_part_wrong_refuses a_record_that_is_claimed_again_has_another_fence;
    FenceIgnoresTheIncarnation: a_fence_with_one_part_wrong_refuses
        a_record_that_is_claimed_again_has_another_fence;
    FenceComparesTheCountAlone: batches_in_a_slot_never_led_are_refused batches_after_a_release_are_refused
        batches_after_a_take_over_are_refused batches_in_flight_of_a_deposed_leader_are_refused
        batches_of_a_leader_after_its_deposition_are_refused a_write_in_flight_of_a_paused_leader_is_refused
        the_first_batch_of_a_deposed_leader_shows_the_next_epoch;
    FenceIgnoresTheCount: a_fence_with_one_part_wrong_refuses a_batch_that_arrives_twice_is_applied_once
        the_second_batch_after_the_same_one_is_refused a_batch_is_applied_only_after_the_one_before
        one_of_many_concurrent_batches_is_applied a_dropped_batch_is_applied_whole_or_not_at_all;
    FenceTakesAnOlderCount: a_batch_that_arrives_twice_is_applied_once
        the_second_batch_after_the_same_one_is_refused;
    FenceTakesANewerCount: a_batch_is_applied_only_after_the_one_before;
    FenceNeedsTheFirstVersion: a_fence_stands_through_renewals renewals_and_batches_do_not_refuse_each_other;
    FenceOutlivesTheRelease: batches_after_a_release_are_refused the_count_survives_closing_and_reopening;
    IgnoresConditionsOfPuts: a_put_applies_exactly_if_its_condition_holds one_failing_condition_refuses_the_batch
        a_document_that_was_put_again_has_another_version;
    IgnoresConditionsOfDeletes: a_delete_applies_exactly_if_its_condition_holds
        one_failing_condition_refuses_the_batch;
    MissingHasVersionZero: a_put_applies_exactly_if_its_condition_holds
        a_delete_applies_exactly_if_its_condition_holds;
    DeletedIsNotAbsent: a_put_applies_exactly_if_its_condition_holds;
    IgnoresTheLastCondition: one_failing_condition_refuses_the_batch;
    RefusedBatchCounts: a_fence_with_one_part_wrong_refuses one_failing_condition_refuses_the_batch;
    AnswersARefusedBatchAsWritten: eight_writers_lose_no_batch a_batch_that_arrives_twice_is_applied_once;
    ChecksBeforeItWritesABatch: one_of_many_concurrent_batches_is_applied
        batches_of_a_leader_after_its_deposition_are_refused;
    WritesABatchInTwoSteps: scans_show_every_counted_batch;
    IgnoresLimitsOfBatches: batches_beyond_a_limit_are_refused_for_good;
    LimitOfBatchesIsLess: batches_as_large_as_the_limits_are_applied;

    // The count of batches, and what is stored of one.
    EmptyBatchCountsNothing: an_empty_batch_counts;
    SlotsShareOneCount: every_slot_has_a_count_of_its_own documents_of_different_keys_are_independent;
    CountStartsAnew: the_count_survives_release_and_take_over writes_of_records_leave_documents_alone
        the_next_leader_continues_with_the_documents;
    RenewalCountsAsABatch: writes_of_records_leave_documents_alone a_fence_stands_through_renewals;
    BatchRenewsTheRecord: batches_leave_the_record_alone renewals_and_batches_do_not_refuse_each_other
        renewals_go_on_beside_writes;
    ReleaseHidesDocuments: writes_of_records_leave_documents_alone batches_after_a_release_are_refused;
    DocumentKeepsItsVersion: a_document_has_the_version_of_its_batch
        a_document_that_was_put_again_has_another_version;
    EndsABodyAtZero: bodies_of_any_bytes_are_kept;
    CutsBodies: bodies_of_any_bytes_are_kept batches_as_large_as_the_limits_are_applied;
    EmptyBodyIsNoDocument: bodies_of_any_bytes_are_kept;
    EndsAnIdAtZero: documents_of_any_id_are_independent;
    CutsIds: documents_of_any_id_are_independent;

    // What a read of documents shows.
    ReadsABatchBehind: scans_show_every_counted_batch a_batch_under_its_fence_is_written;
    ScanEndsAtPrefixAnd255: a_scan_keeps_to_its_prefix;
    ScanBeginsWithTheOneBefore: a_scan_continues_after_a_document;
    ScanSkipsOneBetweenPages: a_scan_takes_more_documents_than_a_page a_scan_continues_after_a_document;
    ScanEndsWithItsFirstPage: a_scan_takes_more_documents_than_a_page;
    PageOfZeroIsEmpty: a_scan_continues_after_a_document;
    PageBeginsAtAnIndex: a_scan_during_writes_shows_each_lasting_document_once;
    PageIsUnsorted: a_scan_keeps_to_its_prefix a_scan_takes_more_documents_than_a_page;
    ScanShowsDeletedDocuments: a_scan_does_not_show_deleted_documents;
    ScanShowsLongerKeys: documents_of_different_keys_are_independent;
}
