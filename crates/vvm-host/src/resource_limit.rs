//! [`ResourceLimit`]: what the operating system refuses, with the limit to raise.

use rustix::io::Errno;
use std::io;

/// The system refused a process, a thread, a descriptor, or memory.
#[derive(Debug, thiserror::Error)]
#[error("the system refuses what vvm needs: {0}{way_out}", way_out = way_out(.0))]
pub struct ResourceLimit(#[from] io::Error);

/// Returns the end of a message about `cause`: which limit to raise, and where. Empty if no known limit is the cause.
pub fn way_out(cause: &io::Error) -> &'static str {
    match Errno::from_io_error(cause) {
        Some(Errno::MFILE) => ": let it open more files, 64 at least (ulimit -n, LimitNOFILE=)",
        Some(Errno::NFILE) => ": the whole machine has too many files open (fs.file-max)",
        Some(Errno::AGAIN) => {
            ": let this user, or this container, have more processes and threads \
             (ulimit -u, TasksMax=, pids.max), more timers (ulimit -i), or more address space (ulimit -v)"
        }
        Some(Errno::NOSYS | Errno::PERM) => {
            ": it needs Linux 5.3, and a sandbox that permits pidfd_open and timer_create"
        }
        Some(Errno::FBIG) => ": let files be larger (ulimit -f, LimitFSIZE=)",
        Some(Errno::NOMEM) => ": give it more memory (MemoryMax=, memory.max)",
        _ => "",
    }
}

impl From<Errno> for ResourceLimit {
    fn from(cause: Errno) -> Self {
        Self(cause.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_names_the_limit_and_where_it_is_set() {
        let table = [
            (Errno::MFILE, "ulimit -n"),
            (Errno::NFILE, "fs.file-max"),
            (Errno::AGAIN, "ulimit -u"),
            (Errno::AGAIN, "ulimit -i"),
            (Errno::NOSYS, "Linux 5.3"),
            (Errno::PERM, "a sandbox"),
            (Errno::NOMEM, "memory.max"),
            (Errno::FBIG, "ulimit -f"),
        ];
        for (errno, way_out) in table {
            let text = ResourceLimit::from(errno).to_string();
            assert!(text.contains(way_out), "{text}");
        }
        assert!(ResourceLimit::from(Errno::INVAL).to_string().ends_with("(os error 22)"));
    }
}
