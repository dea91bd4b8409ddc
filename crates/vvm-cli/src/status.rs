//! `vvm status`: which process leads each slot. Creates, claims and settles nothing.

use crate::{
    announce::{printable, say},
    args::TargetArgs,
    exit,
    inspection::operate,
    liveness::{Liveness, Observation},
    shown::{HumanDuration, Moment, Palette, Style, millis, print_rows},
};
use clap::Args;
use ielections::{ReadError, Slot, TtlStorage as _};
use serde::Serialize;
use std::{
    io::{self, Write as _},
    net::SocketAddr,
    process::ExitCode,
    time::Duration,
};
use vvm_host::operate::{InspectError, Purpose, StorageInspector, named_successor};
use vvm_storage::{ElectionKey, OperatorRequests, Pause, Stage, StepDown};

const INTERVAL: Duration = Duration::from_millis(250);

#[derive(Debug, Serialize)]
pub(crate) struct SlotRow {
    pub(crate) slot: u32,
    pub(crate) state: Liveness,
    pub(crate) holder: Option<String>,
    /// That of the last leadership, if the slot is free.
    pub(crate) epoch: Option<u64>,
    incarnation: Option<String>,
    ttl_ms: Option<u64>,
    /// The time since the record was written, if the storage can prove it or its server's clock shows it.
    age_ms: Option<u64>,
    /// Whether the age is what the clock of the storage's server shows, which may jump.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    by_server_clock: bool,
    pub(crate) paused_by: Option<String>,
    pause_reason: Option<String>,
    stepping_down: Option<Stepping>,
    /// Which standby the leader has named as its successor; only for a name with one slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    successor: Option<SocketAddr>,
}

#[derive(Debug, Serialize)]
struct Stepping {
    stage: &'static str,
    to: Option<String>,
}

pub(crate) fn main(args: &StatusArgs) -> ExitCode {
    operate(args.target.pair(), Purpose::Read, async |inspector| {
        let (settled, keys) = inspector.keys().await?;
        let (slots, requests) = inspector.storage.scan_with_requests(&inspector.cluster, &keys).await?;
        if settled.is_none() && requests.pause.is_none() {
            inspector.check_known(&slots)?;
        }
        let mut lines = look_once(inspector, &keys, &slots, &requests).await?;
        if !args.no_wait {
            wait_for_renewals(inspector, &keys, &requests, &mut lines).await?;
        }
        // Another leader may have begun meanwhile.
        if let ([key], [slot], [line]) = (&keys[..], &slots[..], &mut lines[..])
            && let Some(entry) = slot.entry().filter(|entry| line.epoch == Some(entry.epoch.get()))
        {
            line.successor = named_successor(&inspector.storage, key, entry).await?;
        }
        show(args, &lines, &requests)?;
        let worst = lines.iter().map(SlotRow::exit_status).max().unwrap_or(exit::STATUS_HELD);
        Ok(if args.exit_status { worst } else { 0 })
    })
}

/// Returns what `slots`, which were just read, prove or show by the clock of the storage's server.
pub(crate) async fn look_once(
    inspector: &StorageInspector,
    keys: &[ElectionKey],
    slots: &[Slot],
    requests: &OperatorRequests,
) -> Result<Vec<SlotRow>, ReadError> {
    let now = inspector.clock.now();
    let line = |(key, slot)| SlotRow::from_slot(key, Observation::default().add(slot, now), slot, requests);
    let mut lines = keys.iter().zip(slots).map(line).collect::<Vec<_>>();
    if lines.iter().any(SlotRow::is_held) {
        let ages = inspector.storage.shown_ages(keys).await?;
        for (line, age) in lines.iter_mut().zip(ages).filter(|(line, _)| line.is_held()) {
            let Some(age) = age.map(millis) else { continue };
            let is_led = line.ttl_ms.is_some_and(|ttl| age < ttl);
            line.state = if is_led { Liveness::Led } else { Liveness::Stale };
            (line.age_ms, line.by_server_clock) = (Some(age), true);
        }
    }
    Ok(lines)
}

/// Reads the slots of unknown age until each shows a renewal, or has stood for its TTL. A scan may be stale: an
/// observation counts from the first linearizable read.
async fn wait_for_renewals(
    inspector: &StorageInspector,
    keys: &[ElectionKey],
    requests: &OperatorRequests,
    lines: &mut [SlotRow],
) -> Result<(), ReadError> {
    announce_wait(lines);
    let mut observations = vec![Observation::default(); keys.len()];
    while lines.iter().any(SlotRow::is_held) {
        for ((key, observation), line) in keys.iter().zip(&mut observations).zip(&mut *lines) {
            if line.is_held() {
                let slot = inspector.storage.get(key).await?;
                *line =
                    SlotRow::from_slot(key, observation.add(&slot, inspector.clock.now()), &slot, requests);
            }
        }
        inspector.clock.sleep(INTERVAL).await;
    }
    Ok(())
}

