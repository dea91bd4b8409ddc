//! Each invariant is named where the code keeps it, and in the document that explains it; no other number is.

use super::{Finding, Rule};
use crate::tidy::tree::Tree;
use std::collections::BTreeSet;

pub(super) const RULE: Rule = Rule {
    name: "invariants",
    fix: "name the invariant, `(I3)`, in a comment where the code keeps it, and say in docs/architecture.md where that is",
    find,
};

/// I1 to I11.
const LAST: u32 = 11;
pub(super) const DOCUMENT: &str = "docs/architecture.md";

fn find(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut in_code = BTreeSet::new();
    for (path, rust) in tree.rust().filter(|(path, _)| path.starts_with("crates/")) {
        for (at, number) in named(rust.comments()) {
            let line = rust.line(at);
            if !(1..=LAST).contains(&number) {
                findings.push(Finding::new(path, line, format!("there is no invariant I{number}")));
            } else if !rust.is_test(line) {
                in_code.insert(number);
            }
        }
    }
    let text = tree.files().iter().find(|file| file.path == DOCUMENT).map_or("", |file| &file.text);
    let in_document: BTreeSet<u32> = named(text).map(|(_, number)| number).collect();
    for number in 1..=LAST {
        if !in_code.contains(&number) {
            findings.push(Finding::new("crates", 1, format!("no code says that it keeps I{number}")));
        }
        if !in_document.contains(&number) {
            findings.push(Finding::new(DOCUMENT, 1, format!("I{number} is not explained")));
        }
    }
    findings
}

/// Where an `I` and a number stand as a word of their own.
fn named(text: &str) -> impl Iterator<Item = (usize, u32)> {
    text.match_indices('I').filter_map(|(at, _)| {
        let part_of_name = text[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_');
        let behind = &text[at + 1..];
        let digits = behind.len() - behind.trim_start_matches(|digit: char| digit.is_ascii_digit()).len();
        let ends = !behind[digits..].starts_with(|after: char| after.is_alphanumeric() || after == '_');
        let number = behind[..digits].parse().ok()?;
        (!part_of_name && ends).then_some((at, number))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: &str, document: &str) -> Vec<String> {
        let tree = Tree::of(&[("crates/a/src/lib.rs", code), (DOCUMENT, document)]);
        find(&tree).into_iter().map(|finding| finding.what).collect()
    }

    const ALL: &str = "I1 I2 I3 I4 I5 I6 I7 I8 I9 I10 I11";

    #[test]
    fn one_that_code_or_document_forgets_is_found() {
        assert_eq!(found(&format!("// {ALL}\n"), ALL), [""; 0]);
        assert_eq!(
            found(&format!("// {}\n", ALL.replace("I7 ", "")), ALL),
            ["no code says that it keeps I7"]
        );
        assert_eq!(found(&format!("// {ALL}\n"), &ALL.replace("I10", "")), ["I10 is not explained"]);
    }

    #[test]
    fn a_name_in_code_or_in_a_test_keeps_nothing() {
        let code = format!(
            "// {}\nfn a(I4: u8) {{}}\n#[cfg(test)]\nmod tests {{\n // I4\n}}\n",
            ALL.replace("I4 ", "")
        );
        assert_eq!(found(&code, ALL), ["no code says that it keeps I4"]);
    }

    #[test]
    fn an_invariant_that_does_not_exist_is_found_and_a_longer_name_is_none() {
        assert_eq!(found(&format!("// {ALL} I12 I3x EI99\n"), ALL), ["there is no invariant I12"]);
    }
}
