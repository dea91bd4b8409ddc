//! A test that docs/peers.md names as proof exists.
//!
//! The last column of each table names tests or commands in backticks. A name without a space is a function
//! of the tree; a command of several words is not checked.

use super::{Finding, Rule};
use crate::tidy::tree::Tree;

pub(super) const RULE: Rule = Rule {
    name: "proofs",
    fix: "name tests that exist, or a command, in the last column of docs/peers.md",
    find,
};

/// Complaints of other projects' users, a row each.
const COMPLAINTS: &str = "docs/peers.md";

fn find(tree: &Tree) -> Vec<Finding> {
    let text = tree.files().iter().find(|file| file.path == COMPLAINTS).map_or("", |file| &file.text);
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| line.starts_with("| ")) {
        let Some(shown) = line.trim_end().trim_end_matches('|').rsplit(" | ").next() else { continue };
        if shown.trim() == "shown by" {
            continue;
        }
        let mut report = |what: String| findings.push(Finding::new(COMPLAINTS, index + 1, what));
        let tests = quoted(shown);
        if tests.is_empty() {
            report("nothing is said to show it".to_owned());
        }
        for test in missing(tree, &tests) {
            report(format!("it is said to be shown by `{test}`, which does not exist"));
        }
    }
    findings
}

/// What stands in backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The names among `tests` that no function has.
fn missing<'text>(tree: &Tree, tests: &[&'text str]) -> Vec<&'text str> {
    let names = tests.iter().filter(|name| !name.contains(' '));
    let is_missing = |name: &&&str| {
        let function = format!("fn {name}");
        !tree.rust().any(|(_, rust)| rust.lines_with(&function).next().is_some())
    };
    names.filter(is_missing).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaint_without_an_existing_test_is_found() {
        let table = "| complaint | here | shown by |\n|---|---|---|\n| `a` | b | `it_tightens`; `cargo x y` |\n\
                     | a | b | `it_loosens` |\n| a | b | c |\n";
        let code = "#[test]\nfn it_tightens() {}\n";
        let tree = Tree::of(&[(COMPLAINTS, table), ("crates/deadman/src/lib.rs", code)]);
        let found = find(&tree).into_iter().map(|finding| (finding.line, finding.what));
        let expected = [
            (4, "it is said to be shown by `it_loosens`, which does not exist".to_owned()),
            (5, "nothing is said to show it".to_owned()),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }
}
