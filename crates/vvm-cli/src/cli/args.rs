//! The arguments of every command, and the help that explains them. What a value may be stands in [`values`].

mod check;
mod demo;
mod doctor;
mod elect;
mod generated;
mod history;
mod init_storage;
mod observe;
mod pause;
mod run;
mod status;
mod step_down;
pub(crate) mod values;
mod watch;
mod work;

pub(crate) use check::{Check, Page};
pub(crate) use demo::{DemoArgs, DemoCandidateArgs, DemoWorkerArgs};
pub(crate) use doctor::DoctorArgs;
pub(crate) use elect::ElectArgs;
pub(crate) use generated::{CompletionsArgs, ManArgs};
pub(crate) use history::HistoryArgs;
pub(crate) use init_storage::InitStorageArgs;
pub(crate) use pause::{PauseArgs, ResumeArgs, Wait};
pub(crate) use run::{AcquireTimeout, OnLoss, RunArgs};
pub(crate) use status::StatusArgs;
pub(crate) use step_down::StepDownArgs;
pub(crate) use watch::WatchArgs;
pub(crate) use work::{OnExit, RestartLimit, WorkArgs};

use clap::{Parser, Subcommand};

/// Run things on one machine at a time: leader election you can trust with your data.
#[derive(Debug, Parser)]
#[command(name = "vvm", version, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

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
    #[command(hide = true, name = crate::run::STAGE)]
    StageHost(RunArgs),
}
