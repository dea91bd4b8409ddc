//! `vvm status`: which process leads each slot. Creates, claims and settles nothing.

use crate::{
    announce::say,
    args::TargetArgs,
    exit,
    inspection::{Refusal, inspect},
    liveness::{Liveness, Observation},
    shown::{Moment, Palette, Span, Style},
};
use clap::Args;
use ielections::{Slot, TtlStorage as _};
use serde::Serialize;
use std::{
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};
use vvm_host::operate::{InspectError, Purpose, StorageInspector};
use vvm_storage::{ElectionKey, Pause, Requests, Stage, StepDown};

/// Pause between two reads of a slot whose next renewal is awaited.
const INTERVAL: Duration = Duration::from_millis(250);

/// A slot, as shown.
#[derive(Debug, Serialize)]
struct Line {
    slot: u32,
    state: Liveness,
    holder: Option<String>,
    /// That of the last leadership, if the slot is free.
    epoch: Option<u64>,
    incarnation: Option<String>,
    ttl_ms: Option<u64>,
    /// The time since the record was written, if the storage can prove it or its server's clock shows it.
    age_ms: Option<u64>,
    /// Whether the age is what the clock of the storage's server shows, which may jump.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    by_server_clock: bool,
    /// The operator who paused the name.
    paused_by: Option<String>,
    pause_reason: Option<String>,
    stepping_down: Option<Stepping>,
}

/// A step-down request, as shown.
#[derive(Debug, Serialize)]
struct Stepping {
    stage: &'static str,
    to: Option<String>,
}

pub(crate) fn main(args: &StatusArgs) -> ExitCode {
    let shown: Result<_, Refusal> = inspect(args.target.pair(), Purpose::Look, async |inspector| {
        let (lines, requests) = look(inspector, args).await?;
        show(args, &lines, &requests).map_err(InspectError::Output)?;
        Ok(lines.iter().map(Line::exit_status).max())
    });
    match shown {
        Ok(worst) if args.exit_status => worst.unwrap_or(exit::STATUS_HELD).into(),
        Ok(_) => ExitCode::SUCCESS,
        Err(refusal) => refusal.conclude().into(),
    }
}

async fn look(inspector: &StorageInspector, args: &StatusArgs) -> Result<(Vec<Line>, Requests), Refusal> {
    let StorageInspector { storage, cluster, clock, .. } = inspector;
    let (settled, keys) = inspector.keys().await?;
    let (slots, requests) = storage.scan_with_requests(cluster, &keys).await?;
    if settled.is_none() && requests.pause.is_none() {
        inspector.check_known(&slots)?;
    }
    let now = clock.now();
    let mut seen = Vec::with_capacity(keys.len());
    for slot in slots {
        seen.push((Observation::default().add(&slot, now), slot));
    }
    let mut by_server_clock = vec![None; keys.len()];
    if seen.iter().any(|(state, _)| *state == Liveness::Held) {
        by_server_clock = storage.shown_ages(&keys).await?;
        for ((state, slot), age) in seen.iter_mut().zip(&mut by_server_clock) {
            match (slot.entry(), *age) {
                (Some(entry), Some(age)) if *state == Liveness::Held => {
                    *state = if age < entry.ttl.get() { Liveness::Led } else { Liveness::Stale };
                }
                _ => *age = None,
            }
        }
    }
    // A scan may be stale: an observation counts from the first linearizable read.
    let mut observations = vec![Observation::default(); keys.len()];
    if !args.no_wait {
        announce_wait(keys.iter().zip(&seen));
    }
    while !args.no_wait && seen.iter().any(|(state, _)| *state == Liveness::Held) {
        for ((key, observation), seen) in keys.iter().zip(&mut observations).zip(&mut seen) {
            if seen.0 == Liveness::Held {
                let slot = storage.get(key).await?;
                *seen = (observation.add(&slot, clock.now()), slot);
            }
        }
        clock.sleep(INTERVAL).await;
    }
    let mut lines = Vec::with_capacity(keys.len());
    for ((key, (state, slot)), shown) in keys.iter().zip(&seen).zip(by_server_clock) {
        let line = Line::of(key, *state, slot, &requests);
        let age_ms = shown.map(millis).or(line.age_ms);
        lines.push(Line { age_ms, by_server_clock: shown.is_some(), ..line });
    }
    Ok((lines, requests))
}

/// Says what is waited for, if there is a record of unknown age.
fn announce_wait<'a>(slots: impl Iterator<Item = (&'a ElectionKey, &'a (Liveness, Slot))>) {
    let held = slots.filter(|(_, (state, _))| *state == Liveness::Held);
    let held = held.filter_map(|(key, (_, slot))| Some((key.slot.get(), slot.entry()?.ttl.get())));
    let held = held.collect::<Vec<_>>();
    let Some(ttl) = held.iter().map(|(_, ttl)| *ttl).max() else { return };
    let slots = match held.as_slice() {
        [(slot, _)] => format!("slot {slot}"),
        several => format!("{} slots", several.len()),
    };
    say!(
        "waiting for the next renewal of {slots}: a healthy leader renews within {}; after {} without one \
         the slot is stale. --no-wait shows \"held\" at once",
        vvm_clock::Span(ttl / 4 + ttl / 10),
        vvm_clock::Span(ttl)
    );
}

