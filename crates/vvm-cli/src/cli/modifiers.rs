//! Refuses options that modify another one which is missing: they would have no effect. Refuses a password in
//! a typed option.

use crate::args::{OnExit, STAGES};
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

/// Refuses a typed storage with a password. The environment and a settings file may have one.
pub(super) fn check_password(matches: &ArgMatches, is_typed: impl Fn(&str) -> bool) -> Result<(), Error> {
    const REFUSAL: &str = "--storage has a password, and all users of this machine can read a command line: \
        put the URL into the environment (VVM_STORAGE) or a settings file, or the password alone into \
        VVM_STORAGE_PASSWORD, a file (password_file=PATH) or ~/.pgpass\n";
    // What a stage is handed was checked before.
    let command = matches.subcommand().filter(|(name, _)| !STAGES.contains(name));
    let Some((_, command)) = command else { return Ok(()) };
    let storage = command.try_get_one::<String>("storage").ok().flatten();
    match storage {
        Some(url) if is_typed("storage") && vvm_storage::url::has_password(url) => {
            Err(Error::raw(ErrorKind::ValueValidation, REFUSAL))
        }
        _ => Ok(()),
    }
}
