//! `vvm list`: the names in a storage. Creates, claims and settles nothing.

use crate::{
    announce::say,
    args::parse_storage,
    exit,
    inspection::{InspectionError, operate},
    liveness::Liveness,
    shown::{Style, print_rows},
    status::{SlotRow, look_once},
};
use clap::Args;
use serde::Serialize;
use std::process::ExitCode;
use vvm_host::operate::Purpose;
use vvm_storage::{ElectionKey, SlotNumber};

#[derive(Debug, Serialize)]
struct NamedLine {
    name: String,
    slots: u32,
    #[serde(flatten)]
    line: SlotRow,
}

pub(crate) fn main(args: &ListArgs) -> ExitCode {
    operate((&args.storage, ""), Purpose::Read, async |inspector| {
        let storage = &inspector.storage;
        let Some((names, may_have_more)) = storage.names().await? else {
            let refusal = "--storage: vvm can't list the names of this kind of storage: ask for one by \
                           `vvm status --name NAME`";
            return Err(InspectionError::new(exit::MISUSE, refusal));
        };
        let mut lines = Vec::new();
        for (cluster, listed) in &names {
            let slots = match listed {
                Some(_) => *listed,
                None => storage.slot_count(cluster).await?,
            };
            let Some(slots) = slots else { continue };
            let keys = SlotNumber::all(slots).map(|slot| ElectionKey { cluster: cluster.clone(), slot });
            let keys = keys.collect::<Vec<_>>();
            let (found, requests) = storage.scan_with_requests(cluster, &keys).await?;
            let found = look_once(inspector, &keys, &found, &requests).await?;
            let (name, slots) = (cluster.to_string(), slots.get());
            lines.extend(found.into_iter().map(|line| NamedLine { name: name.clone(), slots, line }));
        }
        let columns = [("NAME", 24), ("SLOT", -7), ("STATE", 6), ("EPOCH", -14), ("HOLDER", 0)];
        print_rows(args.json, columns, &lines, |NamedLine { name, slots, line }| {
            let is_paused = line.state == Liveness::Free && line.paused_by.is_some();
            let state = if is_paused { "paused".to_owned() } else { line.state.to_string() };
            let (slot, epoch) = (format!("{}/{slots}", line.slot), line.epoch.map(|epoch| epoch.to_string()));
            (Style::Plain, [Some(name.clone()), Some(slot), Some(state), epoch, line.holder.clone()])
        })?;
        if may_have_more {
            say!("only the first {} names are shown", names.len());
        }
        Ok(0)
    })
}

/// Show the names in a storage: their slots, and who leads each.
///
/// sqlite:, postgres:, mysql:, etcd:, k8s: and buckets can list names. A slot is held if the storage can't prove how
/// old its record is: vvm status waits for its next renewal. At most 1000 names are shown.
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
