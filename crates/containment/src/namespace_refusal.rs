//! Why there is no PID namespace to be had, and what to do about it.

use rustix::io::Errno;
use std::{fmt, io};

/// No namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// What was refused.
    pub step: Step,
    /// The system's reason.
    pub errno: Errno,
}

/// What was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Sockets, signals: what every process needs.
    Link,
    /// A process.
    Process,
    /// The namespace, to a user who may make one.
    Namespace,
    /// The user namespace, which any other user needs for it.
    UserNamespace,
    /// Its users and groups, and a privilege inside of it.
    Mapping,
    /// A `/proc` that shows it.
    Proc,
}

impl Refusal {
    /// The system's `cause` for it.
    pub fn of_system(step: Step, cause: &io::Error) -> Self {
        Self { step, errno: cause.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error) }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errno = self.errno;
        match self.step {
            Step::Link | Step::Process => {
                write!(out, "the system refuses a process or a descriptor: {errno}")
            }
            Step::Namespace => write!(
                out,
                "this kernel makes no PID namespace ({errno}): raise user.max_pid_namespaces (sysctl), or use a \
                 kernel that has them"
            ),
            Step::UserNamespace | Step::Mapping => write!(
                out,
                "this user may make no PID namespace, and no user namespace to make one in ({errno}): run as root or \
                 with CAP_SYS_ADMIN (docker run --cap-add SYS_ADMIN), have an administrator permit user namespaces \
                 (user.max_user_namespaces above 0, kernel.apparmor_restrict_unprivileged_userns=0)"
            ),
            Step::Proc => write!(
                out,
                "a /proc for the namespace can't be mounted ({errno}), as in a container that hides parts of /proc: \
                 run it with a full one (docker run --security-opt systempaths=unconfined)"
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
            assert!(text.contains(way_out), "{text}");
            assert!(text.contains(&errno.to_string()), "{text}");
        }
        let text = Refusal::of_system(Step::Link, &io::Error::from_raw_os_error(24)).to_string();
        assert!(text.contains("Too many open files"), "{text}");
    }
}
