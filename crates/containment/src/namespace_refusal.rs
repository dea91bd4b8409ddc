//! [`Refusal`]: why there is no PID namespace, and what to do.

use rustix::io::Errno;
use std::{fmt, io};

/// A refused namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The step that failed.
    pub step: Step,
    /// The system's reason.
    pub errno: Errno,
}

/// The step that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A socket or a signal handler.
    Link,
    /// A process.
    Process,
    /// The PID namespace, for a user who may make one.
    Namespace,
    /// The user namespace, which other users need.
    UserNamespace,
    /// The mapping of user and group, or a privilege inside.
    Mapping,
    /// The mount of `/proc`.
    Proc,
}

impl Refusal {
    /// Returns a refusal with the system's `cause`.
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
                "this kernel makes no PID namespace ({errno}): raise user.max_pid_namespaces (sysctl), or \
                 use a kernel that has them"
            ),
            Step::UserNamespace | Step::Mapping => write!(
                out,
                "this user may make no PID namespace, and no user namespace to make one in ({errno}): run as \
                 root or with CAP_SYS_ADMIN (docker run --cap-add SYS_ADMIN), have an administrator permit \
                 user namespaces (user.max_user_namespaces above 0, \
                 kernel.apparmor_restrict_unprivileged_userns=0)"
            ),
            Step::Proc => write!(
                out,
                "a /proc for the namespace can't be mounted ({errno}), as in a container that hides parts of \
                 /proc: run it with a full one (docker run --security-opt systempaths=unconfined)"
            ),
        }
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_names_the_cause_and_the_way_out() {
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
