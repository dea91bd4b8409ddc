//! Names on which dashboards, alerts, scripts and log searches of users depend: those of 2026-11-26 (b95e06b). A name that
//! goes breaks them. It needs a line in `CHANGELOG.md`, and leaves its list here in the same commit.

use super::documented::{root, sources};
use crate::{cli::described, result_file::Outcome};
use std::{collections::BTreeSet, fs};

const METRICS: &str = "vvm_build vvm_check_failures vvm_epoch vvm_kill_deadline_timestamp vvm_last_exit_status \
    vvm_leaderships vvm_leading vvm_losses vvm_margin vvm_ready vvm_renewal_latency vvm_restarts vvm_role \
    vvm_service_instances vvm_service_quarantined vvm_service_rebuild vvm_service_state vvm_since_renewal \
    vvm_storage_calls vvm_storage_failures vvm_storage_unanswered vvm_take_overs vvm_ttl";

/// Of logs, and of `watch` and `demo` with `--json`.
const EVENTS: &str = "asked_to_give_up campaigning concluded free guardian_lapsed guardian_silent holder_in_use \
    leading message new_leader no_local_wakeups overdue paused period_trouble released renewed renews_again \
    restarting resumed starting status_page stopping storage_not_closed storage_opened storage_trouble \
    storage_works_again summary trouble unknown unready warm_ends warm_foreign warm_refused warm_silent \
    warm_stopped warm_uncontained went_back works_again";

/// Of `run`, `once` and `elect`. Each is also a variable, `VVM_` and the name, and a key of settings files.
const OPTIONS: &str = "acquire-timeout after-stop alive-within attempts check check-failures check-interval \
    check-timeout containment holder hook-timeout http keep keep-credentials local-dir log-format name on-exit \
    on-lead on-loss period pre-stop pre-stop-timeout quiet quiet-time restart-backoff restart-backoff-max \
    restart-limit result-file retry-after slots start-timeout stop-timeout storage try ttl warm";

/// Variables without an option. A test of `leadership.rs` has those of the command's environment.
const VARIABLES: &str = "VVM_CONFIG VVM_LOG VVM_SOCKET VVM_STORAGE_PASSWORD";

/// Of result files.
const OUTCOMES: &str = "already_done command_not_executable command_not_found conflict deadline host_died \
    keeper_died leader_seen lost misuse no_attempt_left not_acquired not_marked stopped stopped_while_waiting \
    storage_refused system_refused unhealthy worker_ended";

/// Exit statuses. Another test compares those of the help with `docs/operations.md`.
const STATUSES: [u8; 18] = [1, 2, 3, 64, 66, 69, 71, 75, 76, 78, 79, 80, 81, 82, 83, 126, 127, 137];

fn texts() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for path in sources(&root().join("crates")) {
        let place = path.display().to_string();
        if !place.contains("/src/") || place.contains("test") {
            continue;
        }
        let text = fs::read_to_string(path).unwrap();
        let product = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        let texts = product.lines().flat_map(|line| line.split('"').skip(1).step_by(2));
        found.extend(texts.map(str::to_owned));
    }
    found
}

fn options() -> BTreeSet<String> {
    let cli = described();
    let options = cli.get_subcommands().flat_map(|command| command.get_arguments());
    options.filter_map(|option| option.get_long()).map(str::to_owned).collect()
}

#[test]
fn every_name_that_users_depend_on_is_kept() {
    let (texts, options) = (texts(), options());
    let is_outcome = |name: &str| serde_json::from_value::<Outcome>(name.into()).is_ok();
    let book = fs::read_to_string(root().join("docs/operations.md")).unwrap();
    let statuses = book.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" |"));
    let statuses = statuses.flat_map(|(statuses, _)| statuses.split(", ")).collect::<BTreeSet<_>>();

    let words = |list: &'static str| list.split_whitespace();
    let in_texts = [METRICS, EVENTS, VARIABLES].into_iter().flat_map(words);
    let mut gone = in_texts.filter(|name| !texts.contains(*name)).map(str::to_owned).collect::<Vec<_>>();
    gone.extend(words(OPTIONS).filter(|name| !options.contains(*name)).map(str::to_owned));
    gone.extend(words(OUTCOMES).filter(|name| !is_outcome(name)).map(str::to_owned));
    let numbers = STATUSES.map(|status| status.to_string());
    gone.extend(numbers.into_iter().filter(|status| !statuses.contains(status.as_str())));
    assert!(gone.is_empty(), "users of vvm depend on {gone:?}");
}
