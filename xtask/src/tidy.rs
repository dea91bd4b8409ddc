//! `cargo xtask tidy`: reads the tree once, checks every rule, and lists all violations.
//!
//! Each rule has a file in `rules/`, with a test that finds a planted violation and passes a good file.

mod lines;
mod modules;
mod rules;
mod rust_source;
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
    /// Only print how long each crate is: every line below src, and lines of code outside `tests` and
    /// `testing`
    #[arg(long)]
    lines: bool,
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
    if options.lines {
        drop(io::stdout().write_all(lines::table(&tree).as_bytes()));
        return true;
    }
    if options.invariants {
        drop(io::stdout().write_all(rules::invariants(&tree).as_bytes()));
        return true;
    }
    let (report, holds) = hold(&tree, &rules::ALL);
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
        let tree = Tree::of(&[("a.rs", "fn a() {}\n// TODO\n// FIXME\nselect! {}\n")]);
        let rules: Vec<Rule> =
            rules::ALL.into_iter().filter(|rule| ["leftovers", "selects"].contains(&rule.name)).collect();
        let (report, holds) = hold(&tree, &rules);
        let lines: Vec<&str> = report.lines().filter(|line| !line.starts_with("    ")).collect();
        assert!(!holds);
        assert_eq!(
            lines,
            [
                "a.rs:4: a `select!` that is not biased",
                "",
                "a.rs:2: `TODO`",
                "a.rs:3: `FIXME`",
                "",
                "tidy: 2 rules, 1 files, 3 violations",
            ]
        );
        assert!(rules.iter().all(|rule| report.contains(&format!("    rule `{}`: {}", rule.name, rule.fix))));
    }

    #[test]
    fn good_tree_has_no_violation() {
        let (report, holds) = hold(&Tree::of(&[("a.rs", "//! What lives here.\n")]), &[]);
        assert!(holds, "{report}");
    }
}
