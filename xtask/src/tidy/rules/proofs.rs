//! Every test that a document names exists.
//!
//! In `docs/peers.md` and `docs/what-happens-if.md`, the last column of each table names tests or commands in
//! backticks. A name without a space is a function of the tree; a command of several words is not checked.

use super::{Finding, Rule};
use crate::tidy::tree::Tree;

pub(super) const RULE: Rule = Rule {
    name: "proofs",
    fix: "name tests that exist, or a command, in the last column of the table",
    find,
};

const DOCUMENTS: [&str; 2] = ["docs/peers.md", "docs/what-happens-if.md"];

fn find(tree: &Tree) -> Vec<Finding> {
    let documents = tree.files().iter().filter(|file| DOCUMENTS.contains(&file.path.as_str()));
    documents.flat_map(|file| of_document(tree, &file.path, &file.text)).collect()
}

fn of_document(tree: &Tree, path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| line.starts_with("| ")) {
        let Some(shown) = line.trim_end().trim_end_matches('|').rsplit(" | ").next() else { continue };
        if shown.trim() == "shown by" {
            continue;
        }
        let mut report = |what: String| findings.push(Finding::new(path, index + 1, what));
        let tests = quoted(shown);
        if tests.is_empty() {
            report("no test or command shows this row".to_owned());
        }
        for test in missing(tree, &tests) {
            report(format!("the test `{test}` does not exist"));
        }
    }
    findings
}

/// Returns the texts in backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Returns the names among `tests` that no function has.
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
    fn row_without_an_existing_test_is_found() {
        let table = "| complaint | here | shown by |\n|---|---|---|\n\
                     | `a` | b | `it_tightens`; `cargo x y` |\n\
                     | a | b | `it_loosens` |\n| a | b | c |\n";
        let code = "#[test]\nfn it_tightens() {}\n";
        let tree = Tree::of(&[(DOCUMENTS[0], table), ("crates/deadman/src/lib.rs", code)]);
        let found = find(&tree).into_iter().map(|finding| (finding.line, finding.what));
        let expected = [
            (4, "the test `it_loosens` does not exist".to_owned()),
            (5, "no test or command shows this row".to_owned()),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }
}
