//! What a run left out, and why. The last lines of each run say it, so that a green run hides nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// How a program begins a line about what the machine lacks.
const MARKS: [&str; 2] = ["left out: ", "not tested: "];

#[derive(Debug, Default)]
pub(crate) struct LeftOut(BTreeMap<String, BTreeSet<String>>);

impl LeftOut {
    pub(crate) fn add(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.0.entry(why.into()).or_default().insert(what.into());
    }

    pub(crate) fn append(&mut self, more: Self) {
        for (why, what) in more.0 {
            self.0.entry(why).or_default().extend(what);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }
}

pub(crate) fn reason(line: &str) -> Option<&str> {
    MARKS.iter().find_map(|mark| line.strip_prefix(mark))
}

impl fmt::Display for LeftOut {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (why, what) in &self.0 {
            writeln!(out, "left out: {why}")?;
            what.iter().try_for_each(|what| writeln!(out, "  {what}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_out_is_listed_by_its_reason() {
        let mut left_out = LeftOut::default();
        for (what, line) in
            [("a", "left out: no Go"), ("b", "not tested: no Go"), ("c", "so not tested: no Go")]
        {
            if let Some(why) = reason(line) {
                left_out.add(what, why);
            }
        }
        left_out.add("kubernetes", "not built");
        assert_eq!(left_out.to_string(), "left out: no Go\n  a\n  b\nleft out: not built\n  kubernetes\n");
        assert_eq!(left_out.len(), 3);
    }
}