fn announce_wait(lines: &[SlotRow]) {
    let held = lines.iter().filter(|line| line.is_held()).collect::<Vec<_>>();
    let Some(ttl) = held.iter().filter_map(|line| line.ttl_ms).max().map(Duration::from_millis) else {
        return;
    };
    let slots = match held.as_slice() {
        [line] => format!("slot {}", line.slot),
        several => format!("{} slots", several.len()),
    };
    say!(
        "waiting for the next renewal of {slots}: a healthy leader renews within {}; after {} without one \
         the slot is stale. --no-wait shows \"held\" at once",
        vvm_clock::DisplayDuration(ttl / 4 + ttl / 10),
        vvm_clock::DisplayDuration(ttl)
    );
}

impl SlotRow {
    fn from_slot(key: &ElectionKey, state: Liveness, slot: &Slot, requests: &OperatorRequests) -> Self {
        let (entry, pause) = (slot.entry(), requests.pause.as_ref());
        let is_about = |request: &&StepDown| request.is_about(key.slot, entry.map(|entry| entry.epoch));
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
            paused_by: pause.map(|pause| pause.author().to_owned()),
            pause_reason: pause.and_then(Pause::reason).map(str::to_owned),
            stepping_down: requests.step_down.as_ref().filter(is_about).and_then(Stepping::from_request),
            successor: None,
        }
    }

    fn is_held(&self) -> bool {
        self.state == Liveness::Held
    }

    fn exit_status(&self) -> u8 {
        match self.state {
            Liveness::Held => exit::STATUS_HELD,
            Liveness::Stale => exit::STATUS_STALE,
            Liveness::Led if self.paused_by.is_none() => 0,
            Liveness::Led | Liveness::Free => exit::STATUS_FREE,
        }
    }

    fn cells(&self) -> (Style, [Option<String>; 6]) {
        let span = |millis| HumanDuration(Duration::from_millis(millis)).to_string();
        let (style, age) = match self.state {
            // It was seen to be renewed.
            Liveness::Led => (Style::Good, Some("now".to_owned())),
            Liveness::Free => (Style::Plain, None),
            Liveness::Stale => (Style::Bad, self.ttl_ms.map(|ttl| format!("≥{}", span(ttl)))),
            Liveness::Held => (Style::Plain, Some("?".to_owned())),
        };
        let age = self.age_ms.map(span).or(age);
        let ttl = self.ttl_ms.map(|ttl| vvm_clock::DisplayDuration(Duration::from_millis(ttl)).to_string());
        let (slot, state) = (self.slot.to_string(), self.state.to_string());
        let epoch = self.epoch.map(|epoch| epoch.to_string());
        (style, [Some(slot), Some(state), age, ttl, epoch, self.holder.clone()])
    }
}

impl Stepping {
    fn from_request(request: &StepDown) -> Option<Self> {
        let stage = match request.stage {
            Stage::Asked => "asked",
            Stage::Accepted => "accepted",
            Stage::Begun => "begun",
            Stage::Withdrawn => return None,
        };
        Some(Self { stage, to: request.to.as_ref().map(ToString::to_string) })
    }
}

fn show(args: &StatusArgs, lines: &[SlotRow], requests: &OperatorRequests) -> Result<(), InspectError> {
    if !args.json {
        show_requests(lines, requests).map_err(InspectError::Output)?;
    }
    let columns = [("SLOT", -4), ("STATE", 7), ("AGE", -7), ("TTL", -7), ("EPOCH", -14), ("HOLDER", 0)];
    print_rows(args.json, columns, lines, SlotRow::cells)?;
    if !args.json && lines.iter().any(|line| line.by_server_clock) {
        say!("AGE is by the clock of the storage's server");
    }
    Ok(())
}

fn show_requests(lines: &[SlotRow], requests: &OperatorRequests) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if let Some(pause) = &requests.pause {
        let (by, since) = (printable(pause.by()), Moment(pause.since_unix_epoch()));
        let paused = format!("paused by {by}, since {since}");
        writeln!(out, "{}", Palette::of_standard_output().paint(&paused, Style::Orange))?;
    }
    for (line, stepping) in lines.iter().filter_map(|line| Some((line, line.stepping_down.as_ref()?))) {
        let to = stepping.to.as_deref().map_or("any other standby".into(), printable);
        writeln!(out, "slot {} is to step down, in favour of {to}: {}", line.slot, stepping.stage)?;
    }
    for (line, successor) in lines.iter().filter_map(|line| Some((line, line.successor?))) {
        writeln!(out, "slot {} has a successor: {successor}", line.slot)?;
    }
    Ok(())
}

/// Show which process leads each slot.
///
/// A slot is led if its record was written less than its TTL ago, and stale if not. If the storage can't prove the age
/// of a record, this command waits for the next renewal: a healthy leader renews after a quarter of the TTL, and after
/// a TTL without a renewal the slot is stale. A free slot shows the epoch of its last leadership.
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
