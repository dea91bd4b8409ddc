//! `vvm elect`: runs hooks when a leadership begins and ends. The leader is a process that vvm did not start. A thread
//! of its own runs the hooks ([`hooks`]), and heeds the kill deadline, too ([`Hooks`]). Nothing here proves that the
//! last leader is dead (I1): receivers of writes must check the fencing token.

mod demoter;
mod hooks;

pub(crate) use demoter::main as demote;

use crate::{
    announce::{self, say, say_text},
    args::{CandidateArgs, InvalidValue, parse_duration, parse_line},
    exit,
    leadership::RecordId,
    runtime,
    settings::ResolvedArguments,
};
use clap::{Args, ValueEnum};
use demoter::Demoter;
use hooks::{HookService, Hooks};
use ielections::{AcquireError, Env, Holder};
use std::{io, pin::pin, process::ExitCode, sync::Arc, time::Duration};
use tokio::{runtime::Handle, sync::watch};
use vvm_containment::Family;
use vvm_deadman::Deadman;
use vvm_host::{Host, HostError, HostOutcome, Next, Services, Signals};
use vvm_orch::Problem;

pub(crate) fn main(args: &ElectArgs, settled: &ResolvedArguments) -> ExitCode {
    announce::start_log(args.candidate.log_format);
    let holder = args.candidate.own_holder().map_err(HostError::from);
    let done = holder.and_then(|holder| elect(args, holder, settled));
    done.unwrap_or_else(|refusal| {
        say!("{refusal}");
        refusal.exit_status()
    })
    .into()
}

fn elect(args: &ElectArgs, holder: Holder, settled: &ResolvedArguments) -> Result<u8, HostError> {
    announce::start_events();
    let runtime = runtime::start()?;
    let arguments = settled.stage_arguments(&args.candidate, &holder);
    let name = args.candidate.name.clone();
    let demoter = Demoter::start(name, arguments, settled.handed_on());
    let demoter = demoter.map_err(|cause| match Family::of_this_process() {
        Err(no_proc) if cause.kind() == io::ErrorKind::NotFound => io::Error::other(no_proc),
        _ => cause,
    });
    let demoter = Arc::new(demoter?);
    let (hooks, thread) = Hooks::start(args, &holder, &demoter)?;
    let hooks = Arc::new(hooks);
    let outcome = runtime.block_on(campaign(args, holder, &hooks, &demoter));
    demoter.dismiss();
    // Before the thread, because tasks may wait for it.
    runtime.shutdown_background();
    hooks.end();
    let _ = thread.join();
    outcome
}

async fn campaign(
    args: &ElectArgs,
    holder: Holder,
    hooks: &Arc<Hooks>,
    demoter: &Arc<Demoter>,
) -> Result<u8, HostError> {
    let name = args.candidate.name.clone();
    let mut settings = args.candidate.host_settings(holder.clone());
    // The leader is another process, so the on-loss hook has to run before this one ends.
    settings.stop_on_quit = true;
    let deadman = Deadman::with_trigger(hooks.clone());
    let mut host = Host::with_env(settings, Env::with_deadman(deadman, Handle::current())?, Signals::Caught)?;
    let informed = Arc::clone(demoter);
    host.report_claims(move |claim| informed.tell_claim(claim.map(RecordId::from)));
    // Nothing is claimed before the hook has ended.
    let (ready, is_ready) = watch::channel(false);
    host.campaign_while(is_ready);
    let stop = host.stop();
    let status = host.status();
    let service = HookService {
        name: name.clone(),
        holder: holder.clone(),
        withheld: args.candidate.withheld(),
        hooks: Arc::clone(hooks),
        failed: Arc::default(),
        loss_failed: watch::Sender::default(),
        status: Arc::clone(&status),
        host_stop: stop.clone(),
    };
    let services = || -> Services {
        let trouble = status.storage_trouble().map(|trouble| format!("; {trouble}")).unwrap_or_default();
        say_text!("{name}: waiting for leadership as {holder}{trouble}");
        vec![Box::new(service.clone())]
    };
    let after = |ended: &HostOutcome| match ended {
        HostOutcome::Problem(Problem::Lost(_)) => Next::CampaignAfter(Duration::ZERO),
        _ => Next::Stop,
    };
    let demoting = async {
        if args.on_start == OnStart::Demote {
            service.demote_at_start().await;
        }
        ready.send_replace(true);
    };
    let mut running = pin!(async { tokio::join!(host.run_then(services, after), demoting).0 });
    let ended = tokio::select! {
        biased;
        ended = &mut running => ended,
        () = stop.cancelled() => {
            // This process demotes now. A second signal ends it at once, and a hook that runs continues.
            demoter.dismiss();
            running.await
        }
    };
    if ended.leaves_work() {
        // Past the kill deadline, the host waits for no service: the on-loss hook may still run, and this process
        // ends after it.
        drop(hooks.lose().await);
    }
    let leader = status.leader_seen().map(|leader| format!("; {leader}")).unwrap_or_default();
    let (mut exit_status, mut reason) = match (service.failed.get(), &ended) {
        (Some(failure), _) => (1, format!("the on-lead hook {failure}")),
        (None, HostOutcome::Problem(Problem::NotAcquired(refusal)))
            if matches!(**refusal, AcquireError::TimedOut { .. }) =>
        {
            (ended.exit_status(), format!("{refusal}{leader}"))
        }
        (
            None,
            HostOutcome::NotOpened(_) | HostOutcome::Problem(Problem::NotAcquired(_)) | HostOutcome::Stopped,
        ) => (ended.exit_status(), ended.to_string()),
        (None, HostOutcome::Problem(problem)) => (exit::SYSTEM, problem.to_string()),
    };
    if let Some(failure) = &*service.loss_failed.borrow() {
        // The machine may not be demoted. Any other failure has a status of its own.
        exit_status = if exit_status == 0 { 1 } else { exit_status };
        reason = format!("{reason}; the on-loss hook {failure}: demote this machine by hand");
    }
    let (event, name, holder) = ("concluded", name.as_str(), holder.as_str());
    tracing::info!(target: "vvm", event, name, holder, exit_status, reason, "{name}: ended: {reason}");
    Ok(exit_status)
}

