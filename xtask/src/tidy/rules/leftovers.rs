//! No notes about work to do, and no disabled tests. Clippy finds unfinished code.

use super::{Finding, Rule};
use crate::tidy::{rust_source::words, tree::Tree};

pub(super) const RULE: Rule = Rule {
    name: "leftovers",
    fix: "finish it, or remove it and document that; enable or delete the test",
    find,
};

const IN_COMMENTS: [&str; 4] = ["TODO", "FIXME", "XXX", "HACK"];
const IN_CODE: [&str; 2] = ["#[ignore]", "#[ignore ="];

fn find(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, rust) in tree.rust() {
        for left in IN_COMMENTS {
            let found = words(rust.comments(), left);
            findings.extend(found.map(|at| Finding::new(path, rust.line(at), format!("`{left}`"))));
        }
        for left in IN_CODE {
            findings.extend(rust.lines_with(left).map(|line| Finding::new(path, line, format!("`{left}`"))));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{super::tests::lines, *};

    #[test]
    fn note_and_disabled_test_are_found() {
        assert_eq!(lines(RULE, "a.rs", "// TODO: more\nfn a() {}\n"), [1]);
        assert_eq!(lines(RULE, "a.rs", "#[ignore]\nfn a() {}\n#[ignore = \"slow\"]\nfn b() {}\n"), [1, 3]);
    }

    #[test]
    fn string_with_such_a_word_passes() {
        assert_eq!(lines(RULE, "a.rs", "const WORD: &str = \"TODO\";\n#[ignored]\nfn a() {}\n"), [0; 0]);
    }
}
