//! The `vvm` binary: `run`, `elect`, the commands for operators, and the demo.
#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("vvm needs Linux: its containment is made of parent-death signals and process descriptors");

mod announce;
mod async_runtime;
mod calendar;
mod cli;
mod contained;
mod demo;
mod doctor;
mod dry_run;
mod elect;
mod guardian;
mod history;
mod init_storage;
mod inspection;
mod liveness;
mod notes;
mod operate;
mod report;
mod result_file;
mod run;
mod service_manager;
mod signals;
mod status;
mod terminal_view;
mod watch;
mod worker;

use std::process::ExitCode;

/// Runs on the main thread before any other thread starts: the guardian stays single-threaded for its whole
/// life, and parent-death signals are bound to the thread that spawns.
fn main() -> ExitCode {
    cli::main()
}
