//! What a step needs that not every machine has.

use std::{
    env,
    path::Path,
    process::{Command, Stdio},
};

/// A server to run a driver's suites on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    /// The variable with the address of one that runs already; without it, one is started.
    pub(super) server_at: &'static str,
    pub(super) server: Server,
}

/// How a server is started.
#[derive(Clone, Copy, Debug)]
pub(super) enum Server {
    /// It is fetched by Maven and runs on Java.
    OnJava,
    /// PostgreSQL of a Debian package: standbys need its `pg_basebackup`.
    OfDebian,
}

impl Server {
    /// A program without which the server can't be started, and how to get it.
    fn lacks(self, starts: impl Fn(&str) -> bool) -> Option<(&'static str, &'static str)> {
        match self {
            Self::OnJava => {
                let missing = ["java", "mvn"].into_iter().find(|program| !starts(program))?;
                Some((missing, "install a JDK, 17 or later, and Maven"))
            }
            Self::OfDebian => {
                let is_there = Path::new("/usr/lib/postgresql").exists();
                (!is_there).then_some(("postgres", "install Debian's package postgresql"))
            }
        }
    }
}

impl Need {
    /// What this machine lacks, and the way out.
    pub(super) fn missing(self) -> Option<String> {
        let Self { server_at, server } = self;
        if env::var_os(server_at).is_some() {
            return None;
        }
        let (missing, way_out) = server.lacks(starts)?;
        Some(format!("`{missing}` can't be started: {way_out}, or name a server with {server_at}=…"))
    }
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
    fn first_missing_program_is_named() {
        assert_eq!(Server::OnJava.lacks(|_| true), None);
        let lacks = Server::OnJava.lacks(|program| program == "java");
        assert_eq!(lacks.map(|(program, _)| program), Some("mvn"));
    }
}
