//! `vvm list`: the names in a storage. Creates, claims and settles nothing.

use crate::{
    args::parse_storage,
    inspection::{Refusal, inspect},
    liveness::{Liveness, Observation},
};
use clap::Args;
use ielections::Slot;
use serde::Serialize;
use std::{
    io::{self, Write as _},
    process::ExitCode,
};
use vvm_host::operate::{InspectError, Purpose, StorageInspector};
use vvm_storage::{ClusterName, ElectionKey, SlotNumber};

/// Show the names in a storage: their slots, state and leaders.
///
/// sqlite:, postgres:, mysql:, etcd: and scylla: can list names. On scylla: this reads the keys of the whole table. The
/// state is that of the worst slot: stale, free, held, led. A slot is held if the storage can't prove how old its
/// record is: vvm status waits for its next renewal.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  vvm list --storage sqlite:/var/lib/payroll/leader.db

Exit status: 0; 64 wrong arguments, or a storage that can't list names; 66 no such
storage; 69 the storage refused or can't be reached; 71 the system refused")]
pub(crate) struct ListArgs {
    /// The storage of the candidates, as given to vvm run
    #[arg(long, value_name = "URL", value_parser = parse_storage)]
    pub(crate) storage: String,
    /// As JSON: one array with an object for each name
    #[arg(long)]
    pub(crate) json: bool,
}

/// A name, as shown.
#[derive(Debug, Serialize)]
struct Line {
    name: String,
    slots: u32,
    state: Liveness,
    leaders: Vec<String>,
    /// The operator who paused the name.
    paused_by: Option<String>,
}

pub(crate) fn main(args: &ListArgs) -> ExitCode {
    let listed: Result<(), Refusal> = inspect((&args.storage, ""), Purpose::Look, async |inspector| {
        let Some(names) = inspector.storage.names().await? else {
            return Err(Refusal::Misuse(format!(
                "--storage: this one can't list its names{}; ask for one by `vvm status --name NAME`",
                why_not(&args.storage)
            )));
        };
        let mut lines = Vec::with_capacity(names.len());
        for name in names {
            lines.extend(look(inspector, name).await?);
        }
        Ok(show(args, &lines).map_err(InspectError::Output)?)
    });
    listed.map_or_else(|refusal| refusal.conclude().into(), |()| ExitCode::SUCCESS)
}

/// Returns why a storage lists nothing, in brackets for the message.
fn why_not(url: &str) -> &'static str {
    match url.split(':').next() {
        Some("dynamodb") => " (a Scan would read and bill the whole table, documents included)",
        Some("k8s") => " (candidates need no right to list Leases; `kubectl get leases` shows them)",
        Some("s3" | "gs" | "az") => " (the names of its objects are encoded, and it lists no bucket)",
        _ => "",
    }
}

/// Returns `None` if the name has no slot count any more.
async fn look(inspector: &StorageInspector, name: ClusterName) -> Result<Option<Line>, Refusal> {
    let StorageInspector { storage, clock, .. } = inspector;
    let Some(count) = storage.slot_count(&name).await? else { return Ok(None) };
    let slots = SlotNumber::all(count).map(|slot| ElectionKey { cluster: name.clone(), slot });
    let keys = slots.collect::<Vec<_>>();
    let (slots, requests) = storage.scan_with_requests(&name, &keys).await?;
    let (now, ages) = (clock.now(), storage.shown_ages(&keys).await?);
    let states = slots.iter().zip(ages).map(|(slot, age)| match (slot.entry(), age) {
        (Some(entry), Some(age)) if age < entry.ttl.get() => Liveness::Led,
        (Some(_), Some(_)) => Liveness::Stale,
        _ => Observation::default().add(slot, now),
    });
    let from_best_to_worst = [Liveness::Led, Liveness::Held, Liveness::Free, Liveness::Stale];
    let rank = |state: &Liveness| from_best_to_worst.iter().position(|other| other == state);
    Ok(Some(Line {
        name: name.to_string(),
        slots: count.get(),
        state: states.max_by_key(rank).unwrap_or(Liveness::Free),
        leaders: slots.iter().filter_map(Slot::entry).map(|entry| entry.holder.to_string()).collect(),
        paused_by: requests.pause.map(|pause| pause.author().to_owned()),
    }))
}

fn show(args: &ListArgs, lines: &[Line]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, lines)?;
        return writeln!(out);
    }
    writeln!(out, "{:24}  {:>5}  {:6}  LEADER", "NAME", "SLOTS", "STATE")?;
    for Line { name, slots, state, leaders, paused_by } in lines {
        let state = match state {
            _ if paused_by.is_some() => "paused",
            Liveness::Led => "led",
            Liveness::Free => "free",
            Liveness::Stale => "stale",
            Liveness::Held => "held",
        };
        let leaders = if leaders.is_empty() { "-".to_owned() } else { leaders.join(", ") };
        // A program may lead by a name of any bytes.
        writeln!(out, "{:24}  {slots:>5}  {state:6}  {leaders}", name.escape_debug().to_string())?;
    }
    Ok(())
}
