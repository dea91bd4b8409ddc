//! No file depends on the machine of its author: no absolute path of a home folder, and no package source
//! except the public registry.

use super::{Finding, Rule};
use crate::tidy::tree::Tree;

pub(super) const RULE: Rule = Rule {
    name: "machine",
    fix: "write paths relative to the repository, and leave registries to each person's own configuration",
    find,
};

/// Folders at the root of a file system that contain home folders or checkouts.
const FOLDERS: [&str; 4] = ["work", "root", "home", "Users"];

/// The only source that a lock file may name.
const PUBLIC_REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Settings that replace the registry.
const REGISTRIES: [&str; 4] = ["[source.", "[registries", "replace-with", "registry-index"];

fn find(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files() {
        for (index, line) in file.text.lines().enumerate() {
            let mut report = |what: String| findings.push(Finding::new(&file.path, index + 1, what));
            if let Some(folder) = FOLDERS.into_iter().find(|folder| names_folder(line, folder)) {
                report(format!("an absolute path below `{folder}` at the root"));
            }
            if file.path.ends_with("Cargo.lock")
                && line
                    .strip_prefix("source = ")
                    .is_some_and(|source| source.trim_matches('"') != PUBLIC_REGISTRY)
            {
                report(format!("a package that is not from the public registry: {line}"));
            }
            if file.path.ends_with(".toml") && REGISTRIES.iter().any(|key| line.contains(key)) {
                report(format!("a registry: {line}"));
            }
        }
    }
    findings
}

/// Whether a path in `line` begins with `/folder/`.
fn names_folder(line: &str, folder: &str) -> bool {
    let wanted = format!("/{folder}/");
    line.match_indices(&wanted).any(|(at, _)| {
        !line[..at].ends_with(|before: char| {
            before.is_alphanumeric() || matches!(before, '_' | '-' | '.' | '}' | '*')
        })
    })
}

#[cfg(test)]
mod tests {
    use super::{super::tests::lines, *};

    #[test]
    fn absolute_path_is_found_and_a_relative_one_passes() {
        let absolute = format!("see {}", ["", "home", "me", "notes"].join("/"));
        assert_eq!(lines(RULE, "a.md", &absolute), [1]);
        assert_eq!(lines(RULE, "a.md", "see docs/home/page.md and https://example.org/work/x\n"), [0; 0]);
    }

    #[test]
    fn source_other_than_the_public_registry_is_found() {
        assert_eq!(lines(RULE, "Cargo.lock", &format!("source = \"{PUBLIC_REGISTRY}\"\n")), [0; 0]);
        assert_eq!(lines(RULE, "Cargo.lock", "source = \"registry+https://mirror.example/index\"\n"), [1]);
        let redirect = format!("{}crates-io]\n", REGISTRIES[0]);
        assert_eq!(lines(RULE, ".cargo/config.toml", &redirect), [1]);
    }
}
