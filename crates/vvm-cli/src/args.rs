//! The arguments of every command, and their help texts.

mod candidate;
mod check;
mod demo;
mod duration;
mod elect;
mod generated;
mod inspect;
mod request;
mod run;
mod target;
mod values;
mod work;

pub(crate) use candidate::CandidateArgs;
pub(crate) use check::{Check, Page};
pub(crate) use demo::{DemoArgs, DemoCandidateArgs, DemoWorkerArgs};
pub(crate) use elect::ElectArgs;
pub(crate) use generated::{CompletionsArgs, ManArgs};
pub(crate) use inspect::{DoctorArgs, HistoryArgs, StatusArgs, WatchArgs};
pub(crate) use request::{PauseArgs, ResumeArgs, StepDownArgs, Wait};
pub(crate) use run::{OnLoss, RunArgs};
pub(crate) use target::InitStorageArgs;
pub(crate) use work::{OnExit, WorkArgs};

use clap::{Args as _, Parser, Subcommand};
use std::sync::LazyLock;

/// The name of the hidden command that starts the host of `vvm run`.
pub(crate) const STAGE_HOST: &str = "stage-host";

/// The name of the hidden command that releases the record of a dead host.
pub(crate) const STAGE_RELEASE: &str = "stage-release";

/// The name of the hidden command that demotes for a dead `vvm elect`.
pub(crate) const STAGE_DEMOTE: &str = "stage-demote";

/// The commands that another one starts, with the options of its own command line.
pub(crate) const STAGES: [&str; 3] = [STAGE_HOST, STAGE_RELEASE, STAGE_DEMOTE];

/// Leader election for commands: run a program on exactly one of several machines.
#[derive(Debug, Parser)]
#[command(name = "vvm", version = VERSION.as_str())]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Describes a command line that has only the command `name`, if that is one that runs for long.
    /// [`FromArgMatches`](clap::FromArgMatches) understands its matches, too.
    pub(crate) fn with_command_alone(name: &str) -> Option<clap::Command> {
        let of_run = |name| RunArgs::augment_args(clap::Command::new(name));
        let of_elect = |name| ElectArgs::augment_args(clap::Command::new(name));
        let described = match name {
            "run" => of_run("run"),
            "elect" => of_elect("elect"),
            STAGE_HOST => of_run(STAGE_HOST).hide(true),
            STAGE_RELEASE => of_run(STAGE_RELEASE).hide(true),
            STAGE_DEMOTE => of_elect(STAGE_DEMOTE).hide(true),
            _ => return None,
        };
        Some(clap::Command::new("vvm").subcommand_required(true).subcommand(described))
    }
}

/// The version, and the storages that this binary has.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let storages = vvm_storage::url::schemes().collect::<Vec<_>>().join(", ");
    format!("{} (storages: {storages})", env!("CARGO_PKG_VERSION"))
});

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(RunArgs),
    Elect(ElectArgs),
    Status(StatusArgs),
    Watch(WatchArgs),
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
    StageHost(RunArgs),
    #[command(hide = true, name = STAGE_RELEASE)]
    StageRelease(RunArgs),
    #[command(hide = true, name = STAGE_DEMOTE)]
    StageDemote(ElectArgs),
}
