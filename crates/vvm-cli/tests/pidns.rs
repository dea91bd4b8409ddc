//! Level pidns: its own cases, and those of level guardian that a PID namespace can change.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "clippy knows tests, but not their helpers"
)]

use harness::{Level, Program};

const VVM: Program = Program::new(env!("CARGO_BIN_EXE_vvm"), Level::PidNamespace);

mod cases {
    mod check;
    mod container;
    mod containment;
    mod failure_table;
    mod guardian_death;
    mod leadership;
    mod outcomes;
    mod pidns;
    mod released;
    mod signal_table;
    mod signals;
    mod terminal;
    mod warm;
    mod warm_failures;
}
