//! `vvm run --dry-run`.

use crate::{args::RunArgs, dry_run::DryRun};
use ielections::Holder;
use vvm_containment::Level;

/// Prints what would be done, with `level` of containment, and returns the exit status.
pub(super) fn show(args: &RunArgs, holder: Holder, level: Level) -> u8 {
    let words = args.command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>();
    let more = [("would run", words.join(" ")), ("containment", level.to_string())];
    DryRun { candidate: &args.candidate, holder }.show(&more)
}
