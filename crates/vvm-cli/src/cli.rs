//! The command line: what there is to say, and what is refused at once.

pub(crate) mod args;
#[cfg(test)]
mod documented;
pub(crate) mod duration;
pub(crate) mod exit;
mod generated;
#[cfg(test)]
mod run_book;
pub(crate) mod settings;

use crate::{announce::say, contained::conclude};
use args::{Cli, Command};
use clap::{FromArgMatches as _, error::ErrorKind};
use settings::{Refusal, Settled};
use std::{ffi::OsString, process::ExitCode};

/// Reads the command line, and what completes it, and does what it says.
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
    match cli.command {
        Command::Run(run) => crate::guardian::main(&run, &settled),
        Command::Elect(elect) => crate::elect::main(&elect),
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
        Command::StageHost(run) => crate::run::main(&run),
    }
}

/// The command line that `words` and `variables` come to.
fn read(words: Vec<OsString>, variables: &settings::Variables) -> Result<(Cli, Settled), Misuse> {
    let mut described = settings::described();
    let settled = settings::settle(&described, words, variables)?;
    let matches = described.try_get_matches_from_mut(settled.words());
    let cli = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    match cli.map_err(|refusal| refusal.format(&mut described)) {
        Ok(cli) => Ok((cli, settled)),
        Err(refusal) => {
            let origins = settled.origins.of_refusal(&refusal);
            Err(Misuse { refusal: refusal.into(), origins })
        }
    }
}

/// What can't be done, and where it comes from, if not from the command line.
#[derive(Debug)]
struct Misuse {
    refusal: Refusal,
    origins: Vec<String>,
}

impl From<Refusal> for Misuse {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, origins: Vec::new() }
    }
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
        say!(
            "{unreadable} is not UTF-8, as everything has to be that vvm is told (but the command behind --)"
        );
        return exit::MISUSE.into();
    }
    // Help and version, when asked for, are no errors. Nobody is left to tell that the output is gone.
    let _ = refusal.print();
    misuse.origins.iter().for_each(|origin| say!("{origin}"));
    let mut words = words.iter().skip(1);
    let is_run = words.next().is_some_and(|command| command == "run");
    if is_run && refusal.kind() == ErrorKind::UnknownArgument && !words.any(|word| word == "--") {
        say!("the command to run stands behind --, as in: vvm run … -- CMD ARGS…");
    }
    if refusal.use_stderr() { exit::MISUSE.into() } else { ExitCode::SUCCESS }
}

/// What clap could not read, which it does not say: a word of the command line, or a setting in the
/// environment.
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
