//! `vvm elect`: hooks at the beginning and the end of a leadership that somebody else's process works under.
//!
//! What lives here: the process around the hooks. A thread of its own runs them ([`hooks`]), and is the
//! deadman's trigger as well ([`trigger`]); [`service`] is what the orchestrator sees.
//!
//! What does not: containment, and any promise that the last leader is dead (I1). Whoever relies on a hook
//! relies on the fencing token.

mod hook_error;
mod hooks;
mod order;
mod service;
mod trigger;

use crate::{
    announce::say,
    async_runtime,
    cli::{args::ElectArgs, exit},
    dry_run::DryRun,
    run::log,
};
use hook_error::HookError;
use hooks::{HookLines, Hooks};
use ielections::Env;
use service::HookService;
use std::{
    process::ExitCode,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::runtime::Handle;
use vvm_deadman::Deadman;
use vvm_host::LocalDir;
use vvm_host::operate as identity;
use vvm_host::{Ended, Host, HostError, HostSettings, OnLoss, Signals};
use vvm_orch::Problem;

/// What all leaderships of this process share.
#[derive(Debug)]
struct Shared {
    args: ElectArgs,
    holder: ielections::Holder,
    hooks: Hooks,
    /// Why the first hook failed, if it did.
    failed: OnceLock<HookError>,
}

/// `vvm elect`.
pub(crate) fn main(args: &ElectArgs) -> ExitCode {
    let done = if args.dry_run { show(args) } else { elect(args) };
    match done {
        Ok(status) => status.into(),
        Err(refusal) => {
            say!("{refusal}");
            refusal.exit_status().into()
        }
    }
}

/// What would be done.
fn show(args: &ElectArgs) -> Result<u8, HostError> {
    let holder = identity::or_own_name(args.holder.as_ref())?;
    let hooks = [("on lead", args.on_lead.clone()), ("on loss", args.on_loss.clone())];
    let prospect =
        DryRun { storage: &args.storage, name: &args.name, slots: args.slots, ttl: args.ttl, holder };
    Ok(match prospect.show(&hooks) {
        Ok(()) => 0,
        Err(refusal) => {
            say!("{refusal}");
            refusal.exit_status()
        }
    })
}

fn elect(args: &ElectArgs) -> Result<u8, HostError> {
    let holder = identity::or_own_name(args.holder.as_ref())?;
    let lines = HookLines { on_lead: args.on_lead.clone(), on_loss: args.on_loss.clone() };
    log::start();
    let runtime = async_runtime::start()?;
    let (hooks, thread) = Hooks::start(args.name.clone(), lines, args.hook_timeout)?;
    let shared = Arc::new(Shared { args: args.clone(), holder, hooks, failed: OnceLock::new() });
    let outcome = runtime.block_on(campaign(&shared));
    // Before the thread, which its tasks may be waiting for.
    drop(runtime);
    shared.hooks.end();
    // One that panicked has said so.
    let _ = thread.join();
    outcome
}

async fn campaign(shared: &Arc<Shared>) -> Result<u8, HostError> {
    let Shared { args, holder, .. } = &**shared;
    let mut settings = HostSettings::new(args.storage.clone(), args.name.clone());
    (settings.slots, settings.ttl, settings.holder) = (args.slots, args.ttl, Some(holder.clone()));
    settings.on_loss = OnLoss::Rejoin;
    settings.local_dir = args.local_dir.clone().unwrap_or(LocalDir::Usual);
    // Hooks have a limit of their own.
    settings.stop_timeout = Duration::MAX;
    let deadman = Deadman::with_trigger(shared.hooks.trigger());
    let host = Host::with_env(settings, Env::with_deadman(deadman, Handle::current())?, Signals::Caught)?;
    let ended = host
        .run(|| {
            say!("{}: waiting for leadership as {holder}", args.name);
            vec![Box::new(HookService(Arc::clone(shared)))]
        })
        .await;
    if let Some(failure) = shared.failed.get() {
        say!("{}: ended: the on-lead hook {failure}", args.name);
        return Ok(1);
    }
    match &ended {
        Ended::NotOpened(error) => say!("{error}"),
        ended => say!("{}: ended: {ended}", args.name),
    }
    Ok(match ended {
        Ended::NotOpened(_) | Ended::Problem(Problem::NotAcquired(_)) | Ended::Stopped => ended.exit_status(),
        Ended::Problem(_) => exit::SYSTEM,
    })
}
