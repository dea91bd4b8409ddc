//! What a document says is shown by a test is: the test exists. And the files in which an invariant is said
//! to be kept name it.
//!
//! Under a heading `### I3 …` of the document, the links of a paragraph that begins with "Kept in" lead to
//! files with `I3` in a comment, and the names in backticks of one that begins with "Shown by" are functions.
//! A command of several words in backticks is taken at its word. The same goes for the last column of each
//! table of `docs/peers.md`.

use super::{Finding, Rule, invariants::DOCUMENT};
use crate::tidy::{rust_source::words, tree::Tree};

pub(super) const RULE: Rule = Rule {
    name: "proofs",
    fix: "under each invariant's heading in docs/architecture.md, let `Kept in` link files that name it in a comment, and \
          `Shown by` name tests that exist; likewise the last column of docs/peers.md",
    find,
};

fn find(tree: &Tree) -> Vec<Finding> {
    let text = tree.files().iter().find(|file| file.path == DOCUMENT).map_or("", |file| &file.text);
    let of_invariants = sections(text).flat_map(|section| in_section(tree, &section));
    of_invariants.chain(of_complaints(tree)).collect()
}

/// What other projects' users complain about, a row each.
const COMPLAINTS: &str = "docs/peers.md";

fn of_complaints(tree: &Tree) -> Vec<Finding> {
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

/// An invariant's heading, and the paragraphs under it, each joined to one line.
struct Section<'text> {
    invariant: &'text str,
    line: usize,
    paragraphs: Vec<String>,
}

fn sections(text: &str) -> impl Iterator<Item = Section<'_>> {
    let lines: Vec<&str> = text.lines().collect();
    let headings =
        lines.iter().enumerate().filter(|(_, line)| line.starts_with("### I")).map(|(index, _)| index);
    headings
        .map(|index| {
            let body = lines[index + 1..].iter().take_while(|line| !line.starts_with('#')).copied();
            Section {
                invariant: lines[index].trim_start_matches("### ").split(' ').next().unwrap_or_default(),
                line: index + 1,
                paragraphs: body.collect::<Vec<_>>().join("\n").split("\n\n").map(str::to_owned).collect(),
            }
        })
        .collect::<Vec<_>>()
        .into_iter()
}

fn in_section(tree: &Tree, section: &Section<'_>) -> Vec<Finding> {
    let paragraph = |opening: &str| {
        let found = section.paragraphs.iter().map(|paragraph| paragraph.trim());
        found.filter(|paragraph| paragraph.starts_with(opening)).collect::<Vec<_>>().join("\n")
    };
    let (kept, shown) = (paragraph("Kept in"), paragraph("Shown by"));
    let mut findings = Vec::new();
    let mut report = |what: String| findings.push(Finding::new(DOCUMENT, section.line, what));
    let Section { invariant, .. } = section;

    let files: Vec<&str> =
        kept.split("](../").skip(1).filter_map(|rest| Some(&rest[..rest.find(')')?])).collect();
    for file in &files {
        let names_it = |comments: &str| words(comments, invariant).next().is_some();
        if !tree.rust().any(|(path, rust)| path == *file && names_it(rust.comments())) {
            report(format!("{invariant} is said to be kept in {file}, which does not name it"));
        }
    }
    if files.is_empty() {
        report(format!("no file is said to keep {invariant}"));
    }

    let tests = quoted(&shown);
    for test in missing(tree, &tests) {
        report(format!("{invariant} is said to be shown by `{test}`, which does not exist"));
    }
    if tests.is_empty() {
        report(format!("no test is said to show {invariant}"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(document: &str) -> Vec<String> {
        let code = "//! Keeps I4.\n#[test]\nfn it_tightens() {}\n";
        let tree = Tree::of(&[(DOCUMENT, document), ("crates/deadman/src/lib.rs", code)]);
        find(&tree).into_iter().map(|finding| finding.what).collect()
    }

    const KEPT: &str = "Kept in [lib.rs](../crates/deadman/src/lib.rs).";

    #[test]
    fn what_is_so_passes() {
        assert_eq!(
            found(&format!("### I4 Tight\n\n{KEPT}\n\nShown\nby\n\nShown by `it_tightens`,\n`cargo x y`.\n")),
            [""; 0]
        );
    }

    #[test]
    fn a_file_that_does_not_name_it_is_found() {
        assert_eq!(
            found(&format!("### I5 Early\n\n{KEPT}\n\nShown by `it_tightens`.\n")),
            ["I5 is said to be kept in crates/deadman/src/lib.rs, which does not name it"]
        );
    }

    #[test]
    fn a_test_that_does_not_exist_is_found() {
        assert_eq!(
            found(&format!("### I4 Tight\n\n{KEPT}\n\nShown by `it_loosens`.\n")),
            ["I4 is said to be shown by `it_loosens`, which does not exist"]
        );
    }

    #[test]
    fn saying_nothing_is_found() {
        assert_eq!(
            found("### I4 Tight\n\nIt is.\n\n## Next\n"),
            ["no file is said to keep I4", "no test is said to show I4"]
        );
    }

    #[test]
    fn a_complaint_without_a_test_that_exists_is_found() {
        let table = "| complaint | here | shown by |\n|---|---|---|\n| `a` | b | `it_tightens`; `cargo x y` |\n\
                     | a | b | `it_loosens` |\n| a | b | c |\n";
        let code = "#[test]\nfn it_tightens() {}\n";
        let tree = Tree::of(&[(COMPLAINTS, table), ("crates/deadman/src/lib.rs", code)]);
        let found = of_complaints(&tree).into_iter().map(|finding| (finding.line, finding.what));
        let expected = [
            (4, "it is said to be shown by `it_loosens`, which does not exist".to_owned()),
            (5, "nothing is said to show it".to_owned()),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }
}
