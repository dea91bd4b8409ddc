//! The licences of all that is linked into a program: crates, Rust's standard library and the C library.
//!
//! Texts come from the sources that were compiled. A text that several crates share stands once.

use super::{
    build::Storages,
    draft::{DistError, output, read},
    source::Source,
};
use crate::workspace::cargo;
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The answer of `cargo metadata`, as far as it is used.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    repository: Option<String>,
    /// `None` for our own.
    source: Option<String>,
    manifest_path: PathBuf,
}

#[derive(Deserialize)]
struct Resolve {
    root: Option<String>,
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    /// `None` for a normal one, else `dev` or `build`.
    kind: Option<String>,
}

/// What files with licences begin with.
const NAMES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// Where Debian and its descendants describe their C library.
const GLIBC: &str = "/usr/share/doc/libc6/copyright";

/// Returns the text with all of them.
///
/// # Errors
/// Cargo fails, or a file can't be read.
pub(super) fn licences(source: &Source, storages: Storages) -> Result<String, DistError> {
    let mut command = cargo();
    command
        .args(["metadata", "--locked", "--format-version", "1", "--filter-platform", &source.target.triple])
        .args(["--features", storages.features(), "--manifest-path"])
        .arg(source.root.join("crates/vvm-cli/Cargo.toml"));
    let metadata: Metadata = serde_json::from_slice(&output(&mut command)?)?;
    let linked = linked(&metadata.resolve);
    let mut text = String::from("This program contains the following.\n\n");
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut packages: Vec<&Package> = metadata.packages.iter().collect();
    packages.sort_by_key(|package| (&package.name, &package.version));
    for package in packages.into_iter().filter(|one| one.source.is_some() && linked.contains(&*one.id)) {
        let label = format!("{} {}", package.name, package.version);
        let terms = package.license.as_deref().unwrap_or("see its text");
        let place = package.repository.as_deref().unwrap_or("crates.io");
        let _ = writeln!(text, "{label}: {terms} ({place})");
        for file in files(package.manifest_path.parent().unwrap_or(Path::new("")))? {
            texts.entry(file).or_default().push(label.clone());
        }
    }
    for (label, file) in of_toolchain(source)? {
        let _ = writeln!(text, "{label}");
        texts.entry(file).or_default().push(label);
    }
    for (file, users) in texts {
        let _ = writeln!(text, "\n{}\n{}\n\n{}", "=".repeat(80), users.join(", "), file.trim_end());
    }
    Ok(text)
}

/// Returns the packages that the program needs to run.
fn linked(resolve: &Resolve) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&str> = resolve.root.iter().map(String::as_str).collect();
    while let Some(id) = open.pop() {
        if found.insert(id) {
            let dependencies = resolve.nodes.iter().filter(|node| node.id == id).flat_map(|node| &node.deps);
            let normal = dependencies.filter(|one| one.dep_kinds.iter().any(|kind| kind.kind.is_none()));
            open.extend(normal.map(|one| one.pkg.as_str()));
        }
    }
    found
}

/// Returns the texts in a package's folder.
fn files(folder: &Path) -> Result<Vec<String>, DistError> {
    let failed = |cause| DistError::File { path: folder.into(), cause };
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_uppercase();
        if path.is_file() && NAMES.iter().any(|start| name.starts_with(start)) {
            paths.push(path);
        }
    }
    paths.sort();
    paths.iter().map(|path| Ok(String::from_utf8_lossy(&read(path)?).into_owned())).collect()
}

/// Returns the texts of Rust's standard library and of the C library, each with its name.
fn of_toolchain(source: &Source) -> Result<Vec<(String, String)>, DistError> {
    let said = output(Command::new("rustc").args(["--print", "sysroot"]).current_dir(&source.root))?;
    let documents = PathBuf::from(String::from_utf8_lossy(&said).trim()).join("share/doc/rust");
    let mut found = Vec::new();
    for name in ["COPYRIGHT", "COPYRIGHT.html", "LICENSE-APACHE", "LICENSE-MIT"] {
        let path = documents.join(name);
        if path.is_file() && !(name == "COPYRIGHT.html" && documents.join("COPYRIGHT").is_file()) {
            let label = "Rust's standard library: MIT OR Apache-2.0".to_owned();
            found.push((label, String::from_utf8_lossy(&read(&path)?).into_owned()));
        }
    }
    if source.target.has_glibc {
        let label = "GNU C Library: LGPL-2.1-or-later. To use another one, build the program from its \
                     sources with `cargo xtask dist`";
        found.push((label.into(), String::from_utf8_lossy(&read(Path::new(GLIBC))?).into_owned()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_tests_and_builds_need_is_not_linked() {
        let resolve = r#"{ "root": "a", "nodes": [
            { "id": "a", "deps": [
                { "pkg": "b", "dep_kinds": [{ "kind": null }] },
                { "pkg": "t", "dep_kinds": [{ "kind": "dev" }] } ] },
            { "id": "b", "deps": [
                { "pkg": "c", "dep_kinds": [{ "kind": "build" }, { "kind": null }] },
                { "pkg": "d", "dep_kinds": [{ "kind": "build" }] } ] },
            { "id": "c", "deps": [] }, { "id": "d", "deps": [] }, { "id": "t", "deps": [] } ] }"#;
        let resolve: Resolve = serde_json::from_str(resolve).unwrap();
        assert_eq!(linked(&resolve).into_iter().collect::<Vec<_>>(), ["a", "b", "c"]);
    }
}
