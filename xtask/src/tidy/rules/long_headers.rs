//! A module's header is short. Only crate roots, contracts and error tables may have longer ones.

use super::{Finding, Rule};
use crate::tidy::tree::Tree;
use std::path::Path;

pub(super) const RULE: Rule = Rule {
    name: "long headers",
    fix: "shorten the `//!` header: what the module does, and why; details belong to its items",
    find,
};

const LONGEST: usize = 5;

fn find(tree: &Tree) -> Vec<Finding> {
    let is_root = |path: &str| {
        let mut targets = tree.packages().iter().flat_map(|package| &package.targets);
        targets.any(|target| target.root == Path::new(path))
    };
    let mut findings = Vec::new();
    for file in tree.files().iter().filter(|file| file.rust.is_some() && !is_root(&file.path)) {
        let header: Vec<&str> = file.text.lines().take_while(|line| line.starts_with("//!")).collect();
        let is_contract = header.iter().any(|line| line.contains('|') || line.contains("contract"));
        if header.len() > LONGEST && !is_contract {
            let what = format!("a header of {} lines, over {LONGEST}", header.len());
            findings.push(Finding::new(&file.path, LONGEST + 1, what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{super::tests::lines, *};
    use crate::workspace::{Package, Target};

    #[test]
    fn header_above_the_limit_is_found() {
        assert_eq!(lines(RULE, "a.rs", &"//! x\n".repeat(LONGEST)), [0; 0]);
        assert_eq!(lines(RULE, "a.rs", &"//! x\n".repeat(LONGEST + 1)), [LONGEST + 1]);
    }

    #[test]
    fn crate_root_contract_and_table_may_be_longer() {
        let long = "//! x\n".repeat(LONGEST);
        assert_eq!(lines(RULE, "a.rs", &format!("{long}//! The contract.\n")), [0; 0]);
        assert_eq!(lines(RULE, "a.rs", &format!("{long}//! | error | answer |\n")), [0; 0]);
        let root = Target {
            name: String::new(),
            is_tested: true,
            kind: vec!["lib".into()],
            root: "crates/a/src/lib.rs".into(),
        };
        let package = Package {
            name: "a".into(),
            license: None,
            manifest: "crates/a/Cargo.toml".into(),
            dependencies: Vec::new(),
            targets: vec![root],
            features: Default::default(),
        };
        let text = "//! x\n".repeat(LONGEST + 1);
        let files = [("crates/a/src/lib.rs", text.as_str()), ("crates/a/src/b.rs", &text)];
        let findings = find(&Tree::with_packages(&files, vec![package]));
        assert_eq!(findings.iter().map(|found| &found.path).collect::<Vec<_>>(), ["crates/a/src/b.rs"]);
    }
}
