//! `vvm status`: who leads which slot. Only looks: nothing is created, claimed or settled.

mod instances;

use crate::{
    announce::say,
    async_runtime,
    calendar::Moment,
    cli::{args::StatusArgs, exit},
    shortage::Shortage,
};
use clock::{Clock, SystemClock};
use ielections::{ReadError, Slot, TtlStorage as _};
use primary_only::DocumentedInstance;
use serde::Serialize;
use std::{
    io::{self, Write as _},
    num::NonZeroU32,
    process::ExitCode,
    sync::Arc,
};
use vvm_storage::{ClusterName, ElectionKey, ElectionsTtlStorage, Requests, SlotNumber, Stage, StepDown};

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
enum StatusError {
    #[error("--storage: {0}")]
    Open(#[from] vvm_storage::OpenError),
    #[error("--storage {0}: there is no such storage yet: the first `vvm run` creates it")]
    NoStorage(String),
    #[error("nobody has ever campaigned for {name} in {storage}: check --name")]
    UnknownName { name: String, storage: String },
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    System(Shortage),
    #[error("can't write: {0}")]
    Output(io::Error),
}

/// One slot, as it is shown.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Line {
    slot: u32,
    state: &'static str,
    holder: Option<String>,
    epoch: Option<u64>,
    incarnation: Option<String>,
    ttl_ms: Option<u64>,
    /// Who paused the whole name, if somebody did.
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
    let shown =
        look(args).and_then(|(lines, requests)| show(args, &lines, &requests).map_err(StatusError::Output));
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        // A reader that has seen enough, as `head`.
        Err(StatusError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(refusal) => {
            say!("{refusal}");
            match &refusal {
                StatusError::Open(cause) if cause.is_misuse() => exit::MISUSE,
                StatusError::Open(cause) if cause.is_of_system() => exit::SYSTEM,
                StatusError::Open(_) | StatusError::Read(_) => exit::STORAGE,
                StatusError::NoStorage(_) | StatusError::UnknownName { .. } => exit::UNKNOWN,
                StatusError::System(_) | StatusError::Output(_) => exit::SYSTEM,
            }
            .into()
        }
    }
}

fn look(args: &StatusArgs) -> Result<(Vec<Line>, Requests), StatusError> {
    let runtime = async_runtime::start();
    runtime.map_err(|cause| StatusError::System(cause.into()))?.block_on(async {
        let clock = Arc::new(SystemClock::start().map_err(|cause| StatusError::System(cause.into()))?)
            as Arc<dyn Clock>;
        if !vvm_storage::url::exists(&args.storage)? {
            return Err(StatusError::NoStorage(args.storage.clone()));
        }
        let storage = ElectionsTtlStorage::new(vvm_storage::open(&args.storage, clock).await?);
        let lines = read(&storage, args).await;
        storage.close().await;
        lines
    })
}

async fn read(
    storage: &ElectionsTtlStorage,
    args: &StatusArgs,
) -> Result<(Vec<Line>, Requests), StatusError> {
    let cluster = ClusterName::from(args.name.as_str());
    let unknown = || StatusError::UnknownName { name: args.name.clone(), storage: args.storage.clone() };
    let settled = storage.slot_count(&cluster).await?;
    // A program that leads a slot of its own choice need not have settled how many there are.
    let keys = SlotNumber::all(settled.unwrap_or(NonZeroU32::MIN))
        .map(|slot| ElectionKey { cluster: cluster.clone(), slot });
    let keys = keys.collect::<Vec<_>>();
    let (slots, requests) = storage.scan_with_requests(&cluster, &keys).await?;
    if settled.is_none() && slots.iter().all(|slot| slot.last_epoch().is_none()) {
        return Err(unknown());
    }
    let mut lines = Vec::with_capacity(keys.len());
    for (key, slot) in keys.iter().zip(&slots) {
        let instances = if args.instances { Some(instances::read(storage, key).await?) } else { None };
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
