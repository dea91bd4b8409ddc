//! Level cgroup: its own cases, and those of level guardian that a control group can change: none with a terminal.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "clippy knows tests, but not their helpers"
)]

use harness::{Level, Program};

const VVM: Program = Program::new(env!("CARGO_BIN_EXE_vvm"), Level::ControlGroup);

mod cases {
    mod cgroup;
    mod check;
    mod container;
    mod containment;
    mod failure_table;
    mod guardian_death;
    mod released;
    mod signals;
}
