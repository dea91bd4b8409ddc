//! Real `vvm run` processes: exit statuses, signals in every state, a host that hangs. The tests are those of `vvm-host`,
//! on another storage.
//!
//! What is about files alone stands in its file `tests/files.rs`, which is run on files alone.

use crate::cases::{Build, Cases, Suite};

/// The keyspace or table on a server.
pub(crate) const STORAGE: &str = "end_to_end";

/// What holds on every storage.
const EVERYWHERE: &[&str] = &["exit_statuses", "signals", "signal_table", "hung"];
/// The same, and what only files have.
const ON_FILES: &[&str] = &["exit_statuses", "signals", "signal_table", "hung", "files"];

/// Each trial on a file of its own.
pub(crate) fn on_files() -> Result<Cases, String> {
    run(ON_FILES, &[])
}

/// All trials on one server: `url`, which has the host and port `at` in it.
pub(crate) fn on_server(url: &str, at: &str, environment: &[(&str, &str)]) -> Result<Cases, String> {
    let storage = [("VVM_TEST_STORAGE", url), ("VVM_TEST_STORAGE_AT", at)];
    run(EVERYWHERE, &[&storage, environment].concat())
}

fn run(tests: &'static [&'static str], environment: &[(&str, &str)]) -> Result<Cases, String> {
    // Each case is several processes, and the server's machine is this one.
    Suite { build: Build::Everything, tests, only: None, threads: 2, environment }.run()
}
