//! Imports inside a crate run downward: the children of a folder, each with everything below it, do not
//! depend on each other in a circle. Tests are exempt.

use super::{Finding, Rule};
use crate::tidy::{
    modules::{Modules, circles},
    tree::Tree,
};

pub(super) const RULE: Rule = Rule {
    name: "circles",
    fix: "move what both sides need below both, or pass it as an argument or a trait",
    find,
};

fn find(tree: &Tree) -> Vec<Finding> {
    folders(tree).flat_map(|folder| in_crate(tree, &folder)).collect()
}

/// Returns the source folders of the crates below `crates/`.
fn folders(tree: &Tree) -> impl Iterator<Item = String> {
    let folders = tree.packages().iter().map(|package| package.folder());
    let folders = folders.filter(|folder| folder.starts_with("crates"));
    folders.map(|folder| format!("{}/src/", folder.display()))
}

fn in_crate(tree: &Tree, folder: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for circle in circles(Modules::read(tree, folder).imports()) {
        let parts = circle.parts.join("`, `");
        findings.push(Finding::new(folder, 1, format!("`{parts}` import each other in a circle")));
        findings.extend(circle.upward.iter().map(|import| {
            let what = format!("`{}` is imported upward, from `{}`", import.name, import.source());
            Finding::new(import.file, import.line, what)
        }));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Package;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let package = Package {
            name: "a".into(),
            license: None,
            manifest: "crates/a/Cargo.toml".into(),
            dependencies: Vec::new(),
            targets: Vec::new(),
            features: Default::default(),
        };
        let tree = Tree::with_packages(files, vec![package]);
        find(&tree).iter().map(|Finding { path, line, what }| format!("{path}:{line}: {what}")).collect()
    }

    const ROOT: (&str, &str) = ("crates/a/src/lib.rs", "mod high;\nmod low;\n");
    const HIGH: (&str, &str) = (
        "crates/a/src/high.rs",
        "use crate::low::{run, stop};\npub struct Name;\nfn a() { run(); stop() }\n",
    );

    #[test]
    fn upward_import_is_found_with_its_circle() {
        let low = "pub fn run(name: crate::high::Name) {}\npub fn stop() {}\n";
        assert_eq!(
            found(&[ROOT, HIGH, ("crates/a/src/low.rs", low)]),
            [
                "crates/a/src/:1: `high`, `low` import each other in a circle",
                "crates/a/src/low.rs:1: `Name` is imported upward, from `high`",
            ]
        );
    }

    #[test]
    fn downward_imports_and_imports_of_tests_pass() {
        let low = "pub fn run() {}\npub fn stop() {}\n#[cfg(test)]\nmod tests { use crate::high::Name; }\n";
        assert_eq!(found(&[ROOT, HIGH, ("crates/a/src/low.rs", low)]), [""; 0]);
    }
}
