//! `vvm list`: the names in a storage. Creates, claims and settles nothing.

use crate::{
    announce::say,
    args::parse_storage,
    inspection::{Refusal, inspect, printable},
    liveness::{Liveness, Observation},
};
use clap::Args;
use serde::Serialize;
use std::{
    io::{self, Write as _},
    process::ExitCode,
};
use vvm_host::operate::{InspectError, Purpose, StorageInspector};
use vvm_storage::{ClusterName, ElectionKey, SlotNumber};

/// A slot of a name, as shown.
#[derive(Debug, Serialize)]
struct Line {
    name: String,
    slots: u32,
    slot: u32,
    state: Liveness,
    holder: Option<String>,
    /// That of the last leadership, if the slot is free.
    epoch: Option<u64>,
    /// The operator who paused the name.
    paused_by: Option<String>,
}

pub(crate) fn main(args: &ListArgs) -> ExitCode {
    let listed: Result<(), Refusal> = inspect((&args.storage, ""), Purpose::Look, async |inspector| {
        let Some((names, may_have_more)) = inspector.storage.names().await? else {
            let way_out = match args.storage.split(':').next() {
                Some("k8s") => "`kubectl get leases` shows them",
                _ => "ask for one by `vvm status --name NAME`",
            };
            let refusal = format!("--storage: vvm can't list the names of this kind of storage: {way_out}");
            return Err(Refusal::Misuse(refusal));
        };
        let mut lines = Vec::new();
        for name in &names {
            lines.extend(look(inspector, name).await?);
        }
        show(args, &lines).map_err(InspectError::Output)?;
        if may_have_more {
            say!("only the first {} names are shown", names.len());
        }
        Ok(())
    });
    listed.map_or_else(|refusal| refusal.conclude().into(), |()| ExitCode::SUCCESS)
}

/// Looks at the slots of a name once. Returns nothing if the name has no slot count any more.
async fn look(inspector: &StorageInspector, name: &ClusterName) -> Result<Vec<Line>, Refusal> {
    let StorageInspector { storage, clock, .. } = inspector;
    let Some(count) = storage.slot_count(name).await? else { return Ok(Vec::new()) };
    let keys = SlotNumber::all(count).map(|slot| ElectionKey { cluster: name.clone(), slot });
    let keys = keys.collect::<Vec<_>>();
    let (slots, requests) = storage.scan_with_requests(name, &keys).await?;
    let (now, ages) = (clock.now(), storage.shown_ages(&keys).await?);
    let lines = keys.iter().zip(&slots).zip(ages).map(|((key, slot), age)| Line {
        name: name.to_string(),
        slots: count.get(),
        slot: key.slot.get().get(),
        state: match (slot.entry(), age) {
            (Some(entry), Some(age)) if age < entry.ttl.get() => Liveness::Led,
            (Some(_), Some(_)) => Liveness::Stale,
            _ => Observation::default().add(slot, now),
        },
        holder: slot.entry().map(|entry| entry.holder.to_string()),
        epoch: slot.last_epoch().map(|epoch| epoch.get()),
        paused_by: requests.pause.as_ref().map(|pause| pause.author().to_owned()),
    });
    Ok(lines.collect())
}

fn show(args: &ListArgs, lines: &[Line]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, lines)?;
        return writeln!(out);
    }
    let mut row = |[name, slot, state, epoch, holder]: [&str; 5]| {
        writeln!(out, "{name:24}  {slot:>7}  {state:6}  {epoch:>14}  {holder}")
    };
    row(["NAME", "SLOT", "STATE", "EPOCH", "HOLDER"])?;
    for Line { name, slots, slot, state, holder, epoch, paused_by } in lines {
        let state = match state {
            Liveness::Led => "led",
            Liveness::Free if paused_by.is_some() => "paused",
            Liveness::Free => "free",
            Liveness::Stale => "stale",
            Liveness::Held => "held",
        };
        let epoch = epoch.map_or_else(|| "-".into(), |epoch| epoch.to_string());
        let holder = holder.as_deref().unwrap_or("-");
        row([&printable(name), &format!("{slot}/{slots}"), state, &epoch, &printable(holder)])?;
    }
    Ok(())
}

/// Show the names in a storage: their slots, and who leads each.
///
/// sqlite:, postgres:, mysql:, etcd: and buckets can list names. A slot is held if the storage can't prove how old its record
/// is: vvm status waits for its next renewal. At most 1000 names are shown.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  vvm list --storage sqlite:/var/lib/payroll/leader.db

Exit status: 0; 64 wrong arguments, or a storage that can't list names; 66 no
such storage; 69 the storage refused or can't be reached; 71 the system refused")]
pub(crate) struct ListArgs {
    /// The storage of the candidates, as given to vvm run
    #[arg(long, value_name = "URL", value_parser = parse_storage)]
    pub(crate) storage: String,
    /// As JSON: one array with an object for each slot
    #[arg(long)]
    pub(crate) json: bool,
}
