//! `vvm history`: the log of each slot, as a table or as JSON.

use crate::{
    calendar::{Moment, Span},
    cli::args::HistoryArgs,
    operate::{Refusal, conclude},
};
use ielections::TtlStorage as _;
use serde::Serialize;
use std::{
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};
use vvm_clock::{SystemWallClock, WallClock as _};
use vvm_host::operate::{InspectError, Purpose};
use vvm_host::operate::{PastLeadership, read};
use vvm_storage::SlotNumber;

/// One leadership, as it is shown.
#[derive(Serialize)]
struct Line {
    slot: u32,
    #[serde(flatten)]
    reign: PastLeadership,
}

/// `vvm history`.
pub(crate) fn main(args: &HistoryArgs) -> ExitCode {
    conclude((&args.storage, &args.name), Purpose::Look, async |desk| {
        let Some(documents) = desk.storage.documents() else {
            return Err(Refusal::Refused("this storage keeps no documents, and so no history".into()));
        };
        let slots = desk.slots().await?;
        let wanted = args.slot.map(SlotNumber::new);
        if let Some(wanted) = wanted.filter(|wanted| slots.iter().all(|key| key.slot != *wanted)) {
            return Err(Refusal::Misuse(format!("--slot {wanted}: {} has {}", desk.name, slots.len())));
        }
        let mut lines = Vec::new();
        for key in slots.iter().filter(|key| wanted.is_none_or(|wanted| key.slot == wanted)) {
            let reigns = read(documents, key).await?;
            lines.extend(reigns.into_iter().map(|reign| Line { slot: key.slot.get().get(), reign }));
        }
        match show(args.json, &lines) {
            // A reader that has seen enough, as `head`.
            Err(refusal) if refusal.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            shown => shown.map_err(|refusal| InspectError::Output(refusal).into()),
        }
    })
}

fn show(json: bool, lines: &[Line]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, lines)?;
        return writeln!(out);
    }
    writeln!(
        out,
        "{:>4}  {:20}  {:20}  {:>8}  {:>14}  {:24}  HOW IT ENDED",
        "SLOT", "START", "END", "FOR", "EPOCH", "HOLDER"
    )?;
    let now = SystemWallClock.since_unix_epoch();
    for Line { slot, reign } in lines {
        let started = Duration::from_millis(reign.started_ms);
        let ended = reign.ended_ms.map(Duration::from_millis);
        let lasted = Span(ended.unwrap_or(now).saturating_sub(started)).to_string();
        let end = ended.map_or_else(|| "-".to_owned(), |ended| Moment(ended).to_string());
        let start = Moment(started).to_string();
        // What stands in a storage may hold anything, terminals' own commands too.
        let holder = reign.holder.escape_debug().to_string();
        let how = reign.end.as_deref().unwrap_or("-").escape_debug().to_string();
        writeln!(
            out,
            "{slot:>4}  {start:20}  {end:20}  {lasted:>8}  {:>14}  {holder:24}  {how}",
            reign.epoch
        )?;
    }
    Ok(())
}
