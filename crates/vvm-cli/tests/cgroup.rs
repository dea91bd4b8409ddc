//! The cases that a control group for the command may change, and those of that level alone.
//!
//! Cases with a terminal are not here: a control group does not change them.
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
    mod containment;
    mod deadline;
    mod failure_table;
    mod guardian_death;
    mod init;
    mod pre_stop;
    mod signals;
}
