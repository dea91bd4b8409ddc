//! The `vvm` binary. Everything stands in the library, so that tests and other hosts can use it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    vvm_host::main()
}
