mod generated;

use crate::{
    announce::{self, say},
    args::{STAGE_DEMOTE, STAGE_HOST, STAGE_RELEASE, STAGES},
    contained::conclude,
    demo::{self, DemoArgs, DemoCandidateArgs, DemoWorkerArgs},
    doctor::{self, DoctorArgs},
    elect::{self, ElectArgs},
    exit, guardian,
    history::{self, HistoryArgs},
    init_storage::{self, InitStorageArgs},
    list::{self, ListArgs},
    pause::{self, PauseArgs, ResumeArgs},
    release,
    run::{self, OnExit, OnceCommand, REFUSED, RunArgs, StageArgs},
    settings::{self, ResolvedArguments, SettingsError},
    status::{self, StatusArgs},
    step_down::{self, StepDownArgs},
    ui::{self, UiArgs},
    watch::{self, WatchArgs},
};
use clap::{
    Arg, ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand,
    error::{ContextKind, ContextValue, Error, ErrorKind},
    parser::ValueSource,
};
use generated::{CompletionsArgs, ManArgs};
use ielections::successor::SupportPeriod;
use std::{ffi::OsString, net::SocketAddr, process::ExitCode, sync::LazyLock};
use vvm_host::SuccessorRefusal;
use vvm_storage::StorageUrl;

/// Leader election for commands: run a program on exactly one of several machines.
#[derive(Debug, Parser)]
#[command(name = "vvm", version = VERSION.as_str())]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

static VERSION: LazyLock<String> = LazyLock::new(|| {
    let storages = vvm_storage::url::schemes().collect::<Vec<_>>().join(", ");
    format!("{} (storages: {storages})", env!("CARGO_PKG_VERSION"))
});

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(RunArgs),
    Once(OnceCommand),
    Elect(ElectArgs),
    Status(StatusArgs),
    List(ListArgs),
    Watch(WatchArgs),
    Ui(UiArgs),
    Doctor(DoctorArgs),
    History(HistoryArgs),
    StepDown(StepDownArgs),
    Pause(PauseArgs),
    Resume(ResumeArgs),
    Demo(DemoArgs),
    InitStorage(InitStorageArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
    #[command(hide = true)]
    DemoCandidate(DemoCandidateArgs),
    #[command(hide = true)]
    DemoWorker(DemoWorkerArgs),
    #[command(hide = true, name = STAGE_HOST)]
    StageHost(StageArgs),
    #[command(hide = true, name = STAGE_RELEASE)]
    StageRelease(StageArgs),
    #[command(hide = true, name = STAGE_DEMOTE)]
    StageDemote(ElectArgs),
}

fn described() -> clap::Command {
    let cli = Cli::command();
    let names = cli.get_subcommands().map(|command| command.get_name().to_owned()).collect::<Vec<_>>();
    names.into_iter().fold(cli, |cli, name| cli.mut_subcommand(name, with_config))
}

fn with_config(command: clap::Command) -> clap::Command {
    let config = Arg::new(settings::CONFIG)
        .long(settings::CONFIG)
        .value_name("FILE")
        .value_parser(clap::value_parser!(std::path::PathBuf))
        .help("Read settings from a TOML file: the key is an option's name, as in ttl = \"20s\"")
        .long_help(
            "Read settings from a TOML file: the key is an option's name, as in ttl = \"20s\"; the command \
             is command = [\"CMD\", \"ARG\"]\n\n\
             Every option is also a variable: VVM_TTL for --ttl, VVM_CONFIG for --config. The command line \
             overrides the environment, the environment overrides the file. A switch is true or false.",
        );
    match command.get_name() {
        name if STAGES.contains(&name) => command.arg(config.hide(true)),
        _ if settings::has_settings(&command) => command.arg(config),
        _ => command,
    }
}

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
    if matches!(cli.command, Command::Run(_) | Command::Once(_) | Command::Elect(_))
        && let Err(refusal) = announce::check_filter()
    {
        say!("{refusal}");
        return exit::MISUSE.into();
    }
    match cli.command {
        Command::Run(run) => guardian::main(&run, None, &settled),
        Command::Once(OnceCommand { run, once }) => guardian::main(&run, Some(&once), &settled),
        Command::Elect(elect) => elect::main(&elect, &settled),
        Command::Status(status) => status::main(&status),
        Command::List(list) => list::main(&list),
        Command::Watch(watch) => watch::main(&watch),
        Command::Ui(ui) => ui::main(&ui),
        Command::Doctor(doctor) => doctor::main(&doctor),
        Command::History(history) => history::main(&history),
        Command::StepDown(step_down) => step_down::main(&step_down),
        Command::Pause(pause) => pause::pause(&pause),
        Command::Resume(resume) => pause::resume(&resume),
        Command::Demo(demo) => demo::main(&demo),
        Command::InitStorage(init) => init_storage::main(&init),
        Command::Completions(completions) => generated::completions(&completions),
        Command::Man(man) => generated::man(&man),
        Command::DemoCandidate(candidate) => demo::candidate_main(&candidate),
        Command::DemoWorker(worker) => demo::worker_main(&worker),
        Command::StageHost(StageArgs { run, once }) => run::main(run, once),
        Command::StageRelease(StageArgs { run, .. }) => release::main(&run),
        Command::StageDemote(elect) => elect::demote(&elect),
    }
}

