//! Runs the cases of one driver, and counts them. Each case is a test of `vvm-storage` or `vvm-cli`. Those of `vvm-cli`
//! run on files; on a server, those run that the storage can change.

use servers::owned;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::{
    env, fmt,
    io::{self, BufRead, BufReader, IsTerminal as _},
    ops::Add,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

#[derive(Debug)]
pub(crate) struct Suite<'a> {
    pub(crate) tests: &'a [&'a str],
    /// The modules in them, and single cases with their module: `pause`, `outages::a_case`; all if empty.
    pub(crate) only: &'a [&'a str],
    /// How many cases run at once, so that the server's machine stays punctual.
    pub(crate) threads: u8,
    pub(crate) environment: &'a [(&'a str, &'a str)],
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Cases {
    passed: usize,
    failed: usize,
    succeeded: bool,
}

impl Suite<'_> {
    /// Runs them, and prints their output, without the cases that passed: thousands would bury the one that failed.
    pub(crate) fn run(&self) -> Result<Cases, String> {
        let system = |error: io::Error| format!("cargo could not be run: {error}");
        // An interrupt ends cargo. This process continues, to end the server.
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&interrupted)).map_err(system)?;
        }
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = owned::command(cargo);
        command
            // As for the workspace's own tests, whose build is reused.
            .args(["test", "--locked", "--no-fail-fast", "--workspace", "--all-features"])
            .args(self.tests.iter().flat_map(|test| ["--test", test]))
            .args(["--", &format!("--test-threads={}", self.threads)])
            .args(self.only.iter().map(|name| filter(name)))
            .envs(self.environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = command.spawn().map_err(system)?;
        let (mut cases, at_terminal) = (Cases::default(), io::stdout().is_terminal());
        if let Some(output) = child.stdout.take() {
            for line in BufReader::new(output).lines() {
                let line = line.map_err(system)?;
                if !cases.note(&line) || at_terminal {
                    println!("{line}");
                }
                if interrupted.load(Ordering::Relaxed) {
                    let _gone = child.kill();
                }
            }
        }
        cases.succeeded = child.wait().map_err(system)?.success();
        if interrupted.load(Ordering::Relaxed) {
            return Err("interrupted".into());
        }
        Ok(cases)
    }
}

/// Returns the test runner's filter: a module with colons, so that its name selects no other module.
fn filter(name: &str) -> String {
    if name.contains("::") { name.into() } else { format!("{name}::") }
}

impl Cases {
    pub(crate) fn count(self) -> usize {
        self.passed + self.failed
    }

    /// Counts the case of a line such as `test name ... ok`. Returns whether it is of a case that passed.
    fn note(&mut self, line: &str) -> bool {
        let passed_before = self.passed;
        match line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... ")) {
            Some((_, "ok")) => self.passed += 1,
            Some((_, "FAILED")) => self.failed += 1,
            _ => {}
        }
        self.passed > passed_before
    }

    pub(crate) fn all_passed(&self) -> bool {
        self.succeeded && self.passed > 0 && self.failed == 0
    }
}

impl Add for Cases {
    type Output = Self;

    fn add(self, next: Self) -> Self {
        Self {
            passed: self.passed + next.passed,
            failed: self.failed + next.failed,
            // A run without a case was left out by mistake.
            succeeded: self.succeeded && self.passed > 0 && next.succeeded && next.passed > 0,
        }
    }
}

impl fmt::Display for Cases {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, succeeded } = self;
        write!(out, "{passed:3} cases passed, {failed} failed")?;
        if !succeeded && *failed == 0 {
            out.write_str(", and the run did not end")?;
        }
        Ok(())
    }
}

pub(crate) const STORAGE: &str = "end_to_end";