/// Run a hook when this process begins to lead, and another when it stops leading.
///
/// For standbys that are already running, and for sidecars: the leader is a process that vvm does not start,
/// so vvm elect can't kill it before the next leader begins. Let each receiver of writes compare
/// VVM_LEADER_EPOCH and refuse smaller ones. If vvm can start and stop the command, use vvm run.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  vvm elect --storage sqlite:/var/lib/payroll/leader.db --name payroll --on-lead ./promote --on-loss ./demote

  Hooks run one at a time, with VVM_LEADER_NAME, _SLOT, _EPOCH, _HOLDER and _INCARNATION in their environment.
  At the start no leadership is known: VVM_LEADER_SLOT and _EPOCH are 0, and VVM_LEADER_REASON is start.
  On TERM, INT, HUP or QUIT a leader runs the on-loss hook and releases the leadership. Then vvm exits.

Exit status:
  0   stopped by a signal      69  the storage refused
  1   a hook failed            71  the system refused
  64  wrong arguments          75  not acquired in time
  78  configuration conflict in the storage
  80  the kill deadline passed before the on-loss hook had ended")]
pub(crate) struct ElectArgs {
    #[command(flatten)]
    pub(crate) candidate: CandidateArgs,
    /// Shell line (sh -c) that runs when leadership is acquired
    #[arg(long, value_name = "LINE", value_parser = parse_hook)]
    pub(crate) on_lead: String,
    /// Shell line (sh -c) that runs before leadership is released, at once after a loss, and at the kill
    /// deadline (0.8 TTL after the last renewal) at the latest. Runs again if vvm elect dies meanwhile; only
    /// its success then releases the leadership before the TTL has passed
    #[arg(long, value_name = "LINE", value_parser = parse_hook)]
    pub(crate) on_loss: String,
    /// What to do before the first campaign. demote: run the on-loss hook, because this machine may have led when vvm
    /// elect or the machine crashed. It must be idempotent: usually there is nothing to demote. keep: run no hook
    #[arg(long, value_name = "ACTION", default_value = "demote")]
    pub(crate) on_start: OnStart,
    /// How long a hook may take before it is killed
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub(crate) hook_timeout: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum OnStart {
    Demote,
    Keep,
}

fn parse_hook(text: &str) -> Result<String, InvalidValue> {
    match text.trim() {
        // `vvm run` has an option of the same name, and may share a settings file.
        "exit" | "rejoin" => Err(InvalidValue("this is for vvm run: write a line for sh -c, like ./demote")),
        "" => Err(InvalidValue("write a line for sh -c, like ./demote, or : for none")),
        _ => parse_line(text),
    }
}
