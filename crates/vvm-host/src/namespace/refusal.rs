//! Why there is no PID namespace to be had, and what to do about it.

use crate::shortage::Shortage;
use rustix::io::Errno;
use std::{fmt, io};

/// No namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    pub(crate) step: Step,
    pub(crate) errno: Errno,
}

/// What was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Sockets, signals: what every process needs.
    Link,
    /// A process.
    Process,
    /// The namespace, to a user who may make one.
    Namespace,
    /// The user namespace, which anybody else needs for it.
    UserNamespace,
    /// Its users and groups, and a privilege inside of it.
    Mapping,
    /// A `/proc` that shows it.
    Proc,
}

impl Refusal {
    /// The system's `cause` for it.
    pub(crate) fn of_system(step: Step, cause: &io::Error) -> Self {
        Self { step, errno: cause.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error) }
    }
}

const OTHERWISE: &str = "or use --containment guardian";

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errno = self.errno;
        write!(out, "--containment pidns: ")?;
        match self.step {
            Step::Link | Step::Process => Shortage::from(errno).fmt(out),
            Step::Namespace => write!(
                out,
                "this kernel makes no PID namespace ({errno}): raise user.max_pid_namespaces (sysctl), use a kernel \
                 that has them, {OTHERWISE}"
            ),
            Step::UserNamespace | Step::Mapping => write!(
                out,
                "this user may make no PID namespace, and no user namespace to make one in ({errno}): run as root or \
                 with CAP_SYS_ADMIN (docker run --cap-add SYS_ADMIN), have an administrator permit user namespaces \
                 (user.max_user_namespaces above 0, kernel.apparmor_restrict_unprivileged_userns=0), {OTHERWISE}"
            ),
            Step::Proc => write!(
                out,
                "a /proc for the namespace can't be mounted ({errno}), as in a container that hides parts of /proc: \
                 run it with a full one (docker run --security-opt systempaths=unconfined), {OTHERWISE}"
            ),
        }
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_names_the_cause_and_the_way_out() {
        let table = [
            (Step::Namespace, Errno::NOSPC, "max_pid_namespaces"),
            (Step::UserNamespace, Errno::PERM, "CAP_SYS_ADMIN"),
            (Step::Mapping, Errno::PERM, "apparmor_restrict_unprivileged_userns"),
            (Step::Proc, Errno::PERM, "systempaths=unconfined"),
        ];
        for (step, errno, way_out) in table {
            let text = Refusal { step, errno }.to_string();
            assert!(text.contains(way_out) && text.contains("--containment guardian"), "{text}");
            assert!(text.contains(&errno.to_string()), "{text}");
        }
        let text = Refusal::of_system(Step::Link, &io::Error::from_raw_os_error(24)).to_string();
        assert!(text.contains("Too many open files"), "{text}");
    }
}
