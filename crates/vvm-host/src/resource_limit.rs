//! [`ResourceLimit`]: a refusal by the operating system, with the limit to raise.

use rustix::io::Errno;
use std::{fmt, io};

/// The system refused a process, a thread, a descriptor, or memory.
#[derive(Debug)]
pub struct ResourceLimit(io::Error);

/// Returns which limit to raise, and where, for the end of a message. Empty if no known limit is the cause.
pub fn way_out(cause: &io::Error) -> &'static str {
    match Errno::from_io_error(cause) {
        Some(Errno::MFILE) => ": let it open more files, 64 at least (ulimit -n, LimitNOFILE=)",
        Some(Errno::NFILE) => ": the whole machine has too many files open (fs.file-max)",
        Some(Errno::AGAIN) => {
            ": let this user, or this container, have more processes and threads \
             (ulimit -u, TasksMax=, pids.max)"
        }
        Some(Errno::NOMEM) => ": give it more memory (MemoryMax=, memory.max)",
        _ => "",
    }
}

impl From<io::Error> for ResourceLimit {
    fn from(cause: io::Error) -> Self {
        Self(cause)
    }
}

impl From<Errno> for ResourceLimit {
    fn from(cause: Errno) -> Self {
        Self(cause.into())
    }
}

impl fmt::Display for ResourceLimit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the system refuses what vvm needs: {}{}", self.0, way_out(&self.0))
    }
}

impl std::error::Error for ResourceLimit {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_names_the_limit_and_where_it_is_set() {
        let table = [
            (Errno::MFILE, "ulimit -n"),
            (Errno::NFILE, "fs.file-max"),
            (Errno::AGAIN, "ulimit -u"),
            (Errno::NOMEM, "memory.max"),
        ];
        for (errno, way_out) in table {
            let text = ResourceLimit::from(errno).to_string();
            assert!(text.contains(way_out), "{text}");
        }
        assert!(ResourceLimit::from(Errno::PERM).to_string().ends_with("(os error 1)"));
    }
}
