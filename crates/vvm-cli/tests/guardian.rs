//! Every case, at level guardian. `cgroup.rs` and `pidns.rs` run what differs at their level again.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "clippy knows tests, but not their helpers"
)]

use harness::{Level, Program};

const VVM: Program = Program::new(env!("CARGO_BIN_EXE_vvm"), Level::Guardian);

mod cases {
    mod check;
    mod clients;
    mod container;
    mod containment;
    mod demo;
    mod doctor;
    mod elect;
    mod failure_table;
    mod files;
    mod guardian_death;
    mod http;
    mod leadership;
    mod log_format;
    mod messages;
    mod once;
    mod outages;
    mod outcomes;
    mod packaging;
    mod pause;
    mod prompt;
    mod released;
    mod result_file;
    mod service_manager;
    mod signal_table;
    mod signals;
    mod status;
    mod step_down;
    mod successor;
    mod terminal;
    mod ui;
    mod warm;
    mod warm_failures;
}
