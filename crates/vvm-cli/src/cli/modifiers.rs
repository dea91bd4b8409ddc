//! Refuses options that modify another one which is missing: they would have no effect.

use crate::args::OnExit;
use clap::{
    ArgMatches,
    error::{ContextKind, ContextValue, Error, ErrorKind},
    parser::ValueSource,
};

/// Each modifier, and the option that it modifies.
const MODIFIERS: [(&str, &str); 7] = [
    ("restart_backoff", RESTART),
    ("restart_backoff_max", RESTART),
    ("restart_limit", RESTART),
    ("pre_stop_timeout", "pre_stop"),
    ("check_interval", "check"),
    ("check_timeout", "check"),
    ("check_failures", "check"),
];

/// The option that must have the value `restart`.
const RESTART: &str = "on_exit";

/// Checks the modifiers in `matches`, a whole command line. Those for which `is_typed` is false come from
/// the environment or a settings file, which several commands may share: they may have no effect.
///
/// # Errors
/// If a typed modifier has no effect.
pub(super) fn check(matches: &ArgMatches, is_typed: impl Fn(&str) -> bool) -> Result<(), Error> {
    let Some((_, run)) = matches.subcommand().filter(|(name, _)| *name == "run") else { return Ok(()) };
    for (modifier, modified) in MODIFIERS {
        let is_given = run.value_source(modifier) == Some(ValueSource::CommandLine);
        let has_effect = match modified {
            RESTART => run.get_one::<OnExit>(RESTART) == Some(&OnExit::Restart),
            modified => run.contains_id(modified),
        };
        let modifier = modifier.replace('_', "-");
        if is_given && !has_effect && is_typed(&modifier) {
            let missing =
                if modified == RESTART { "on-exit restart".into() } else { modified.replace('_', "-") };
            let what = format!("--{modifier} has no effect without --{missing}: add that, or leave it out\n");
            let mut refusal = Error::raw(ErrorKind::MissingRequiredArgument, what);
            refusal.insert(ContextKind::InvalidArg, ContextValue::String(format!("--{modified}")));
            return Err(refusal);
        }
    }
    Ok(())
}
