//! `cargo xtask tidy`: reads the tree once, checks every rule, and lists all violations.
//!
//! Each rule has a test that finds a planted violation and passes a good file. What rustfmt, clippy, cargo-deny
//! and rustc check is theirs: `clippy.toml`, `deny.toml` and the lints of the workspace say what.

mod arrows;
mod circles;
mod invariants;
mod texts;
mod tree;

use std::io::{self, Write};
use tree::Tree;

/// One rule.
#[derive(Debug, Clone, Copy)]
struct Rule {
    name: &'static str,
    /// What to do about a violation.
    fix: &'static str,
    find: fn(&Tree) -> Vec<Finding>,
}

/// In the order in which they are checked and printed.
const RULES: [Rule; 8] = [
    arrows::RULE,
    circles::RULE,
    texts::WORDS,
    invariants::RULE,
    texts::COUNTS,
    texts::PROOFS,
    texts::PATHS,
    texts::LINKS,
];

/// One place where a rule is broken.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    /// Counted from 1.
    line: usize,
    what: String,
}

impl Finding {
    fn new(path: impl Into<String>, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.into(), line, what: what.into() }
    }
}

/// The options.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct Options {
    /// Only list, for each invariant, the files that keep it and the tests that show it
    #[arg(long)]
    invariants: bool,
}

/// Prints every violation. Returns whether there is none.
pub(crate) fn run(options: Options) -> bool {
    let tree = match Tree::read() {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("tidy: {error}");
            return false;
        }
    };
    if options.invariants {
        drop(io::stdout().write_all(invariants::table(&tree).as_bytes()));
        return true;
    }
    let (report, holds) = hold(&tree, &RULES);
    // A pipe that is closed early loses only text: the exit status has the result.
    drop(io::stdout().write_all(report.as_bytes()));
    holds
}

/// Returns the report, and whether the tree holds every rule.
fn hold(tree: &Tree, rules: &[Rule]) -> (String, bool) {
    let mut report = String::new();
    let mut count = 0;
    for rule in rules {
        let mut findings = (rule.find)(tree);
        findings.sort();
        count += findings.len();
        for Finding { path, line, what } in &findings {
            report += &format!("{path}:{line}: {what}\n");
        }
        if !findings.is_empty() {
            report += &format!("    rule `{}`: {}\n\n", rule.name, rule.fix);
        }
    }
    report += &format!("tidy: {} rules, {} files, {count} violations\n", rules.len(), tree.files().len());
    (report, count == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_violations_are_listed_with_place_rule_and_fix() {
        let tree = Tree::of(&[("docs/a.md", "[a](b)\nsomebody\nwhom\n"), ("a.rs", "//! What it does.\n")]);
        let rules = [texts::WORDS, texts::LINKS];
        let (report, holds) = hold(&tree, &rules);
        let lines: Vec<&str> = report.lines().filter(|line| !line.starts_with("    ")).collect();
        assert!(!holds);
        assert_eq!(
            lines,
            [
                "docs/a.md:2: `somebody`",
                "docs/a.md:3: `whom`",
                "",
                "docs/a.md:1: `b` leads nowhere",
                "",
                "tidy: 2 rules, 2 files, 3 violations",
            ]
        );
        assert!(rules.iter().all(|rule| report.contains(&format!("    rule `{}`: {}", rule.name, rule.fix))));
        assert!(hold(&Tree::of(&[("docs/a.md", "good\n")]), &rules).1);
    }
}
