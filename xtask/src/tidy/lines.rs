//! `cargo xtask tidy --lines`: the length of each crate, by two measures.
//!
//! *Source* counts every line of every Rust file below `crates/*/src`, inline tests included. *Code* counts
//! those lines that are neither blank nor only a comment, without files and folders named `tests` or
//! `testing`; inline tests count.

use super::tree::{File, Tree};
use std::collections::BTreeMap;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Lines {
    source: usize,
    code: usize,
}

/// Returns a table with a row for each crate, and the sum.
pub(super) fn table(tree: &Tree) -> String {
    let counted = count(tree);
    let sum = |of: fn(&Lines) -> usize| counted.values().map(of).sum();
    let total = Lines { source: sum(|lines| lines.source), code: sum(|lines| lines.code) };
    let row = |name: &str, Lines { source, code }: Lines| format!("{name:16} {source:>7} {code:>7}\n");
    let rows = counted.iter().map(|(name, lines)| row(name, *lines)).collect::<String>();
    format!("{:16} {:>7} {:>7}\n{rows}{}", "crates/", "source", "code", row("all", total))
}

/// The lines of each crate, by its folder below `crates/`.
fn count(tree: &Tree) -> BTreeMap<&str, Lines> {
    let mut counted: BTreeMap<&str, Lines> = BTreeMap::new();
    for file in tree.files() {
        let folder = file.path.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/"));
        let (Some((name, inside)), Some(_)) = (folder, &file.rust) else { continue };
        let lines = counted.entry(name).or_default();
        lines.source += file.text.lines().count();
        if !inside.split('/').any(|part| matches!(part.trim_end_matches(".rs"), "tests" | "testing")) {
            lines.code += code(file);
        }
    }
    counted
}

fn code(file: &File) -> usize {
    let Some(rust) = &file.rust else { return 0 };
    let views = file.text.lines().zip(rust.comments().lines());
    views.filter(|(text, comments)| !text.trim().is_empty() && text.trim() != comments.trim()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_counts_every_line_and_code_excludes_blanks_comments_and_tests() {
        let text = "//! Header.\n\nfn a() {} // why\n/* b\n   c */\nconst D: &str = \"\n// e\n\";\n";
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", text),
            ("crates/a/src/b/tests.rs", "fn f() {}\n"),
            ("crates/a/src/testing/g.rs", "fn h() {}\n"),
            ("crates/a/tests/i.rs", "fn j() {}\n"),
            ("crates/k/src/lib.rs", "#[cfg(test)]\nmod tests {}\n"),
        ]);
        let counted = count(&tree);
        assert_eq!(counted["a"], Lines { source: 10, code: 4 });
        assert_eq!(counted["k"], Lines { source: 2, code: 2 });
    }
}
