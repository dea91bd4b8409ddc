//! [`Notes`]: what is noted on the way of a search.

use std::collections::BTreeSet;

/// What was reached on the way, and its story if one is told.
#[derive(Default, Debug)]
pub(crate) struct Notes {
    pub(crate) reached: BTreeSet<&'static str>,
    pub(crate) story: Option<Vec<String>>,
    /// The first invariant that was broken, and how.
    pub(crate) violation: Option<String>,
}

impl Notes {
    pub(crate) fn reach(&mut self, what: &'static str) {
        self.reached.insert(what);
    }

    pub(crate) fn tell(&mut self, what: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(what());
        }
    }

    /// Notes a broken invariant. The first one stands.
    pub(crate) fn violated(&mut self, invariant: &str, how: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(format!("{invariant}: {}", how()));
        }
    }
}