/// Returns whole milliseconds.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Line {
    fn of(key: &ElectionKey, state: Liveness, slot: &Slot, requests: &Requests) -> Self {
        let entry = slot.entry();
        let step_down = requests.step_down.as_ref();
        let step_down =
            step_down.filter(|request| request.is_about(key.slot, entry.map(|entry| entry.epoch)));
        let age = if let Slot::Held { proven_age, .. } = slot { *proven_age } else { None };
        Self {
            slot: key.slot.get().get(),
            state,
            holder: entry.map(|entry| entry.holder.to_string()),
            epoch: slot.last_epoch().map(|epoch| epoch.get()),
            incarnation: entry.map(|entry| entry.incarnation().to_string()),
            ttl_ms: entry.map(|entry| millis(entry.ttl.get())),
            age_ms: age.map(millis),
            by_server_clock: false,
            paused_by: requests.pause.as_ref().map(|pause| pause.author().to_owned()),
            pause_reason: requests.pause.as_ref().and_then(Pause::reason).map(str::to_owned),
            stepping_down: step_down.and_then(Stepping::of),
        }
    }

    /// Returns the status of `--exit-status`.
    fn exit_status(&self) -> u8 {
        match self.state {
            Liveness::Held => exit::STATUS_HELD,
            Liveness::Stale => exit::STATUS_STALE,
            Liveness::Led if self.paused_by.is_none() => 0,
            Liveness::Led | Liveness::Free => exit::STATUS_FREE,
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
    let palette = Palette::of_standard_output();
    if let Some(pause) = &requests.pause {
        let paused = format!("paused by {}, since {}", pause.by(), Moment(pause.since_unix_epoch()));
        writeln!(out, "{}", palette.paint(&paused, Style::Orange))?;
    }
    for (line, stepping) in lines.iter().filter_map(|line| Some((line, line.stepping_down.as_ref()?))) {
        let to = stepping.to.as_deref().unwrap_or("any other standby");
        writeln!(out, "slot {} is to step down, in favour of {to}: {}", line.slot, stepping.stage)?;
    }
    let mut row = |style, [slot, state, age, ttl, epoch, holder]: [&str; 6]| {
        let state = palette.paint(&format!("{state:7}"), style);
        writeln!(out, "{slot:>4}  {state}  {age:>7}  {ttl:>7}  {epoch:>14}  {holder}")
    };
    row(Style::Plain, ["SLOT", "STATE", "AGE", "TTL", "EPOCH", "HOLDER"])?;
    for line in lines {
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let span = |millis| Span(Duration::from_millis(millis)).to_string();
        let (style, state, age) = match line.state {
            // It was seen to be renewed.
            Liveness::Led => (Style::Good, "led", Some("now".to_owned())),
            Liveness::Free => (Style::Plain, "free", None),
            Liveness::Stale => (Style::Bad, "stale", line.ttl_ms.map(|ttl| format!("≥{}", span(ttl)))),
            Liveness::Held => (Style::Plain, "held", Some("?".to_owned())),
        };
        let age = line.age_ms.map(span).or(age);
        let ttl = line.ttl_ms.map(|ttl| vvm_clock::Span(Duration::from_millis(ttl)).to_string());
        let (slot, epoch) = (line.slot.to_string(), line.epoch.map(|epoch| epoch.to_string()));
        row(style, [&slot, state, &text(&age), &text(&ttl), &text(&epoch), &text(&line.holder)])?;
    }
    if lines.iter().any(|line| line.by_server_clock) {
        say!("AGE is by the clock of the storage's server");
    }
    Ok(())
}

/// Show which process leads each slot.
///
/// A slot is led if its record was written less than its TTL ago, and stale if not. If the storage can't
/// prove the age of a record, this command waits for the next renewal: a healthy leader renews after a
/// quarter of the TTL, and after a TTL without a renewal the slot is stale. A free slot shows the epoch of
/// its last leadership.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  vvm status --storage sqlite:/var/lib/payroll/leader.db --name payroll --json

Exit status: 0; 64 wrong arguments; 66 no such storage or name; 69 the storage
refused or can't be reached; 71 the system refused. With --exit-status, the
worst slot counts: 0 led; 1 free, or the name is paused; 2 stale; 3 held, with
--no-wait")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Don't wait for renewals: a slot is "held" if the age of its record is unknown
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// For monitoring: exit with the state of the worst slot (see below)
    #[arg(long)]
    pub(crate) exit_status: bool,
    /// As JSON: one array with an object for each slot
    #[arg(long)]
    pub(crate) json: bool,
}
