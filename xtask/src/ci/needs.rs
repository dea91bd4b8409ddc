//! What a step needs that some machines lack.

use std::{
    env,
    process::{Command, Stdio},
};

/// A server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// The variable with the address of a server that runs already. Without it, one is started.
    pub(crate) server_at: Option<&'static str>,
    pub(crate) server: Server,
}

/// How a server is started.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Server {
    /// Maven fetches it.
    OnJava,
    /// etcd, with its client.
    Etcd,
}

/// Programs that a server needs, each with an argument that ends it at once.
const JAVA: [(&str, &str); 2] = [("java", "-version"), ("mvn", "-version")];
const ETCD: [(&str, &str); 2] = [("etcd", "--version"), ("etcdctl", "version")];

impl Server {
    /// Returns a program without which the server can't be started, and how to get it.
    fn lacks(self, starts: impl Fn(&str, &str) -> bool) -> Option<(&'static str, &'static str)> {
        let (programs, way_out) = match self {
            Self::OnJava => (JAVA, "install a JDK, 17 or later, and Maven"),
            Self::Etcd => (ETCD, "install Debian's packages etcd-server and etcd-client"),
        };
        let (missing, _) = programs.into_iter().find(|(program, argument)| !starts(program, argument))?;
        Some((missing, way_out))
    }
}

impl Need {
    /// Returns what this machine lacks, and what to do about it.
    pub(crate) fn missing(self) -> Option<String> {
        if self.server_at.is_some_and(|variable| env::var_os(variable).is_some()) {
            return None;
        }
        let (missing, way_out) = self.server.lacks(starts)?;
        let named = self.server_at.map(|variable| format!(", or name a server with {variable}=…"));
        Some(format!("`{missing}` can't be started: {way_out}{}", named.unwrap_or_default()))
    }
}

fn starts(program: &str, argument: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(argument).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_missing_program_is_named() {
        assert_eq!(Server::OnJava.lacks(|_, _| true), None);
        let lacks = Server::OnJava.lacks(|program, _| program == "java");
        assert_eq!(lacks.map(|(program, _)| program), Some("mvn"));
        assert_eq!(Server::Etcd.lacks(|_, _| false).map(|(program, _)| program), Some("etcd"));
    }
}
