//! Real processes for tests: starts `vvm`, reads its output and its command's, and finds every descendant. Each trial
//! marks its environment, which every descendant inherits. The mark finds a process that has left session, group,
//! parent and user behind. This package is for tests only.
#![allow(missing_docs, reason = "for the tests of this repository alone")]
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails where its harness does")]

mod chart;
mod processes;
mod program;
mod storage;
mod terminal;

pub use chart::rendered_chart;
pub use processes::{
    Freezer, Level, MemoryGroup, Processes, ancestors, catches, command_line, eventually,
    gives_pid_namespaces, gives_user_namespaces, has_ended, is_permitted, own_group, state,
};
pub use program::{Finished, NOBODY, Program, Run, Running, Trial, settle};
pub use storage::{Obstruction, Outage, Usurper, forward};
pub use terminal::{Lines, PseudoTerminal, Terminal};
pub use timed::{Attempt, Late};

use std::time::Duration;

/// The bound from the death of host or guardian to that of the last descendant: the protocol leaves 0.2 TTL from the
/// kill deadline to the end of the lease, and this is that share of a TTL of 2 s.
pub const OUTLIVING: Duration = Duration::from_millis(400);

/// The TTL of tests in which a lease expires or is renewed in time. A machine that halts for less than its
/// deadline does not end a leadership. With a TTL of 2 s, a busy machine ended some.
pub const SHORT_TTL: &str = "4s";

/// The time after which a wait without a bound of its own has hung, and fails its test.
pub const HANG_LIMIT: Duration = Duration::from_secs(30);

/// Checks that an object of JSON has these members, among others: `has!(found, "slot" == 1)`.
#[macro_export]
macro_rules! has {
    ($object:expr, $($name:literal == $value:expr),+) => {
        $(assert_eq!($object[$name], $value, "{}: {}", $name, $object);)+
    };
}