/// Cases that the storage can change: what several processes see of each other through it, and what an outage
/// or a refusal of it leads to. The others test `vvm` and its processes, and do so on files.
const OF_SERVERS: &[&str] = &[
    "clients::python_app_leads_and_stops_when_it_is_told",
    "doctor::doctors_measure_at_the_same_time_without_changing_the_slots",
    "elect::loss_runs_the_on_loss_hook_and_another_campaign_follows",
    "outcomes::lost_leadership_is_79_after_the_worker_stopped",
    "outcomes::timed::try_on_an_unreachable_storage_is_75_in_bounded_time",
    "outcomes::try_takes_over_from_a_crashed_leader",
    "status::each_leadership_is_listed_with_its_end_which_the_next_leader_records_after_a_crash",
    "outages::timed::hung_host_ends_with_80_at_the_deadline_and_leaves_no_process",
    "doctor::storage_on_a_server_exists_after_the_first_init",
    "leadership::each_leadership_has_a_larger_epoch_and_a_new_incarnation",
    "leadership::status_of_an_unknown_name_is_66_and_starts_no_campaign",
    "leadership::status_shows_each_slot",
    "leadership::storage_outage_is_logged_once_and_so_is_its_end",
    "leadership::storage_credentials_are_removed_from_the_command_without_keep_credentials",
    "outages::each_slot_has_one_leader_and_a_killed_leader_is_replaced",
    "outages::one_leader_and_all_candidates_survive_outages_of_any_length",
    "outcomes::refused_run_has_an_outcome_for_each_reason",
    "pause::killed_leader_counts_as_stopped_after_its_ttl",
    "pause::leaders_stop_and_all_candidates_wait_until_the_name_is_resumed",
    "signal_table::while_the_storage_is_opened",
    "step_down::interrupted_request_is_withdrawn",
    "status::timed::state_and_exit_status_follow_the_life_of_a_leader",
    "step_down::named_standby_leads_next_among_several",
    "successor::leader_stays_when_its_successor_stops_or_dies_and_names_the_next_one",
    "successor::timed::loss_of_a_machine_costs_little_more_than_the_support_period",
    "successor::timed::stopped_guardian_and_host_leave_no_command_beside_the_successor",
    "status::watch_shows_a_leadership_and_ends_when_the_reader_of_its_pipe_is_gone",
];

/// Runs the cases that the storage can change on one server, at `url`, which contains the host and port `at`.
pub(crate) fn on_server(url: &str, at: &str, environment: &[(&str, &str)]) -> Result<Cases, String> {
    let environment = &[&storage(url, at), environment].concat();
    // Each case has several processes, most of which wait.
    let cases = Suite { tests: &["guardian"], only: OF_SERVERS, threads: 3, environment }.run()?;
    if cases.count() != OF_SERVERS.len() {
        let (ran, listed) = (cases.count(), OF_SERVERS.len());
        return Err(format!("{ran} cases ran of {listed} in the list for servers: it has stale names"));
    }
    Ok(cases)
}

pub(crate) fn storage<'a>(url: &'a str, at: &'a str) -> [(&'static str, &'a str); 2] {
    [("VVM_TEST_STORAGE", url), ("VVM_TEST_STORAGE_AT", at)]
}

pub(crate) fn credentials(url: &str, at: &str, environment: &[(&str, &str)]) -> Result<Cases, String> {
    let environment = &[&storage(url, at), environment].concat();
    Suite { tests: &["credentials"], only: &[], threads: 1, environment }.run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_run_with_cases_has_passed() {
        let mut cases = Cases { succeeded: true, ..Cases::default() };
        assert!(!cases.all_passed(), "no case");
        for line in ["running 2 tests", "test result: ok. 1 passed"] {
            assert!(!cases.note(line), "{line}");
        }
        for line in ["test a::b ... ok", "test c ... ok"] {
            assert!(cases.note(line), "{line}");
        }
        assert_eq!((cases.passed, cases.failed), (2, 0));
        assert!(cases.all_passed());
        assert!(!Cases { succeeded: false, ..cases }.all_passed());
        assert!((cases + cases).all_passed());
        assert!(
            !(cases + Cases { succeeded: true, ..Cases::default() }).all_passed(),
            "no case in the second run"
        );
        assert!(!cases.note("test d ... FAILED"), "a log shows it");
        assert!(!cases.all_passed());
        assert!(!(cases + cases).all_passed());
    }
}
