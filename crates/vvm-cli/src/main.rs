//! The `vvm` binary: `run`, `once`, `elect`, the commands for operators, and the demo.
#![forbid(unsafe_code)]

mod announce;
mod args;
mod cli;
mod contained;
mod demo;
mod doctor;
mod elect;
mod exit;
mod guardian;
mod history;
mod init_storage;
mod inspection;
mod leadership;
mod list;
mod liveness;
mod once;
mod pause;
mod release;
mod result_file;
mod run;
mod runtime;
mod service_manager;
mod settings;
mod shown;
mod status;
mod step_down;
mod turn;
mod ui;
mod watch;

use rustix::process::Signal;
use std::{process::ExitCode, sync::Arc};
use vvm_containment::is_ignored;

#[cfg(not(target_os = "linux"))]
compile_error!("vvm needs Linux: containment uses parent-death signals and process descriptors");

/// Starts no thread before the command is known: the guardian stays single-threaded for its whole life, and a
/// parent-death signal is bound to the thread that spawned the child.
fn main() -> ExitCode {
    // A write beyond `ulimit -f` is then an error, as on a full disk, and does not end this process. Caught, not ignored:
    // the command would inherit that. Where CHLD is ignored, `wait` returns no status. Fails only for want of memory.
    if !is_ignored(Signal::XFSZ) {
        let _ = signal_hook::flag::register(Signal::XFSZ.as_raw(), Arc::default());
    }
    let _ = signal_hook::flag::register(Signal::CHILD.as_raw(), Arc::default());
    cli::main()
}
