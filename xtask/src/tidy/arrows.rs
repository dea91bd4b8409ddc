//! Dependencies between crates point downward, as listed here. Only drivers depend on databases.

use super::{Finding, Rule, tree::Tree};
use crate::workspace::{Dependency, Package};

pub(super) const RULE: Rule = Rule {
    name: "arrows",
    fix: "move the code to where it may point, or turn the arrow round with a trait; the list stands in \
          xtask/src/tidy/arrows.rs and docs/contributing/architecture.md",
    find,
};

/// The crates, and the dependencies that each may have. Packages below `evidence/`, `examples/` and `xtask`
/// may depend on any crate, and no crate may depend on them.
const MAP: [(&str, &[&str]); 10] = [
    ("vvm-clock", &[]),
    ("testing-time", &["vvm-clock"]),
    ("vvm-deadman", &["vvm-clock"]),
    ("vvm-containment", &["vvm-clock", "vvm-deadman"]),
    ("ielections", &["vvm-clock", "vvm-deadman"]),
    ("vvm-storage", &["vvm-clock", "ielections"]),
    ("vvm-orch", &["vvm-clock", "ielections"]),
    ("primary-only", &["vvm-clock", "ielections"]),
    ("vvm-host", &["vvm-clock", "vvm-deadman", "ielections", "primary-only", "vvm-orch", "vvm-storage"]),
    (
        "vvm-cli",
        &["vvm-clock", "vvm-deadman", "ielections", "vvm-orch", "vvm-storage", "vvm-containment", "vvm-host"],
    ),
];

/// Dependencies that exist only behind the feature `testing`: the clocks that tests move.
const OPTIONAL: [(&str, &str); 2] = [("ielections", "testing-time"), ("vvm-host", "testing-time")];

/// Dependencies that only one crate may have. Every other crate compiles without a database, and a library has no command
/// line, no settings file and no log.
const RESERVED: [(&str, &[&str]); 2] = [
    (
        "vvm-storage",
        &["aws-config", "aws-sdk-dynamodb", "prost", "rusqlite", "scylla", "sled", "tokio-postgres"],
    ),
    ("vvm-cli", &["clap", "clap_complete", "clap_mangen", "toml", "tracing-subscriber"]),
];

fn find(tree: &Tree) -> Vec<Finding> {
    tree.packages().iter().flat_map(|package| of_package(package, tree.packages())).collect()
}

fn of_package(package: &Package, all: &[Package]) -> Vec<Finding> {
    let manifest = package.manifest.display().to_string();
    if is_free(package) {
        return Vec::new();
    }
    let Some((_, allowed)) = MAP.iter().find(|(name, _)| *name == package.name) else {
        let what = format!("crate `{}` isn't on the map", package.name);
        return vec![Finding::new(manifest, 1, what)];
    };
    let finding = |dependency: &Dependency| {
        let (package, name) = (&package.name, dependency.name.as_str());
        let is_member = all.iter().any(|package| package.name == name);
        let behind_feature = dependency.optional && OPTIONAL.contains(&(package, name));
        let is_ours = dependency.path.is_some() || is_member;
        let others = RESERVED.iter().find(|(owner, names)| package != owner && names.contains(&name));
        let what = match (is_ours, dependency.kind.as_deref() == Some("dev"), others) {
            (true, true, _) if !is_member => format!("`{name}` isn't a member of the workspace"),
            (true, false, _) if !behind_feature && !allowed.contains(&name) => {
                format!("`{package}` may not point to `{name}`")
            }
            (false, false, Some((owner, _))) => {
                format!("`{package}` may not know `{name}`, which is for `{owner}`")
            }
            _ => return None,
        };
        Some(Finding::new(&manifest, 1, what))
    };
    package.dependencies.iter().filter_map(finding).collect()
}

fn is_free(package: &Package) -> bool {
    let folder = package.folder();
    package.name == "xtask" || ["evidence", "examples"].iter().any(|free| folder.starts_with(free))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(folder: &str, name: &str, dependencies: &[(&str, Option<&str>, bool)]) -> Package {
        let dependency = |(name, kind, optional): &(&str, Option<&str>, bool)| Dependency {
            name: (*name).into(),
            kind: kind.map(Into::into),
            optional: *optional,
            path: None,
        };
        Package {
            manifest: format!("{folder}/{name}/Cargo.toml").into(),
            dependencies: dependencies.iter().map(dependency).collect(),
            ..Package::named(name)
        }
    }

    fn found(packages: Vec<Package>) -> Vec<String> {
        find(&Tree::with_packages(&[], packages)).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn upward_dependency_is_found_and_a_downward_one_passes() {
        let clock = || package("crates", "vvm-clock", &[]);
        assert_eq!(
            found(vec![clock(), package("crates", "vvm-deadman", &[("vvm-clock", None, false)])]),
            [""; 0]
        );
        let upward = package("crates", "vvm-clock", &[("vvm-deadman", Some("build"), false)]);
        assert_eq!(
            found(vec![upward, package("crates", "vvm-deadman", &[])]),
            ["`vvm-clock` may not point to `vvm-deadman`"]
        );
    }

    #[test]
    fn dependency_of_tests_passes_and_an_unlisted_one_of_a_feature_is_found() {
        let testing_time = || package("crates", "testing-time", &[]);
        let with = |kind, optional| package("crates", "ielections", &[("testing-time", kind, optional)]);
        assert_eq!(found(vec![testing_time(), with(Some("dev"), false)]), [""; 0]);
        assert_eq!(found(vec![testing_time(), with(None, true)]), [""; 0]);
        assert_eq!(found(vec![testing_time(), with(None, false)]).len(), 1);
    }

    #[test]
    fn unlisted_crate_is_found_and_evidence_is_exempt() {
        assert_eq!(found(vec![package("crates", "misc", &[])]), ["crate `misc` isn't on the map"]);
        assert_eq!(found(vec![package("evidence", "bench", &[("rusqlite", None, false)])]), [""; 0]);
        assert_eq!(
            found(vec![
                package("evidence", "bench", &[]),
                package("crates", "vvm-clock", &[("bench", None, false)])
            ]),
            ["`vvm-clock` may not point to `bench`"]
        );
    }

    #[test]
    fn command_line_of_a_library_and_database_outside_the_drivers_are_found() {
        let with = |name, other, kind| found(vec![package("crates", name, &[(other, kind, false)])]);
        assert_eq!(
            with("vvm-containment", "clap", None),
            ["`vvm-containment` may not know `clap`, which is for `vvm-cli`"]
        );
        assert_eq!(with("vvm-containment", "clap", Some("dev")), [""; 0]);
        assert_eq!(with("vvm-cli", "clap", None), [""; 0]);
        assert_eq!(with("vvm-storage", "rusqlite", None), [""; 0]);
        assert_eq!(
            with("ielections", "rusqlite", None),
            ["`ielections` may not know `rusqlite`, which is for `vvm-storage`"]
        );
    }
}
