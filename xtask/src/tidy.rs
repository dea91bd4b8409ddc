//! `cargo xtask tidy`: reads the tree once, holds every rule against it, lists all violations at once.
//!
//! What lives here: the list of rules and how a violation is printed. Each rule has a file of its own in `rules/`, with
//! a test that shows it catching a planted violation and passing a good file.

mod rules;
mod rust_source;
mod tree;

use tree::Tree;

/// One rule of the house.
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

/// Prints every violation; whether there was none.
pub(crate) fn run() -> bool {
    let tree = match Tree::read() {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("tidy: {error}");
            return false;
        }
    };
    let mut count = 0;
    for rule in rules::ALL {
        let mut findings = (rule.find)(&tree);
        findings.sort();
        count += findings.len();
        for finding in &findings {
            println!("{}:{}: {}", finding.path, finding.line, finding.what);
        }
        if !findings.is_empty() {
            println!("    rule `{}`: {}\n", rule.name, rule.fix);
        }
    }
    println!("tidy: {} rules, {} files, {count} violations", rules::ALL.len(), tree.files().len());
    count == 0
}
