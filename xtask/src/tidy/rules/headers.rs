//! Each Rust file begins with a header that says what it contains.

use super::{Finding, Rule};
use crate::tidy::tree::Tree;

pub(super) const RULE: Rule = Rule {
    name: "headers",
    fix: "begin the file with a `//!` header: what lives here, what doesn't, and why so",
    find,
};

fn find(tree: &Tree) -> Vec<Finding> {
    let lacks = |text: &str| text.strip_prefix("//! ").is_none_or(|header| header.trim_start().is_empty());
    tree.files()
        .iter()
        .filter(|file| file.rust.is_some() && lacks(&file.text))
        .map(|file| Finding::new(&file.path, 1, "no `//!` header"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{super::tests::lines, *};

    #[test]
    fn file_without_a_header_is_found() {
        assert_eq!(lines(RULE, "a.rs", "//! What lives here.\n"), [0; 0]);
        assert_eq!(lines(RULE, "a.rs", "// What lives here.\n"), [1]);
        assert_eq!(lines(RULE, "a.rs", "fn main() {}\n//! Too late.\n"), [1]);
        assert_eq!(lines(RULE, "a.toml", "a = 1\n"), [0; 0]);
    }
}
