//! The tests of `vvm-cli` on another storage. Cases about files are in the modules `files` and `places`,
//! which run on files only.

use crate::cases::{Build, Cases, Suite};

/// The keyspace or table on a server.
pub(crate) const STORAGE: &str = "end_to_end";

/// Cases for every storage.
const EVERYWHERE: &[&str] = &[
    "check",
    "doctor",
    "elect",
    "exit_statuses",
    "history",
    "http",
    "hung",
    "leadership",
    "log_format",
    "on_exit",
    "operators",
    "outages",
    "outcomes",
    "pause",
    "pre_stop",
    "signal_table",
    "signals",
    "step_down",
    "watch",
];

/// Cases for files.
const OF_FILES: &[&str] = &["files", "places"];

/// A selection of cases, by their modules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selection<'a> {
    only: &'a [String],
}

impl<'a> Selection<'a> {
    /// Selects `only` these, or all.
    ///
    /// # Errors
    /// A module in `only` does not exist.
    pub(crate) fn of(only: &'a [String]) -> Result<Self, String> {
        let unknown = only.iter().find(|name| !EVERYWHERE.iter().chain(OF_FILES).any(|there| there == name));
        match unknown {
            Some(name) => {
                Err(format!("there are no end-to-end cases {name}; choose from {}", EVERYWHERE.join(", ")))
            }
            None => Ok(Self { only }),
        }
    }

    /// Runs `others` if all cases are selected.
    pub(crate) fn or_all<T, E>(self, others: impl FnOnce() -> Result<T, E>) -> Result<Option<T>, E> {
        self.only.is_empty().then(others).transpose()
    }

    /// Runs each trial on a file of its own.
    pub(crate) fn on_files(self) -> Result<Cases, String> {
        self.run(&[EVERYWHERE, OF_FILES].concat(), &[])
    }

    /// Runs all trials on one server, at `url`, which contains the host and port `at`.
    pub(crate) fn on_server(
        self,
        url: &str,
        at: &str,
        environment: &[(&str, &str)],
    ) -> Result<Cases, String> {
        let storage = [("VVM_TEST_STORAGE", url), ("VVM_TEST_STORAGE_AT", at)];
        self.run(EVERYWHERE, &[&storage, environment].concat())
    }

    fn run(self, tests: &[&'static str], environment: &[(&str, &str)]) -> Result<Cases, String> {
        let is_wanted = |test: &&str| self.only.is_empty() || self.only.iter().any(|only| only == test);
        let tests: Vec<&str> = tests.iter().copied().filter(is_wanted).collect();
        // Each case has several processes, most of which wait.
        Suite { build: Build::Everything, tests: &["guardian"], only: &tests, threads: THREADS, environment }
            .run()
    }
}

/// Runs the case of credential helpers of the AWS SDK, on DynamoDB.
pub(crate) fn credentials(url: &str, at: &str, environment: &[(&str, &str)]) -> Result<Cases, String> {
    let storage = [("VVM_TEST_STORAGE", url), ("VVM_TEST_STORAGE_AT", at)];
    let environment = &[&storage, environment].concat();
    Suite { build: Build::Everything, tests: &["credentials"], only: &[], threads: 1, environment }.run()
}

/// How many cases at once.
const THREADS: u8 = 3;
