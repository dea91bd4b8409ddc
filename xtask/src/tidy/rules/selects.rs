//! Every `select!` is biased, so that the order of its branches is decided, and the same seed takes the same
//! branch.

use super::{Finding, Rule};
use crate::tidy::{rust_source::words, tree::Tree};

pub(super) const RULE: Rule = Rule {
    name: "selects",
    fix: "begin the `tokio::select!` with `biased;` and order its branches, the most urgent first",
    find,
};

fn find(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, rust) in tree.rust() {
        for at in words(rust.code(), "select!") {
            let body = rust.code()[at..].trim_start_matches("select!").trim_start();
            if !body.get(1..).is_some_and(|body| body.trim_start().starts_with("biased;")) {
                findings.push(Finding::new(path, rust.line(at), "a `select!` that is not biased"));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{super::tests::lines, *};

    #[test]
    fn select_without_biased_is_found() {
        assert_eq!(lines(RULE, "a.rs", "tokio::select! {\n    a = b => {}\n}\n"), [1]);
        assert_eq!(
            lines(RULE, "a.rs", "tokio::select! {\n    // loss first\n    biased;\n    a = b => {}\n}\n"),
            [0; 0]
        );
    }
}
