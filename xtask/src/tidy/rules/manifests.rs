//! Each package has the licence of the project, and inherits the lints and the edition of the workspace.

use super::{Finding, Rule};
use crate::tidy::tree::Tree;

pub(super) const RULE: Rule = Rule {
    name: "manifests",
    fix: "inherit: `license.workspace = true`, `edition.workspace = true`, and `[lints]` with \
          `workspace = true`; both licence texts stand at the root",
    find,
};

const LICENSE: &str = "MIT OR Apache-2.0";
const INHERITED: [&str; 3] =
    ["edition.workspace = true", "license.workspace = true", "rust-version.workspace = true"];
const TEXTS: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

fn find(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in tree.packages() {
        let path = package.manifest.display().to_string();
        let mut report = |what: String| findings.push(Finding::new(&path, 1, what));
        if package.license.as_deref() != Some(LICENSE) {
            report(format!("the licence is not {LICENSE}"));
        }
        let text = tree.files().iter().find(|file| file.path == path).map_or("", |file| &file.text);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        if !lines.windows(2).any(|pair| pair == ["[lints]", "workspace = true"]) {
            report("the lints of the workspace are not inherited".into());
        }
        for line in INHERITED {
            if !lines.contains(&line) {
                report(format!("`{line}` is missing"));
            }
        }
    }
    for text in TEXTS {
        if !tree.files().iter().any(|file| file.path == text && !file.text.is_empty()) {
            findings.push(Finding::new(text, 1, "this licence text is missing"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Package;

    fn found(license: &str, manifest: &str) -> usize {
        let package = Package {
            name: "vvm-clock".into(),
            license: Some(license.into()),
            manifest: "crates/clock/Cargo.toml".into(),
            dependencies: Vec::new(),
            targets: Vec::new(),
            features: Default::default(),
        };
        let files = [("crates/clock/Cargo.toml", manifest), (TEXTS[0], "x"), (TEXTS[1], "x")];
        find(&Tree::with_packages(&files, vec![package])).len()
    }

    #[test]
    fn manifest_that_does_not_inherit_is_found() {
        let good = format!("[package]\n{}\n[lints]\nworkspace = true\n", INHERITED.join("\n"));
        assert_eq!(found(LICENSE, &good), 0);
        assert_eq!(found("GPL-3.0", &good), 1);
        assert_eq!(found(LICENSE, &good.replace("[lints]", "[lints.rust]")), 1);
        assert_eq!(found(LICENSE, &good.replace(INHERITED[0], "edition = \"2021\"")), 1);
    }

    #[test]
    fn missing_licence_text_is_found() {
        assert_eq!(find(&Tree::of(&[("LICENSE-MIT", "x")])).len(), 1);
    }
}
