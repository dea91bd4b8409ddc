//! What is claimed: which case exercises what. Whether it does, the tests beside this look up.

/// An option, and a case: file and test.
type OfOption = (&'static str, &'static str);

/// A status, what shows it in the source of a case, and the case.
type OfStatus = (&'static str, &'static str, &'static str);

/// Options of each command, and a case for each of them: file and test.
pub(crate) const OPTIONS: &[(&str, &[OfOption])] = &[
    (
        "run",
        &[
            ("local-dir", "operators::neighbours_meet_in_the_folder_that_was_named"),
            ("storage", "exit_statuses::a_storage_that_nobody_has_made_is_69_and_says_how_to"),
            ("name", "operators::a_dry_run_says_who_leads_settles_nothing_and_has_the_status_of_a_refusal"),
            (
                "slots",
                "outages::as_many_work_as_there_are_slots_each_in_its_own_and_who_is_killed_is_replaced",
            ),
            ("ttl", "exit_statuses::a_try_takes_over_from_a_leader_that_crashed"),
            ("acquire-timeout", "exit_statuses::not_acquired_in_time_is_75_or_what_was_asked_for"),
            ("try", "exit_statuses::not_acquired_in_time_is_75_or_what_was_asked_for"),
            ("on-loss", "exit_statuses::a_loss_can_be_followed_by_another_campaign"),
            ("stop-timeout", "signal_table::while_leading"),
            ("hold-at-least", "on_exit::a_loss_while_holding_is_no_failure_of_the_job"),
            ("on-exit", "on_exit::a_loss_between_two_runs_is_a_loss"),
            ("restart-backoff", "on_exit::the_pause_before_a_restart_doubles_up_to_the_longest"),
            ("restart-backoff-max", "on_exit::the_pause_before_a_restart_doubles_up_to_the_longest"),
            ("restart-limit", "on_exit::the_pause_before_a_restart_doubles_up_to_the_longest"),
            ("pre-stop", "pre_stop::it_has_ended_before_the_command_is_told"),
            ("pre-stop-timeout", "pre_stop::one_that_hangs_is_killed_after_its_time_with_what_it_started"),
            ("check", "check::a_line_for_the_shell_that_fails_costs_the_leadership"),
            ("check-interval", "check::a_line_for_the_shell_that_fails_costs_the_leadership"),
            ("check-timeout", "check::a_page_that_never_answers_fails_after_its_time"),
            ("check-failures", "check::a_page_that_never_answers_fails_after_its_time"),
            ("holder", "leadership::the_worker_finds_the_leadership_and_nothing_else_of_ours"),
            ("containment", "exit_statuses::misuse_is_64_and_says_what_to_write"),
            (
                "keep-credentials",
                "operators::credentials_of_the_storage_are_kept_from_the_command_unless_it_is_to_have_them",
            ),
            (
                "exit-code-lost",
                "exit_statuses::leadership_lost_is_79_or_what_was_asked_for_and_the_worker_has_stopped",
            ),
            ("exit-code-timeout", "exit_statuses::not_acquired_in_time_is_75_or_what_was_asked_for"),
            ("http", "http::a_leader_and_a_standby_tell_routers_and_probes_who_is_which"),
            ("log-format", "log_format::a_life_is_an_object_for_each_change"),
            ("result-file", "outcomes::worker_ended"),
            (
                "dry-run",
                "operators::a_dry_run_says_who_leads_settles_nothing_and_has_the_status_of_a_refusal",
            ),
            ("config", "operators::each_command_has_its_settings_from_a_file"),
        ],
    ),
    (
        "elect",
        &[
            ("local-dir", "operators::neighbours_meet_in_the_folder_that_was_named"),
            ("storage", "elect::one_leads_and_the_next_one_when_it_stops_with_a_larger_epoch"),
            ("name", "elect::one_leads_and_the_next_one_when_it_stops_with_a_larger_epoch"),
            ("slots", "operators::elect_leads_one_of_several_slots"),
            ("ttl", "elect::a_loss_runs_the_hook_and_is_followed_by_another_campaign"),
            ("holder", "operators::elect_leads_one_of_several_slots"),
            ("on-lead", "elect::a_first_hook_that_fails_gives_the_leadership_back"),
            ("on-loss", "elect::a_loss_runs_the_hook_and_is_followed_by_another_campaign"),
            ("hook-timeout", "elect::a_last_hook_that_hangs_is_killed_and_the_leadership_released"),
            (
                "dry-run",
                "operators::a_dry_run_says_who_leads_settles_nothing_and_has_the_status_of_a_refusal",
            ),
            ("config", "operators::each_command_has_its_settings_from_a_file"),
        ],
    ),
    (
        "status",
        &[
            ("storage", "leadership::status_shows_each_slot"),
            ("name", "leadership::status_shows_each_slot"),
            ("json", "leadership::status_shows_each_slot"),
            ("instances", "leadership::status_shows_the_instances_that_it_is_asked_for"),
            ("config", "operators::each_command_has_its_settings_from_a_file"),
        ],
    ),
    (
        "watch",
        &[
            ("storage", "watch::each_change_is_a_line"),
            ("name", "watch::each_change_is_a_line"),
            ("interval", "watch::each_change_is_a_line"),
            ("json", "watch::a_crash_shows_as_renewals_that_stop_and_each_change_is_an_object"),
            ("config", "operators::each_command_has_its_settings_from_a_file"),
        ],
    ),
    (
        "doctor",
        &[
            ("storage", "doctor::it_measures_and_disturbs_nobody"),
            ("name", "doctor::it_measures_and_disturbs_nobody"),
            ("ttl", "doctor::what_is_wrong_is_said_with_the_way_out_and_status_1"),
            ("json", "doctor::it_measures_and_disturbs_nobody"),
            ("config", "operators::each_command_has_its_settings_from_a_file"),
        ],
    ),
    (
        "history",
        &[
            (
                "storage",
                "history::each_leadership_is_remembered_with_its_end_and_one_without_a_word_by_the_next",
            ),
            (
                "name",
                "history::each_leadership_is_remembered_with_its_end_and_one_without_a_word_by_the_next",
            ),
            (
                "slot",
                "history::each_leadership_is_remembered_with_its_end_and_one_without_a_word_by_the_next",
            ),
            (
                "json",
                "history::each_leadership_is_remembered_with_its_end_and_one_without_a_word_by_the_next",
            ),
            ("config", "operators::each_command_has_its_settings_from_a_file"),
        ],
    ),
    (
        "step-down",
        &[
            ("local-dir", "operators::neighbours_meet_in_the_folder_that_was_named"),
            ("storage", "step_down::the_named_standby_comes_next_whoever_else_waits"),
            ("name", "step_down::the_named_standby_comes_next_whoever_else_waits"),
            ("slot", "step_down::what_can_not_be_is_said_at_once"),
            ("to", "step_down::the_named_standby_comes_next_whoever_else_waits"),
            ("timeout", "operators::a_step_down_that_takes_longer_than_was_said_is_not_finished"),
            ("config", "operators::each_command_has_its_settings_from_a_file"),
        ],
    ),
    (
        "pause",
        &[
            ("local-dir", "operators::neighbours_meet_in_the_folder_that_was_named"),
            ("storage", "pause::leaders_stop_everybody_waits_and_says_so_and_after_it_somebody_leads"),
            ("name", "pause::leaders_stop_everybody_waits_and_says_so_and_after_it_somebody_leads"),
            ("reason", "pause::leaders_stop_everybody_waits_and_says_so_and_after_it_somebody_leads"),
            ("by", "pause::leaders_stop_everybody_waits_and_says_so_and_after_it_somebody_leads"),
            ("wait", "pause::who_still_holds_is_said"),
            ("config", "operators::each_command_has_its_settings_from_a_file"),
        ],
    ),
    (
        "resume",
        &[
            ("local-dir", "operators::neighbours_meet_in_the_folder_that_was_named"),
            ("storage", "pause::leaders_stop_everybody_waits_and_says_so_and_after_it_somebody_leads"),
            ("name", "pause::leaders_stop_everybody_waits_and_says_so_and_after_it_somebody_leads"),
            ("config", "operators::each_command_has_its_settings_from_a_file"),
        ],
    ),
    (
        "init-storage",
        &[
            // Of every case on a server, before its first.
            ("storage", "operators::each_command_has_its_settings_from_a_file"),
            ("config", "operators::each_command_has_its_settings_from_a_file"),
        ],
    ),
];

/// Exit statuses of a document, what shows them in the source of a case, and the case.
pub(crate) const STATUSES: &[(&str, &[OfStatus])] = &[
    (
        "vvm-run.md",
        &[
            ("the command's own", "\"exit 3\"", "exit_statuses::the_workers_own"),
            (
                "128 + n",
                "128 + 11",
                "exit_statuses::of_a_worker_that_died_of_a_signal_nobody_sent_through_us",
            ),
            ("64", "64", "exit_statuses::misuse_is_64_and_says_what_to_write"),
            ("69", "69", "exit_statuses::a_storage_that_nobody_has_made_is_69_and_says_how_to"),
            ("71", "71", "http::an_address_that_is_taken_ends_it_before_it_campaigns"),
            ("75", "75", "exit_statuses::not_acquired_in_time_is_75_or_what_was_asked_for"),
            ("78", "78", "exit_statuses::another_slot_count_is_78_and_names_both"),
            (
                "79",
                "79",
                "exit_statuses::leadership_lost_is_79_or_what_was_asked_for_and_the_worker_has_stopped",
            ),
            ("81", "81", "check::a_page_that_fails_as_often_in_a_row_as_was_said_costs_the_leadership"),
            ("80", "80", "hung::a_hung_host_ends_with_80_at_the_deadline_and_leaves_nobody_behind"),
            ("137", "137", "outcomes::deadline"),
            (
                "126",
                "126",
                "exit_statuses::a_command_that_cant_be_executed_is_126_and_one_that_is_not_there_127",
            ),
            (
                "127",
                "127",
                "exit_statuses::a_command_that_cant_be_executed_is_126_and_one_that_is_not_there_127",
            ),
            // Of pauses and of leaders that are to step down.
            ("0", "0", "step_down::the_named_standby_comes_next_whoever_else_waits"),
            ("75", "75", "step_down::without_a_standby_of_that_name_nothing_happens_to_the_leader"),
            ("76", "76", "step_down::without_anybody_else_the_same_one_leads_again"),
            ("76", "76", "pause::who_still_holds_is_said"),
        ],
    ),
    (
        "vvm-elect.md",
        &[
            ("0", "0", "elect::one_leads_and_the_next_one_when_it_stops_with_a_larger_epoch"),
            ("1", "1", "elect::a_first_hook_that_fails_gives_the_leadership_back"),
            ("64", "64", "operators::what_elect_is_refused_for"),
            ("69", "69", "operators::what_elect_is_refused_for"),
            ("71", "71", "operators::what_elect_is_refused_for"),
            ("78", "78", "operators::what_elect_is_refused_for"),
            ("80", "80", "elect::a_hook_that_outlasts_the_deadline_ends_and_vvm_with_it"),
        ],
    ),
    (
        "operations.md",
        &[
            ("the command's own", "\"exit 3\"", "exit_statuses::the_workers_own"),
            (
                "128 + n",
                "128 + 11",
                "exit_statuses::of_a_worker_that_died_of_a_signal_nobody_sent_through_us",
            ),
            ("1", "1", "doctor::what_is_wrong_is_said_with_the_way_out_and_status_1"),
            ("64", "64", "exit_statuses::misuse_is_64_and_says_what_to_write"),
            ("66", "66", "leadership::status_says_what_it_did_not_find_and_campaigns_for_nothing"),
            ("69", "69", "exit_statuses::a_storage_that_nobody_has_made_is_69_and_says_how_to"),
            ("71", "71", "http::an_address_that_is_taken_ends_it_before_it_campaigns"),
            ("75", "75", "exit_statuses::not_acquired_in_time_is_75_or_what_was_asked_for"),
            ("76", "76", "pause::who_still_holds_is_said"),
            ("78", "78", "exit_statuses::another_slot_count_is_78_and_names_both"),
            (
                "79",
                "79",
                "exit_statuses::leadership_lost_is_79_or_what_was_asked_for_and_the_worker_has_stopped",
            ),
            ("80", "80", "hung::a_hung_host_ends_with_80_at_the_deadline_and_leaves_nobody_behind"),
            ("137", "137", "outcomes::deadline"),
            ("81", "81", "check::a_page_that_fails_as_often_in_a_row_as_was_said_costs_the_leadership"),
            (
                "126",
                "126",
                "exit_statuses::a_command_that_cant_be_executed_is_126_and_one_that_is_not_there_127",
            ),
            (
                "127",
                "127",
                "exit_statuses::a_command_that_cant_be_executed_is_126_and_one_that_is_not_there_127",
            ),
        ],
    ),
];

/// What the result file can have as `outcome`, and a case in `tests/outcomes.rs`.
pub(crate) const OUTCOMES: &[(&str, &str)] = &[
    ("worker_ended", "worker_ended"),
    ("stopped", "stopped"),
    ("stopped_while_waiting", "stopped_while_waiting_and_not_acquired_and_leader_seen"),
    ("lost", "lost"),
    ("unhealthy", "unhealthy"),
    ("not_acquired", "stopped_while_waiting_and_not_acquired_and_leader_seen"),
    ("leader_seen", "stopped_while_waiting_and_not_acquired_and_leader_seen"),
    ("storage_refused", "storage_refused_and_conflict_and_misuse"),
    ("conflict", "storage_refused_and_conflict_and_misuse"),
    ("command_not_found", "command_not_found_and_not_executable"),
    ("command_not_executable", "command_not_found_and_not_executable"),
    ("misuse", "storage_refused_and_conflict_and_misuse"),
    ("system_refused", "system_refused"),
    ("deadline", "deadline"),
    ("host_died", "host_died"),
];
