//! What a step needs that not every machine has.

use std::{
    env,
    process::{Command, Stdio},
};

/// A server to run a driver's suites on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    /// The variable with the address of one that runs already; without it, one is started.
    pub(super) server_at: &'static str,
}

/// What starts a server: it is fetched by Maven and runs on Java.
const PROGRAMS: [&str; 2] = ["java", "mvn"];

impl Need {
    /// What this machine lacks, and the way out.
    pub(super) fn missing(self) -> Option<String> {
        let Self { server_at } = self;
        let missing = lacking(env::var_os(server_at).is_some(), starts)?;
        Some(format!(
            "`{missing}` can't be started: install a JDK, 17 or later, and Maven, or name a server with {server_at}=…"
        ))
    }
}

fn lacking(server_named: bool, starts: impl Fn(&str) -> bool) -> Option<&'static str> {
    if server_named { None } else { PROGRAMS.into_iter().find(|program| !starts(program)) }
}

fn starts(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("-version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_named_needs_no_program() {
        assert_eq!(lacking(true, |_| false), None);
        assert_eq!(lacking(false, |_| true), None);
        assert_eq!(lacking(false, |program| program == "java"), Some("mvn"));
    }
}
