//! `cargo xtask dist`: builds what a release has, twice if asked for, and tries it.
//!
//! Every file follows from a commit and the toolchain: none has a time, an owner or a folder of this machine.
//! docs/installing.md is the page for users.

mod build;
mod contents;
mod deb;
mod draft;
mod error;
mod file;
mod image;
mod licences;
mod packages;
mod prepare;
mod reproduce;
mod source;
mod sums;
mod tarball;
mod trial;
mod wheel;

use error::DistError;
use source::{Libc, Source};

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
        prepare::prepare(&source)?;
    }
    let made = packages::make(&source)?;
    print!("{made}");
    if options.reproduce {
        reproduce::compare(&source, &made)?;
    }
    Ok(())
}
