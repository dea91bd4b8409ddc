//! Parses the command line and runs the command that it names.

#[cfg(test)]
mod documented;
mod generated;
mod modifiers;
#[cfg(test)]
mod run_book;

use crate::{
    announce::say,
    args::{Cli, Command},
    contained::conclude,
    exit, log,
    settings::{self, Refusal, Settled},
};
use clap::{
    FromArgMatches as _,
    error::{ContextKind, ContextValue, ErrorKind},
};
use std::{ffi::OsString, process::ExitCode};
use vvm_storage::StorageUrl;

/// Runs `vvm`.
pub(crate) fn main() -> ExitCode {
    match vvm_containment::stage::enter() {
        Ok(None) => {}
        Ok(Some(status)) => return status,
        Err(refusal) => return conclude(&refusal),
    }
    let words = std::env::args_os().collect::<Vec<_>>();
    let (cli, settled) = match read(words.clone(), &std::env::vars_os().collect()) {
        Ok(read) => read,
        Err(refusal) => return refuse(&refusal, &words),
    };
    if matches!(cli.command, Command::Run(_) | Command::Elect(_))
        && let Err(refusal) = log::check()
    {
        say!("{refusal}");
        return exit::MISUSE.into();
    }
    match cli.command {
        Command::Run(run) => crate::guardian::main(&run, &settled),
        Command::Elect(elect) => crate::elect::main(&elect, &settled),
        Command::Status(status) => crate::status::main(&status),
        Command::Watch(watch) => crate::watch::main(&watch),
        Command::Doctor(doctor) => crate::doctor::main(&doctor),
        Command::History(history) => crate::history::main(&history),
        Command::StepDown(step_down) => crate::operate::step_down(&step_down),
        Command::Pause(pause) => crate::operate::pause(&pause),
        Command::Resume(resume) => crate::operate::resume(&resume),
        Command::Demo(demo) => crate::demo::main(&demo),
        Command::InitStorage(init) => crate::init_storage::main(&init),
        Command::Completions(completions) => generated::completions(&completions),
        Command::Man(man) => generated::man(&man),
        Command::DemoCandidate(candidate) => crate::demo::candidate_main(&candidate),
        Command::DemoWorker(worker) => crate::demo::worker_main(&worker),
        Command::StageHost(run) => crate::run::main(run),
        Command::StageRelease(run) => crate::stage_release::main(&run),
        Command::StageDemote(elect) => crate::elect::demote(&elect),
    }
}

/// Parses `words`, completed by `variables` and the settings file.
fn read(words: Vec<OsString>, variables: &settings::Variables) -> Result<(Cli, Settled), Misuse> {
    if let Some(alone) = settings::described_alone(&words, variables)
        && let Ok(read) = read_as(alone, words.clone(), variables)
    {
        return Ok(read);
    }
    // Refusals and help know all commands.
    read_as(settings::described(), words, variables)
}

fn read_as(
    mut described: clap::Command,
    words: Vec<OsString>,
    variables: &settings::Variables,
) -> Result<(Cli, Settled), Misuse> {
    let settled = settings::settle(&described, words, variables).map_err(|mut refusal| {
        if let Refusal::CommandLine(refusal) = &mut refusal {
            suggest(refusal);
            advise(refusal);
            redact(refusal);
        }
        Misuse { refusal, origins: Vec::new() }
    })?;
    let matches = described.try_get_matches_from_mut(settled.words());
    let cli = matches.and_then(|matches| {
        modifiers::check(&matches, |option| !settled.origins.has(option))?;
        modifiers::check_password(&matches, |option| !settled.origins.has(option))?;
        Cli::from_arg_matches(&matches)
    });
    match cli.map_err(|refusal| refusal.format(&mut described)) {
        Ok(cli) => Ok((cli, settled)),
        Err(mut refusal) => {
            redact(&mut refusal);
            let origins = settled.origins.of_refusal(&refusal);
            Err(Misuse { refusal: refusal.into(), origins })
        }
    }
}

/// Suggests an option where clap does not: for two letters that changed places in a short name, as in
/// `--tyr`.
fn suggest(refusal: &mut clap::Error) {
    if refusal.kind() == ErrorKind::UnknownArgument
        && refusal.get(ContextKind::SuggestedArg).is_none()
        && let Some(ContextValue::String(unknown)) = refusal.get(ContextKind::InvalidArg)
        && let Some(unknown) = unknown.strip_prefix("--")
        && let Some(nearest) = settings::nearest_option(unknown)
    {
        refusal.insert(ContextKind::SuggestedArg, ContextValue::String(format!("--{nearest}")));
    }
}

