//! `vvm status`: who leads which slot. Only looks: nothing is created, claimed or settled.

mod instances;

use crate::inspection::inspect;
use crate::{calendar::Moment, cli::args::StatusArgs};
use ielections::Slot;
use primary_only::DocumentedInstance;
use serde::Serialize;
use std::{
    io::{self, Write as _},
    process::ExitCode,
};
use vvm_host::operate::{InspectError, Purpose, StorageInspector};
use vvm_storage::{Requests, SlotNumber, Stage, StepDown};

/// One slot, as it is shown.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Line {
    slot: u32,
    state: &'static str,
    holder: Option<String>,
    epoch: Option<u64>,
    incarnation: Option<String>,
    ttl_ms: Option<u64>,
    /// The operator who paused the whole name.
    paused_by: Option<String>,
    /// How far a step-down has come that was asked of this leader, and who shall come next.
    stepping_down: Option<Stepping>,
    /// Where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    instances: Option<Vec<DocumentedInstance>>,
}

/// A step-down, as it is shown.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Stepping {
    stage: &'static str,
    to: Option<String>,
}

/// `vvm status`.
pub(crate) fn main(args: &StatusArgs) -> ExitCode {
    let looked = inspect((&args.storage, &args.name), Purpose::Look, async |desk| look(desk, args).await);
    let shown =
        looked.and_then(|(lines, requests)| show(args, &lines, &requests).map_err(InspectError::Output));
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => crate::inspection::conclude(&refusal),
    }
}

async fn look(desk: &StorageInspector, args: &StatusArgs) -> Result<(Vec<Line>, Requests), InspectError> {
    let (settled, keys) = desk.keys().await?;
    let (slots, requests) = desk.storage.scan_with_requests(&desk.cluster, &keys).await?;
    if settled.is_none() {
        desk.check_known(&slots)?;
    }
    let mut lines = Vec::with_capacity(keys.len());
    for (key, slot) in keys.iter().zip(&slots) {
        let instances = if args.instances { Some(instances::read(&desk.storage, key).await?) } else { None };
        lines.push(Line { instances, ..Line::of(key.slot, slot, &requests) });
    }
    Ok((lines, requests))
}

impl Line {
    fn of(number: SlotNumber, slot: &Slot, requests: &Requests) -> Self {
        let entry = slot.entry();
        let step_down = requests.step_down.as_ref();
        let step_down = step_down.filter(|request| request.is_about(number, slot.last_epoch()));
        Self {
            slot: number.get().get(),
            state: if entry.is_some() { "held" } else { "free" },
            holder: entry.map(|entry| entry.holder.to_string()),
            // A free slot still has its epoch: that of the last leadership.
            epoch: slot.last_epoch().map(|epoch| epoch.get()),
            incarnation: entry.map(|entry| entry.incarnation().to_string()),
            // At most a day (`Ttl::MAX`).
            ttl_ms: entry.map(|entry| entry.ttl.get().as_millis() as u64),
            paused_by: requests.pause.as_ref().map(|pause| pause.by().to_owned()),
            stepping_down: step_down.and_then(Stepping::of),
            instances: None,
        }
    }
}

impl Stepping {
    fn of(request: &StepDown) -> Option<Self> {
        let stage = match request.stage {
            Stage::Asked => "asked",
            Stage::Accepted => "accepted",
            Stage::Begun => "begun",
            Stage::Withdrawn => return None,
        };
        Some(Self { stage, to: request.to.as_ref().map(ToString::to_string) })
    }
}

fn show(args: &StatusArgs, lines: &[Line], requests: &Requests) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, lines)?;
        return writeln!(out);
    }
    if let Some(pause) = &requests.pause {
        writeln!(out, "paused by {}, since {}", pause.by(), Moment(pause.since_unix_epoch()))?;
    }
    for (line, stepping) in lines.iter().filter_map(|line| Some((line, line.stepping_down.as_ref()?))) {
        let to = stepping.to.as_ref().map_or_else(|| "anybody else".to_owned(), ToString::to_string);
        writeln!(out, "slot {} is to step down, in favour of {to}: {}", line.slot, stepping.stage)?;
    }
    let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    writeln!(
        out,
        "{:>4}  {:5}  {:>14}  {:>9}  {:32}  HOLDER",
        "SLOT", "STATE", "EPOCH", "TTL", "INCARNATION"
    )?;
    for line in lines {
        let ttl = line.ttl_ms.map_or_else(
            || "-".to_owned(),
            |millis| format!("{:?}", std::time::Duration::from_millis(millis)),
        );
        let (epoch, incarnation, holder) = (number(line.epoch), text(&line.incarnation), text(&line.holder));
        writeln!(
            out,
            "{:>4}  {:5}  {epoch:>14}  {ttl:>9}  {incarnation:32}  {holder}",
            line.slot, line.state
        )?;
    }
    instances::show(&mut out, lines.iter().map(|line| (line.slot, line.instances.as_deref())))
}
