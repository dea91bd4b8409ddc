//! Only `vvm-deadman` has `unsafe`. Every other crate forbids it at its root.

use super::{Finding, Rule};
use crate::tidy::tree::Tree;

pub(super) const RULE: Rule = Rule {
    name: "unsafe",
    fix: "put a safe wrapper into `vvm-deadman`, and `#![forbid(unsafe_code)]` into every other crate's root",
    find,
};

/// The kinds of targets that are crates of their own, except tests.
const ROOTS: [&str; 4] = ["lib", "bin", "example", "proc-macro"];

fn find(tree: &Tree) -> Vec<Finding> {
    let outside = |path: &&str| !path.starts_with("crates/deadman/");
    let mut findings = Vec::new();
    for (path, rust) in tree.rust().filter(|(path, _)| outside(path)) {
        let found = rust.lines_with("unsafe");
        findings.extend(found.map(|line| Finding::new(path, line, "`unsafe` outside `vvm-deadman`")));
    }
    let roots = tree
        .packages()
        .iter()
        .flat_map(|package| &package.targets)
        .filter(|target| target.kind.iter().any(|kind| ROOTS.contains(&kind.as_str())))
        .map(|target| target.root.display().to_string());
    for root in roots.filter(|root| outside(&root.as_str())) {
        let forbids = |(path, code): (&str, &str)| path == root && code.contains("#![forbid(unsafe_code)]");
        if !tree.rust().any(|(path, rust)| forbids((path, rust.code()))) {
            findings.push(Finding::new(root, 1, "this crate's root does not forbid `unsafe`"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{super::tests::lines, *};
    use crate::workspace::{Package, Target};

    fn clock() -> Package {
        Package {
            name: "vvm-clock".into(),
            license: None,
            manifest: "crates/clock/Cargo.toml".into(),
            dependencies: Vec::new(),
            targets: vec![Target {
                name: String::new(),
                is_tested: true,
                kind: vec!["lib".into()],
                root: "crates/clock/src/lib.rs".into(),
            }],
            features: Default::default(),
        }
    }

    #[test]
    fn unsafe_outside_deadman_is_found() {
        assert_eq!(lines(RULE, "crates/clock/src/x.rs", "//! x\nfn a() { unsafe { b() } }\n"), [2]);
        assert_eq!(lines(RULE, "crates/deadman/src/x.rs", "fn a() { unsafe { b() } }\n"), [0; 0]);
        assert_eq!(lines(RULE, "crates/clock/src/x.rs", "// unsafe is said here\n"), [0; 0]);
    }

    #[test]
    fn crate_root_without_forbid_is_found() {
        let found =
            |text| find(&Tree::with_packages(&[("crates/clock/src/lib.rs", text)], vec![clock()])).len();
        assert_eq!(found("//! Time.\n#![forbid(unsafe_code)]\n"), 0);
        assert_eq!(found("//! Time. #![forbid(unsafe_code)]\n"), 1);
    }
}