/// Corrects clap's advice where it is of no use: an option of another command is no misspelling, and an
/// operator who looks for `vvm stop` needs more than a similar word.
fn advise(refusal: &mut clap::Error) {
    const TO_STOP: &str =
        "to stop one: TERM to vvm run; on every machine: vvm pause; to hand over: vvm step-down";
    if refusal.get(ContextKind::InvalidArg).is_some()
        && refusal.get(ContextKind::InvalidArg) == refusal.get(ContextKind::SuggestedArg)
    {
        refusal.remove(ContextKind::SuggestedArg);
    }
    if refusal.kind() == ErrorKind::UnknownArgument {
        // To pass it behind `--` would make it the command.
        refusal.remove(ContextKind::Suggested);
    }
    if let Some(ContextValue::String(command)) = refusal.get(ContextKind::InvalidSubcommand)
        && command == "stop"
    {
        refusal.remove(ContextKind::SuggestedSubcommand);
        refusal.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![TO_STOP.into()]));
    }
}

/// Removes the secret of a storage's URL from the value that clap quotes.
fn redact(refusal: &mut clap::Error) {
    let is_storage = matches!(
        refusal.get(ContextKind::InvalidArg),
        Some(ContextValue::String(argument)) if argument.starts_with("--storage")
    );
    if is_storage && let Some(ContextValue::String(url)) = refusal.get(ContextKind::InvalidValue) {
        let shown = StorageUrl::from(url.as_str()).to_string();
        refusal.insert(ContextKind::InvalidValue, ContextValue::String(shown));
    }
}

/// A command line or setting that was refused, and the origins of its settings.
#[derive(Debug)]
struct Misuse {
    refusal: Refusal,
    origins: Vec<String>,
}

fn refuse(misuse: &Misuse, words: &[OsString]) -> ExitCode {
    let refusal = match &misuse.refusal {
        Refusal::CommandLine(refusal) => refusal,
        refusal => {
            say!("{refusal}");
            return exit::MISUSE.into();
        }
    };
    if refusal.kind() == ErrorKind::InvalidUtf8
        && let Some(unreadable) = unreadable(words)
    {
        say!("{unreadable} is not UTF-8: only the command after -- may have other bytes");
        return exit::MISUSE.into();
    }
    // Help and version are printed here, too. A reader that has gone is no error.
    let _ = refusal.print();
    misuse.origins.iter().for_each(|origin| say!("{origin}"));
    let mut words = words.iter().skip(1);
    let is_run = words.next().is_some_and(|command| command == "run");
    if is_run && refusal.kind() == ErrorKind::UnknownArgument && !words.any(|word| word == "--") {
        say!("write -- before the command to run: vvm run … -- CMD ARGS…");
    }
    if refusal.use_stderr() { exit::MISUSE.into() } else { ExitCode::SUCCESS }
}

/// Returns the word or variable that is not UTF-8, which clap does not name.
fn unreadable(words: &[OsString]) -> Option<String> {
    let mut words = words.iter().skip(1).take_while(|word| *word != "--");
    let word = words.find(|word| word.to_str().is_none()).map(|word| format!("{word:?}"));
    word.or_else(|| {
        let mut settings =
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with(settings::PREFIX));
        let (name, value) = settings.find(|(_, value)| value.to_str().is_none())?;
        Some(format!("{}={value:?}", name.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::STAGES;

    #[test]
    fn command_described_alone_is_parsed_as_among_all_commands() {
        for command in ["run", "elect"].into_iter().chain(STAGES) {
            let hooks = ["--on-lead", "true", "--on-loss", "true"];
            let is_elect = ["elect", crate::args::STAGE_DEMOTE].contains(&command);
            let rest = if is_elect { &hooks[..] } else { &["--on-exit=restart", "--", "true", "-x"] };
            let words = ["vvm", command, "--storage=sqlite:x.db", "--name", "n"].into_iter();
            let words = words.chain(rest.iter().copied()).map(OsString::from).collect::<Vec<_>>();
            let variables = vec![("VVM_TTL".into(), "7s".into()), ("HOME".into(), "/".into())];
            let alone = settings::described_alone(&words, &variables).unwrap();
            let alone = read_as(alone, words.clone(), &variables).unwrap();
            let among_all = read_as(settings::described(), words, &variables).unwrap();
            assert_eq!(format!("{alone:?}"), format!("{among_all:?}"));
        }
    }

    #[test]
    fn misspelled_variable_is_looked_for_among_all_commands() {
        let words = ["vvm", "run"].map(OsString::from);
        let alone = |name: &str| settings::described_alone(&words, &vec![(name.into(), "7s".into())]);
        assert!(alone("VVM_TTL").is_some() && alone("TLT").is_some());
        assert!(alone("VVM_TLT").is_none());
    }
}