fn read(words: Vec<OsString>, variables: &settings::Variables) -> Result<(Cli, ResolvedArguments), Misuse> {
    let mut described = described();
    let settled = settings::resolve(&described, words, variables).map_err(|mut refusal| {
        if let SettingsError::CommandLine(refusal) = &mut refusal {
            advise(refusal);
            redact(refusal);
        }
        Misuse { refusal, origins: Vec::new() }
    })?;
    let matches = described.try_get_matches_from_mut(settled.words());
    let cli = matches.and_then(|matches| {
        let is_typed = |option: &str| !settled.origins.has(option);
        let checked = check_excluded(&matches)
            .and_then(|()| check_modifiers(&matches, is_typed))
            .and_then(|()| check_successor(&matches))
            .and_then(|()| check_password(&matches, is_typed));
        // With the usage of the command, not that of all commands.
        checked.map_err(|refusal| {
            match matches.subcommand_name().and_then(|name| described.find_subcommand_mut(name)) {
                Some(command) => refusal.format(command),
                None => refusal,
            }
        })?;
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

/// Corrects clap's advice where it is of no use: an option of another command is no misspelling, and an
/// operator who looks for a command `stop` needs more than a similar word.
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

#[derive(Debug)]
struct Misuse {
    refusal: SettingsError,
    origins: Vec<String>,
}

fn refuse(misuse: &Misuse, words: &[OsString]) -> ExitCode {
    let refusal = match &misuse.refusal {
        SettingsError::CommandLine(refusal) => refusal,
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
    let command = words.next().and_then(|command| command.to_str());
    let command = command.filter(|command| ["run", "once"].contains(command));
    if let Some(command) = command
        && refusal.kind() == ErrorKind::UnknownArgument
        && !words.any(|word| word == "--")
    {
        say!("write -- before the command to run: vvm {command} … -- CMD ARGS…");
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

/// Options that have an effect only with another one.
const MODIFIERS: [(&str, &str); 12] = [
    ("alive_within", WARM),
    ("after_stop", WARM),
    ("start_timeout", WARM),
    ("restart_backoff", RESTART),
    ("restart_backoff_max", RESTART),
    ("restart_limit", RESTART),
    ("pre_stop_timeout", "pre_stop"),
    ("check_interval", "check"),
    ("check_timeout", "check"),
    ("check_failures", "check"),
    ("support", SUCCESSOR),
    ("successor_advertise", SUCCESSOR),
];

const RESTART: &str = "on_exit";
const WARM: &str = "warm";
const SUCCESSOR: &str = "successor";

/// An option that another one excludes, the value that has no effect, and why.
type Excluded = (&'static str, &'static str, &'static str);

const NOT_WARM: [Excluded; 4] = [
    ("try_once", "false", "an app that waits for its turn does not end because another leader lives"),
    ("on_exit", "release", "the app is always started again, and never under the same leadership"),
    ("pre_stop", "", "the app gets \"stop\" over its socket instead"),
    ("check", "", "the app says whether it is ready over its socket instead"),
];

/// For `vvm elect` the first alone.
const NOT_WITH_SUCCESSOR: [Excluded; 4] = [
    ("slots", "1", "a successor is for a name with one slot"),
    ("warm", "false", "a warm app is not told yet when its deadline comes nearer"),
    ("pre_stop", "", "after a loss, 0.15 of --support is too short for it"),
    ("quiet_time", "0", "a successor does not wait for it"),
];

fn is_set(command: &ArgMatches, option: &str) -> bool {
    command.value_source(option) == Some(ValueSource::CommandLine)
}

fn shown(option: &str) -> String {
    if option == "try_once" { "try".into() } else { option.replace('_', "-") }
}

fn refuse_excluded(
    command: &ArgMatches,
    options: &[Excluded],
    says: impl Fn(&str, &str) -> String,
) -> Result<(), Error> {
    let has_effect = |(option, harmless, _): &&Excluded| {
        is_set(command, option)
            && command.get_raw(option).into_iter().flatten().any(|value| value != *harmless)
    };
    let Some((option, _, why)) = options.iter().find(has_effect) else { return Ok(()) };
    let shown = shown(option);
    Err(refusal_of(&shown, ErrorKind::ArgumentConflict, says(&shown, why)))
}

fn check_excluded(matches: &ArgMatches) -> Result<(), Error> {
    match matches.subcommand() {
        Some(("run", run)) if run.get_flag(WARM) => refuse_excluded(run, &NOT_WARM, |option, why| {
            format!("--{option} has no meaning with --warm: {why}\n")
        }),
        Some(("once", once)) => {
            refuse_excluded(once, &REFUSED, |option, why| format!("vvm once takes no --{option}: {why}\n"))
        }
        _ => Ok(()),
    }
}

/// Refuses what can't go together with a successor, wherever it comes from.
fn check_successor(matches: &ArgMatches) -> Result<(), Error> {
    let (options, command) = match matches.subcommand() {
        Some(("run", run)) => (&NOT_WITH_SUCCESSOR[..], run),
        Some(("elect", elect)) => (&NOT_WITH_SUCCESSOR[..1], elect),
        Some(("doctor", doctor)) => (&[][..], doctor),
        _ => return Ok(()),
    };
    if !is_set(command, SUCCESSOR) {
        return Ok(());
    }
    refuse_excluded(command, options, |option, why| {
        format!("--{option} can't be used with --successor: {why}; leave one of them out\n")
    })?;
    let storage = command.get_one::<String>("storage").map(String::as_str).unwrap_or_default();
    if vvm_storage::url::shared_between_machines(storage).is_ok_and(|is_shared| !is_shared) {
        let what = "--successor needs a storage on a server: this one would be lost together with the leader's machine; \
                    docs/choosing.md compares them\n";
        return Err(refusal_of(SUCCESSOR, ErrorKind::ArgumentConflict, what.into()));
    }
    if let Ok(advertised) = command.try_get_one::<SocketAddr>("successor_advertise")
        && let Some(address) = advertised.or_else(|| command.get_one(SUCCESSOR))
        && address.ip().is_unspecified()
    {
        let what = format!("--successor: {}\n", SuccessorRefusal::Unreachable(*address));
        return Err(refusal_of(SUCCESSOR, ErrorKind::ValueValidation, what));
    }
    if let (Some(support), Some(ttl)) = (command.get_one("support"), command.get_one("ttl"))
        && let Err(refusal) = SupportPeriod::new(*support, *ttl)
    {
        let what = format!("--support: {refusal}: choose another --support, or a longer --ttl\n");
        return Err(refusal_of("support", ErrorKind::ValueValidation, what));
    }
    Ok(())
}

fn refusal_of(option: &str, kind: ErrorKind, what: String) -> Error {
    let mut refusal = Error::raw(kind, what);
    refusal.insert(ContextKind::InvalidArg, ContextValue::String(format!("--{option}")));
    refusal
}

/// Checks the modifiers in `matches`, a whole command line. Those for which `is_typed` is false come from
/// the environment or a settings file, which several commands may share: they may have no effect.
fn check_modifiers(matches: &ArgMatches, is_typed: impl Fn(&str) -> bool) -> Result<(), Error> {
    let Some((name, command)) =
        matches.subcommand().filter(|(name, _)| ["run", "once", "elect"].contains(name))
    else {
        return Ok(());
    };
    for (modifier, modified) in MODIFIERS {
        // `vvm elect` has some of them.
        if command.try_contains_id(modifier).is_err() || !is_set(command, modifier) {
            continue;
        }
        let has_effect = match modified {
            WARM => command.get_flag(WARM),
            // A warm app is started again, too.
            RESTART if modifier != "restart_limit" && command.get_flag(WARM) => true,
            RESTART => command.get_one::<OnExit>(RESTART) == Some(&OnExit::Restart),
            modified => command.contains_id(modified),
        };
        let modifier = shown(modifier);
        if !has_effect && is_typed(&modifier) {
            let missing = if modified == RESTART { "on-exit restart".into() } else { shown(modified) };
            let way_out = match (name, modified) {
                ("once", RESTART) => "with vvm once: leave it out, or use --retry-after".to_owned(),
                ("once", WARM | SUCCESSOR) => "with vvm once: leave it out".to_owned(),
                _ => format!("without --{missing}: add that, or leave it out"),
            };
            let what = format!("--{modifier} has no effect {way_out}\n");
            return Err(refusal_of(modified, ErrorKind::MissingRequiredArgument, what));
        }
    }
    Ok(())
}

/// Refuses a typed storage with a password. The environment and a settings file may have one.
fn check_password(matches: &ArgMatches, is_typed: impl Fn(&str) -> bool) -> Result<(), Error> {
    const REFUSAL: &str = "--storage has a password, and all users of this machine can read a command line: \
        put the URL into the environment (VVM_STORAGE) or a settings file, or the password alone into \
        VVM_STORAGE_PASSWORD or a file (password_file=PATH)\n";
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

#[cfg(test)]
mod tests {
    mod documented;
    mod kept_names;
    mod refusals;
}
