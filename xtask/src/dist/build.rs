//! Builds the static programs, so that the same commit and toolchain give the same bytes in any folder.
//!
//! Panics, C assertions and line tables would name folders: each compiler gets a map to fixed names. Only the
//! program's own target has these flags, so `--target` is always named.

use super::{
    draft::{DistError, output, read},
    source::{Source, cargo_home},
};
use crate::workspace::cargo;
use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

/// Which storages a program has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Storages {
    /// SQLite, and none on another machine.
    Sqlite,
    All,
}

impl Storages {
    pub(super) const EACH: [Self; 2] = [Self::Sqlite, Self::All];

    /// Features of vvm-cli.
    pub(super) fn features(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::All => "scylla,postgres,etcd,kubernetes,object-store,dynamodb",
        }
    }

    /// The first word of an archive's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "vvm-sqlite",
            Self::All => "vvm",
        }
    }
}

/// Returns the program.
///
/// # Errors
/// It does not build.
pub(super) fn build(source: &Source, storages: Storages) -> Result<Vec<u8>, DistError> {
    let triple = &source.target.triple;
    let target_folder = source.root.join("target");
    let mut command = cargo();
    command
        .args(["rustc", "--locked", "--profile", "dist", "--package", "vvm-cli", "--bin", "vvm"])
        .args(["--target", triple, "--target-dir"])
        .arg(&target_folder)
        .args(["--features", storages.features()])
        // The profile says it too, but not for a package with settings of its own.
        .args(["--", "-C", "strip=symbols"])
        .current_dir(&source.root)
        .env("CARGO_ENCODED_RUSTFLAGS", rust_flags(source)?)
        .env(format!("CFLAGS_{}", triple.replace('-', "_")), c_flags(&source.root, &cargo_home()))
        .env("SOURCE_DATE_EPOCH", source.time.to_string());
    let status = command.status();
    let status = status.map_err(|cause| DistError::Start { program: "cargo".into(), cause })?;
    if !status.success() {
        let command = format!("cargo rustc --profile dist --target {triple}");
        return Err(DistError::Failed { command, status: status.to_string(), said: String::new() });
    }
    read(&target_folder.join(triple).join("dist/vvm"))
}

/// Returns flags for rustc, separated as Cargo wants them.
fn rust_flags(source: &Source) -> Result<OsString, DistError> {
    let mut flags: Vec<OsString> = vec!["-C".into(), "target-feature=+crt-static".into()];
    for (folder, name) in places(&source.root, &cargo_home()) {
        let mut flag = OsString::from("--remap-path-prefix=");
        flag.push(&folder);
        flag.push(format!("={name}"));
        flags.push(flag);
    }
    if source.target.has_glibc {
        let mut flag = OsString::from("link-arg=");
        flag.push(name_service(source)?);
        flags.extend(["-C".into(), flag]);
    }
    Ok(flags.join(OsString::from("\x1f").as_os_str()))
}

fn c_flags(root: &Path, cargo_home: &Path) -> String {
    places(root, cargo_home)
        .map(|(folder, name)| format!("-ffile-prefix-map={}={name}", folder.display()))
        .join(" ")
}

/// Folders of this machine, and what they are called in the program.
fn places(root: &Path, cargo_home: &Path) -> [(PathBuf, &'static str); 2] {
    [(root.into(), "/vvm"), (cargo_home.into(), "/cargo")]
}

/// Compiles the part that keeps a static glibc from loading shared libraries; its source says why.
fn name_service(source: &Source) -> Result<PathBuf, DistError> {
    let object = source.root.join("target").join(&source.target.triple).join("name_service.o");
    super::draft::write(&object, b"")?;
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut command = Command::new(compiler);
    command.args(["-c", "-O2", "-fPIE", "-o"]).arg(&object);
    output(command.arg(source.root.join("packaging/static/name_service.c")))?;
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_compiler_maps_both_folders() {
        let flags = c_flags(Path::new("/a/vvm"), Path::new("/b/.cargo"));
        assert_eq!(flags, "-ffile-prefix-map=/a/vvm=/vvm -ffile-prefix-map=/b/.cargo=/cargo");
    }
}
