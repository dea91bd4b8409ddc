//! Every invariant I1–I11 is named where code keeps it, in a test that shows it, and in the document.
//!
//! A test shows an invariant if a comment of a test file or a public suite says `Shows I4.`, alone or in a
//! list: `Shows I2, I7.`. Every other mention outside tests names code that keeps it.

use super::{Finding, Rule, tree::Tree};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const RULE: Rule = Rule {
    name: "invariants",
    fix: "name the invariant, `(I3)`, in a comment of the code that keeps it; write `Shows I3.` above a \
          test that shows it; explain it in docs/contributing/architecture.md",
    find,
};

/// I1 to I11.
const LAST: u32 = 11;
const DOCUMENT: &str = "docs/contributing/architecture.md";

/// The places that name one invariant.
#[derive(Debug, Default)]
struct Mentions<'tree> {
    /// Files with code that keeps it.
    kept: BTreeSet<&'tree str>,
    /// The tests that show it, each as `path:line`.
    shown: BTreeSet<(&'tree str, usize)>,
}

fn find(tree: &Tree) -> Vec<Finding> {
    let (mentions, mut findings) = mentions(tree);
    let text = tree.files().iter().find(|file| file.path == DOCUMENT).map_or("", |file| &file.text);
    let explained: BTreeSet<u32> = named(text).map(|(_, number)| number).collect();
    for (number, Mentions { kept, shown }) in mentions {
        let mut report = |path: &str, what: String| findings.push(Finding::new(path, 1, what));
        if kept.is_empty() {
            report("crates", format!("no code says that it keeps I{number}"));
        }
        if shown.is_empty() {
            report("crates", format!("no test says `Shows I{number}.`"));
        }
        if !explained.contains(&number) {
            report(DOCUMENT, format!("I{number} is not explained"));
        }
    }
    findings
}

/// Lists, for each invariant, the files that keep it and the tests that show it.
pub(super) fn table(tree: &Tree) -> String {
    let mut table = String::new();
    for (number, Mentions { kept, shown }) in mentions(tree).0 {
        table += &format!("I{number}\n");
        table.extend(kept.iter().map(|path| format!("  kept   {path}\n")));
        table.extend(shown.iter().map(|(path, line)| format!("  shown  {path}:{line}\n")));
    }
    table
}

fn mentions(tree: &Tree) -> (BTreeMap<u32, Mentions<'_>>, Vec<Finding>) {
    let mut mentions: BTreeMap<u32, Mentions<'_>> =
        (1..=LAST).map(|number| (number, Mentions::default())).collect();
    let mut findings = Vec::new();
    let scanned = |path: &str| path.starts_with("crates/") || path.starts_with("evidence/");
    for (path, rust) in tree.rust().filter(|(path, _)| scanned(path)) {
        for (text, line) in rust.comments.lines().zip(1..) {
            for (at, number) in named(text) {
                let Some(mentions) = mentions.get_mut(&number) else {
                    findings.push(Finding::new(path, line, format!("there is no invariant I{number}")));
                    continue;
                };
                if is_shown(&text[..at]) {
                    mentions.shown.insert((path, line));
                } else if path.starts_with("crates/") && !rust.is_test(line) {
                    mentions.kept.insert(path);
                }
            }
        }
    }
    (mentions, findings)
}

/// Returns whether an invariant behind the text `before` is one of a list as in `Shows I1, I2.`
fn is_shown(before: &str) -> bool {
    let listed = |word: &str| word.strip_prefix('I').is_some_and(|rest| rest.ends_with(','));
    before.split_whitespace().rev().find(|word| !listed(word)) == Some("Shows")
}

/// Returns position and number of each invariant in `text`: an `I` and a number, as a word of its own.
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

    const ALL: &str = "I1 I2 I3 I4 I5 I6 I7 I8 I9 I10 I11";
    const SHOWN: &str = "/// Shows I1, I2, I3, I4, I5, I6, I7, I8, I9, I10, I11.\n#[test]\nfn a() {}\n";

    fn found(code: &str, tests: &str, document: &str) -> Vec<String> {
        let files = [("crates/a/src/lib.rs", code), ("crates/a/tests/b.rs", tests), (DOCUMENT, document)];
        find(&Tree::of(&files)).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn invariant_missing_in_code_test_or_document_is_found() {
        let code = format!("// {ALL}\n");
        assert_eq!(found(&code, SHOWN, ALL), [""; 0]);
        assert_eq!(found(&code.replace("I7 ", ""), SHOWN, ALL), ["no code says that it keeps I7"]);
        assert_eq!(found(&code, &SHOWN.replace("I7, ", ""), ALL), ["no test says `Shows I7.`"]);
        assert_eq!(found(&code, SHOWN, &ALL.replace("I10", "")), ["I10 is not explained"]);
    }

    #[test]
    fn mention_in_a_test_is_not_a_mention_in_code() {
        let all_but_4 = ALL.replace("I4 ", "");
        let code = format!("// {all_but_4}\nfn a(I4: u8) {{}}\n#[cfg(test)]\nmod tests {{\n // I4\n}}\n");
        assert_eq!(found(&code, SHOWN, ALL), ["no code says that it keeps I4"]);
        let suite = format!("// {all_but_4}\n/// Shows I4.\npub fn case() {{}}\n");
        assert_eq!(found(&suite, SHOWN, ALL), ["no code says that it keeps I4"]);
    }

    #[test]
    fn unknown_invariant_is_found_and_a_longer_name_is_ignored() {
        let code = format!("// {ALL} I12 I3x EI99\n");
        assert_eq!(found(&code, SHOWN, ALL), ["there is no invariant I12"]);
    }

    #[test]
    fn table_lists_files_and_tests() {
        let tree = Tree::of(&[("crates/a/src/lib.rs", "// I4\n/// Shows I4.\nfn a() {}\n")]);
        assert!(table(&tree).contains("I4\n  kept   crates/a/src/lib.rs\n  shown  crates/a/src/lib.rs:2\n"));
    }
}
