//! What runs does not panic on an error: a panic in a leader is a fail-over, and says neither cause nor fix.

use super::{Finding, Rule};
use crate::tidy::tree::Tree;

pub(super) const RULE: Rule =
    Rule { name: "panics", fix: "return the error, or make the impossible case unspeakable by types", find };

const PANICS: [&str; 4] = [".unwrap()", ".expect(", ".unwrap_err()", ".expect_err("];

fn find(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, rust) in tree.rust() {
        for panic in PANICS {
            let found = rust.working_lines_with(panic);
            findings.extend(found.map(|line| Finding::new(path, line, format!("`{panic}` outside tests"))));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{super::tests::lines, *};

    #[test]
    fn only_what_runs_is_held_to_it() {
        let text = "fn a() { b.unwrap(); c.expect(\"d\"); e.unwrap_or(f); }\n#[cfg(test)]\nmod tests { fn g() { h.unwrap(); } }\n";
        assert_eq!(lines(RULE, "crates/a/src/lib.rs", text), [1, 1]);
        assert_eq!(lines(RULE, "crates/a/tests/whole.rs", text), [0; 0]);
    }
}
