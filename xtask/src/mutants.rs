//! `cargo xtask mutants`: whether tests notice small changes of the code on which one leader depends. It calls
//! cargo-mutants, once for each package, with the tests that judge the package. `.cargo/mutants.toml` says what is changed.

use crate::workspace::{self, Workspace, cargo};
use clap::Args;
use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only those of this package.
    #[arg(long)]
    package: Option<String>,
    /// Only one of several parts, counted from 0: `--shard 0/4`.
    #[arg(long)]
    shard: Option<String>,
    /// Only those in lines that this output of `git diff` changes.
    #[arg(long)]
    diff: Option<PathBuf>,
}

/// A package with changes, the packages whose tests judge them, and the features of these.
struct Judged {
    package: &'static str,
    judges: &'static str,
    features: &'static [&'static str],
}

/// `check` searches all orders of events, within small bounds.
const JUDGED: [Judged; 4] = [
    Judged { package: "ielections", judges: "ielections,check", features: &["--all-features"] },
    Judged { package: "vvm-storage", judges: "vvm-storage", features: MEMORY },
    Judged { package: "vvm-deadman", judges: "vvm-deadman", features: &["--all-features"] },
    Judged { package: CONTAINMENT, judges: "vvm-containment,check", features: &["--all-features"] },
];

/// No database decides about a step.
const MEMORY: &[&str] = &["--no-default-features", "--features=mem,cells,testing"];

/// A change of it may kill any process that it sees. So each test program has a PID namespace of its own, which takes the
/// rights of root. `unshare` ignores TERM, by which cargo-mutants ends a test that hangs, so it dies with cargo.
const CONTAINMENT: &str = "vvm-containment";
const ALONE: &str = "target.'cfg(unix)'.runner=['setpriv','--pdeathsig','KILL',\
    'unshare','--pid','--fork','--mount-proc','--kill-child','--']";

/// The status of cargo-mutants if changes were noticed by tests that hung, and all others by tests that failed.
const SOME_HUNG: i32 = 3;

pub(crate) fn run(options: &Options) -> bool {
    let Some(Workspace { root, .. }) = Workspace::read_for("mutants") else { return false };
    let is_chosen = |judged: &&Judged| options.package.as_ref().is_none_or(|name| name == judged.package);
    let mut chosen = JUDGED.iter().filter(is_chosen).peekable();
    if chosen.peek().is_none() {
        let names = JUDGED.map(|judged| judged.package).join(", ");
        eprintln!("mutants: no such package. There are {names}");
        return false;
    }
    let of_package = |judged: &Judged| judged.call(options, &root)?.status();
    let judge = |judged: &Judged| of_package(judged).map(|end| matches!(end.code(), Some(0 | SOME_HUNG)));
    // The others are judged although one is not noticed.
    chosen.fold(true, |all, judged| workspace::holds("mutants", judge(judged)) & all)
}

impl Judged {
    fn call(&self, options: &Options, root: &Path) -> io::Result<Command> {
        let output = root.join("target/mutants").join(self.package);
        fs::create_dir_all(&output)?;
        let mut call = cargo();
        call.args(["mutants", "--package", self.package, "--test-package", self.judges]);
        call.current_dir(root).arg("--output").arg(output).args(self.features);
        if self.package == CONTAINMENT {
            call.arg(format!("--cargo-arg=--config={ALONE}"));
        }
        call.args(options.shard.iter().flat_map(|shard| ["--shard", shard]));
        if let Some(diff) = &options.diff {
            call.arg("--in-diff").arg(diff.canonicalize()?);
        }
        Ok(call)
    }
}
