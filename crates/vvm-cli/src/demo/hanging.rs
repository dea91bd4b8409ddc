//! [`Hanging`]: a host that was stopped for ever, and what is known of its end.

use super::event::Lane;
use serde_json::Value;
use std::{
    fs,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};
use vvm_clock::Instant;

/// A host that was stopped for ever.
#[derive(Debug)]
pub(crate) struct Hanging {
    pub(super) lane: Lane,
    /// Readable once it is dead.
    process: OwnedFd,
    /// When we saw that it was.
    died: Option<Instant>,
}

/// Its end, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct End {
    /// When it had to be dead.
    pub(super) deadline: Option<Instant>,
    /// When it was.
    pub(super) died: Option<Instant>,
}

impl Hanging {
    pub(super) fn new(lane: Lane, process: OwnedFd) -> Self {
        Self { lane, process, died: None }
    }

    pub(super) fn is_not_known_to_be_dead(&self) -> bool {
        self.died.is_none()
    }

    /// It was seen to be dead.
    pub(super) fn died_at(&mut self, moment: Instant) {
        self.died.get_or_insert(moment);
    }

    /// Its end, after its guardian has written `result`: the deadline is what only the two of them knew.
    pub(super) fn end(&self, result: &Path) -> End {
        let result = fs::read(result).unwrap_or_default();
        let result = serde_json::from_slice::<Value>(&result).unwrap_or_default();
        let moment = |name: &str| result[name].as_u64().map(Instant::from_nanos);
        // The guardian has seen it, and so have we, both some time after it: whoever was first was nearer.
        let died = self.died.into_iter().chain(moment("host_ended_ns")).min();
        End { deadline: moment("kill_deadline_ns"), died }
    }
}

impl AsFd for Hanging {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_who_saw_the_end_the_first_counts() {
        let folder = tempfile::tempdir().unwrap();
        let result = folder.path().join("result.json");
        let mut hanging = Hanging::new(Lane::A, fs::File::open(folder.path()).unwrap().into());
        assert_eq!(hanging.end(&result), End { deadline: None, died: None }, "nobody knows");
        let at = Instant::from_nanos;
        fs::write(&result, r#"{"kill_deadline_ns": 100, "host_ended_ns": 105}"#).unwrap();
        assert_eq!(hanging.end(&result), End { deadline: Some(at(100)), died: Some(at(105)) });
        hanging.died_at(at(103));
        hanging.died_at(at(110));
        assert_eq!(hanging.end(&result), End { deadline: Some(at(100)), died: Some(at(103)) });
        fs::write(&result, r#"{"kill_deadline_ns": 100, "host_ended_ns": 101}"#).unwrap();
        assert_eq!(hanging.end(&result).died, Some(at(101)));
    }
}
