//! `cargo xtask dist`: builds what a release has, twice if asked for, and tries it.
//!
//! Every file follows from a commit and the toolchain: none has a time, an owner or a folder of this machine.
//! docs/installing.md is the page for users.

mod build;
mod contents;
mod deb;
mod draft;
mod image;
mod licences;
mod source;
mod tarball;
mod trial;
mod wheel;

use contents::Made;
use draft::{DistError, output};
use source::{Libc, Source};
use std::process::Command;
use tarball::File;
use tarball::sha256;

/// Options of `cargo xtask dist`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Link this C library into the programs.
    #[arg(long, value_enum, default_value_t = Libc::Gnu)]
    libc: Libc,
    /// Build again in another folder, and fail if a file differs. Needs a work tree without changes.
    #[arg(long, conflicts_with = "try")]
    reproduce: bool,
    /// First install what the build needs, by rustup and apt-get. For machines of CI.
    #[arg(long)]
    prepare: bool,
    /// Build nothing: install from the files that are there, show the first fail-over, and look up names from
    /// an empty root folder. `--try=deb` does one of deb, wheel, image, names.
    #[arg(long = "try", id = "try", value_name = "KIND", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "all")]
    trial: Option<trial::Kind>,
    /// Build nothing: make a draft of a release on GitHub, with the files that are there.
    #[arg(long, conflicts_with_all = ["try", "reproduce", "prepare"])]
    draft: bool,
}

/// Returns whether everything could be built, is the same, or works.
pub(crate) fn run(options: &Options) -> bool {
    match carry_out(options) {
        Ok(()) => true,
        Err(error) => {
            eprintln!("dist: {error}");
            false
        }
    }
}

fn carry_out(options: &Options) -> Result<(), DistError> {
    let source = Source::read(options.libc)?;
    let packages = source.root.join("target/packages");
    if options.draft {
        return draft::create(&source, &packages);
    }
    if let Some(kind) = options.trial {
        return trial::run(&source, &source.packages(), kind);
    }
    if options.reproduce {
        source.must_be_committed()?;
    }
    if options.prepare {
        prepare(&source)?;
    }
    let made = contents::make(&source)?;
    print!("{made}");
    if options.reproduce {
        compare(&source, &made)?;
    }
    Ok(())
}

/// # Errors
/// rustup or apt-get fails.
fn prepare(source: &Source) -> Result<(), DistError> {
    if !source.target.has_glibc {
        output(Command::new("rustup").args(["target", "add", &source.target.triple]))?;
        output(Command::new("sudo").args(["apt-get", "install", "--yes", "musl-tools"]))?;
    }
    Ok(())
}

/// Builds again and compares every file.
///
/// # Errors
/// It does not build, or a file differs.
fn compare(source: &Source, made: &Made) -> Result<(), DistError> {
    let folder = tempfile::Builder::new().prefix("vvm-second-build-").tempdir()?;
    let copy = source.copy_to(folder.path())?;
    let second = contents::make(&copy)?;
    let differing = differing(&made.files, &second.files);
    if differing.is_empty() {
        let folders = (source.root.display(), copy.root.display());
        println!("the same {} files from {} and {}", made.files.len(), folders.0, folders.1);
        return Ok(());
    }
    Err(DistError::Differs(differing.join(", ")))
}

/// Returns the files that are not in both, or not the same.
fn differing(first: &[File], second: &[File]) -> Vec<String> {
    let name = |file: &File| format!("{} {}", file.path, sha256(&file.bytes));
    let lacks = |files: &[File], one: &File| !files.iter().any(|other| name(other) == name(one));
    let of_first = first.iter().filter(|file| lacks(second, file));
    let of_second = second.iter().filter(|file| lacks(first, file));
    of_first.chain(of_second).map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_differs_or_is_missing_is_named() {
        let files = |last: &str| vec![File::new("a", "same"), File::new("b", last)];
        assert_eq!(differing(&files("1"), &files("1")), [""; 0]);
        assert_eq!(differing(&files("1"), &files("2")).len(), 2);
        assert_eq!(differing(&files("1")[..1], &files("1")).len(), 1);
    }
}
