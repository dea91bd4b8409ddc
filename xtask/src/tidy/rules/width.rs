//! Lines of Rust fit a screen, strings included (rustfmt wraps no strings). Rows of Markdown tables are
//! exempt, because a row is one line.

use super::{Finding, Rule};
use crate::tidy::tree::Tree;

pub(super) const RULE: Rule =
    Rule { name: "width", fix: "wrap the line; a string continues behind a `\\` at its end", find };

/// The same width as in `rustfmt.toml`.
const WIDEST: usize = 110;

fn find(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files().iter().filter(|file| file.rust.is_some()) {
        let widths = file.text.lines().map(|line| (is_row(line), line.chars().count())).enumerate();
        let wide = widths.filter(|(_, (is_row, width))| !is_row && *width > WIDEST);
        let found = wide.map(|(index, (_, width))| {
            Finding::new(&file.path, index + 1, format!("{width} characters, over {WIDEST}"))
        });
        findings.extend(found);
    }
    findings
}

/// Whether `line` is a row of a Markdown table in documentation.
fn is_row(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("//! |") || line.starts_with("/// |")
}

#[cfg(test)]
mod tests {
    use super::{super::tests::lines, *};

    #[test]
    fn line_above_the_limit_is_found() {
        let line = |width: usize| format!("//! ok\n// {}\n", "é".repeat(width - 3));
        assert_eq!(lines(RULE, "a.rs", &line(WIDEST)), [0; 0]);
        assert_eq!(lines(RULE, "a.rs", &line(WIDEST + 1)), [2]);
        let row = format!("//! | {} |\n", "x".repeat(WIDEST));
        assert_eq!(lines(RULE, "a.rs", &row), [0; 0]);
        assert_eq!(lines(RULE, "a.md", &line(WIDEST + 1)), [0; 0]);
    }
}
