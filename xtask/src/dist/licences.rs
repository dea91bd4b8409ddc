//! The licences of all that a program contains.

use super::{DistError, build::Source, output, read};
use crate::workspace::cargo;
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A package in the answer of `cargo metadata`, as far as it is used.
#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    repository: Option<String>,
    /// `None` for our own.
    source: Option<String>,
    manifest_path: PathBuf,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

/// How the names of files with licences begin.
const NAMES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// Where Debian and its descendants describe their C library.
const GLIBC: &str = "/usr/share/doc/libc6/copyright";

/// Returns the licences of all that is linked into a program: crates, Rust's standard library and the C library. The
/// texts are those of the compiled sources. `features` are those of vvm-cli. A text that several crates share stands once.
///
/// # Errors
/// Cargo fails, or a file can't be read.
pub(super) fn licences(source: &Source, features: &str) -> Result<String, DistError> {
    let manifest = source.root.join("crates/vvm-cli/Cargo.toml");
    let triple = &source.target.triple;
    let of = |arguments: &[&str]| {
        let mut command = cargo();
        command.args(arguments).args(["--locked", "--features", features, "--manifest-path"]).arg(&manifest);
        output(&mut command)
    };
    let metadata = of(&["metadata", "--format-version", "1", "--filter-platform", triple])?;
    let metadata: Metadata = serde_json::from_slice(&metadata)?;
    // Each line begins with a name and a version.
    let tree = of(&["tree", "--edges", "normal", "--prefix", "none", "--target", triple])?;
    let tree = String::from_utf8_lossy(&tree);
    let first_words = |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    let linked: BTreeSet<String> = tree.lines().map(first_words).collect();
    let is_linked =
        |one: &&Package| one.source.is_some() && linked.contains(&format!("{} v{}", one.name, one.version));
    let mut text = String::from("This program contains the following.\n\n");
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut packages: Vec<&Package> = metadata.packages.iter().collect();
    packages.sort_by_key(|package| (&package.name, &package.version));
    for package in packages.into_iter().filter(is_linked) {
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
    // Some toolchains have only the page in HTML.
    let has_text = documents.join("COPYRIGHT").is_file();
    let copyright = if has_text { "COPYRIGHT" } else { "COPYRIGHT.html" };
    let mut found = Vec::new();
    for name in [copyright, "LICENSE-APACHE", "LICENSE-MIT"] {
        let path = documents.join(name);
        if path.is_file() {
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
