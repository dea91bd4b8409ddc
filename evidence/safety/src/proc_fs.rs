//! What /proc says of a process: its parent, its children, whether it still runs.

use std::fs;

/// A process as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Status {
    pub(crate) parent: i32,
    /// Dead already, and not yet reaped: it acts no more.
    pub(crate) zombie: bool,
}

/// `None` when there is no such process.
pub(crate) fn status(pid: i32) -> Option<Status> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain blanks and brackets; the last bracket ends it (proc(5)).
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let zombie = matches!(fields.next()?, "Z" | "X");
    Some(Status { parent: fields.next()?.parse().ok()?, zombie })
}

/// The children of a process; none when it is gone.
pub(crate) fn children(pid: i32) -> Vec<i32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}
