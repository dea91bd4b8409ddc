//! `vvm history`: the log of each slot, as a table or as JSON.

use crate::{
    announce::say,
    args::{TargetArgs, parse_file, parse_slots},
    exit,
    inspection::{InspectionError, operate, slot_of},
    liveness::{Liveness, Observation, dated_slot},
    once, result_file,
    shown::{HumanDuration, Moment, Style, print_rows},
};
use clap::Args;
use ielections::{Slot, TtlStorage as _};
use serde::Serialize;
use std::{num::NonZeroU32, path::PathBuf, process::ExitCode, time::Duration};
use vvm_clock::{Instant, SystemWallClock, WallClock as _};
use vvm_host::operate::{Axis, Bar, BarKind, Mark, MarkKind, PastLeadership, Purpose, Timeline, read};

#[derive(Serialize)]
pub(crate) struct LeadershipRow {
    pub(crate) slot: u32,
    #[serde(flatten)]
    pub(crate) leadership: PastLeadership,
}

pub(crate) const NOT_RENEWED: &str =
    "not renewed for its TTL: its leader is dead, hangs or is cut off from the storage";

pub(crate) fn main(args: &HistoryArgs) -> ExitCode {
    if args.periods {
        return once::history(&args.target, args.json);
    }
    operate(args.target.pair(), Purpose::Read, async |inspector| {
        let (storage, name) = (&inspector.storage, &inspector.name);
        if let Some(path) = &args.svg {
            result_file::check(path, &vvm_storage::url::files(args.target.pair().0))
                .map_err(|refusal| InspectionError::new(exit::MISUSE, format!("--svg: {refusal}")))?;
        }
        if storage.documents().is_none() {
            let why = "this storage keeps no documents, and so no history";
            return Err(InspectionError::new(exit::NOT_ACQUIRED, why));
        }
        let mut keys = inspector.slots().await?;
        if let Some(wanted) = args.slot {
            keys = vec![slot_of(keys, wanted, name)?];
        }
        let mut lines = Vec::new();
        for key in &keys {
            let leaderships = read(storage, key).await?;
            // Read after the log: a leadership that the log does not end yet may have ended.
            let slot = dated_slot(storage, key).await?;
            if leaderships.is_empty() && slot.last_epoch().is_some() {
                say!(
                    "{name} slot {} was led, but has no history: programs that lead without vvm or a \
                     vvm_host::Host write none",
                    key.slot
                );
            }
            for mut leadership in leaderships {
                if leadership.end.is_none() {
                    leadership.end = unrecorded_end(leadership.epoch, &slot);
                }
                lines.push(LeadershipRow { slot: key.slot.get().get(), leadership });
            }
        }
        let columns = [
            ("SLOT", -4),
            ("START", 20),
            ("END", 20),
            ("FOR", -8),
            ("EPOCH", -14),
            ("HOLDER", 24),
            ("HOW IT ENDED", 0),
        ];
        let now = SystemWallClock.since_unix_epoch();
        if let Some(path) = &args.svg {
            result_file::write(path, timeline(name, &lines, now).to_svg().as_bytes())
                .map_err(|refusal| InspectionError::new(exit::SYSTEM, refusal))?;
        }
        print_rows(args.json, columns, &lines, |LeadershipRow { slot, leadership }| {
            let PastLeadership { holder, epoch, started_ms, ended_ms, end } = leadership;
            let moment = |millis| Moment(Duration::from_millis(millis)).to_string();
            let lasted = lasted(leadership, now).map(|lasted| HumanDuration(lasted).to_string());
            let (slot, started) = (Some(slot.to_string()), Some(moment(*started_ms)));
            let (epoch, holder) = (Some(epoch.to_string()), Some(holder.clone()));
            (Style::Plain, [slot, started, ended_ms.map(moment), lasted, epoch, holder, end.clone()])
        })?;
        Ok(0)
    })
}

/// Returns what the slot shows about a leadership without an end in the log; none if it lasts.
pub(crate) fn unrecorded_end(epoch: u64, slot: &Slot) -> Option<String> {
    match slot.last_epoch().map(|last| last.get()) {
        Some(last) if last > epoch => Some(format!("no end was recorded; followed by epoch {last}")),
        _ if slot.entry().is_none() => Some("released; no end was recorded".into()),
        _ => {
            (Observation::default().add(slot, Instant::ORIGIN) == Liveness::Stale).then(|| NOT_RENEWED.into())
        }
    }
}

/// Returns how long a leadership lasted, or has by now. `None` if that is unknown: its end is, or a wall clock
/// was stepped backwards.
fn lasted(leadership: &PastLeadership, now: Duration) -> Option<Duration> {
    let PastLeadership { started_ms, ended_ms, end, .. } = leadership;
    let until = ended_ms.map(Duration::from_millis).or(end.is_none().then_some(now))?;
    until.checked_sub(Duration::from_millis(*started_ms))
}

/// `lines` are in the order of their slots and epochs.
pub(crate) fn timeline(name: &str, lines: &[LeadershipRow], now: Duration) -> Timeline {
    let (mut bars, mut marks) = (Vec::new(), Vec::new());
    let mut before: Option<&LeadershipRow> = None;
    for (place, line) in lines.iter().enumerate() {
        let PastLeadership { holder, epoch, started_ms, ended_ms, end } = &line.leadership;
        let from = Duration::from_millis(*started_ms);
        let next = lines.get(place + 1).filter(|next| next.slot == line.slot);
        // An unknown end is not later than the next start. Without a next one, the picture has the start alone.
        let latest = match (end, next) {
            (None, _) => now,
            (Some(_), Some(next)) => Duration::from_millis(next.leadership.started_ms),
            (Some(_), None) => from,
        };
        let until = ended_ms.map_or(latest, Duration::from_millis).max(from);
        let (slot, holder) = (line.slot, holder.clone());
        let mark = |kind, at, text| Mark { slot, holder: holder.clone(), kind, at, text };
        if before.is_some_and(|before| before.slot == slot && before.leadership.holder != holder) {
            marks.push(mark(MarkKind::HandOver, from, "leads".into()));
        }
        if let Some(end) = end {
            let (kind, text) = end_kind(end);
            marks.push(mark(kind, until, text));
        }
        bars.push(Bar { slot, holder, kind: BarKind::Leads(*epoch), span: from..until });
        before = Some(line);
    }
    let first = bars.iter().map(|bar| bar.span.start).min().unwrap_or(now);
    let last = bars.iter().map(|bar| bar.span.end).max().unwrap_or(now);
    Timeline {
        title: name.to_owned(),
        note: format!("UTC by the leaders' own wall clocks, from {} to {}", Moment(first), Moment(last)),
        axis: Axis::Utc,
        // So that marks at both ends have room.
        span: first.saturating_sub((last - first) / 50)..last + (last - first) / 50,
        bars,
        marks,
    }
}

fn end_kind(end: &str) -> (MarkKind, String) {
    let has = |words: &[&str]| words.iter().any(|word| end.contains(word));
    let kind = if has(&["not recorded", "no end was recorded", "not renewed", "leadership lost"]) {
        MarkKind::Loss
    } else if has(&["killed", "died"]) {
        MarkKind::Kill
    } else {
        MarkKind::Stop
    };
    (kind, end.split([';', ':']).next().unwrap_or_default().chars().take(40).collect())
}

/// Show past leaderships: the last 64 of each slot, with their leaders, times and ends.
///
/// Leaders of vvm run, vvm elect and programs with a vvm_host::Host write it beside their record. Programs
/// that lead without a Host write nothing. Times are those of the leaders' wall clocks. For one that lasts,
/// FOR is counted by the wall clock of this machine: - if that is behind START.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  vvm history --storage sqlite:/var/lib/payroll/leader.db --name payroll

Exit status: 0; 64 wrong arguments; 66 no such storage or name; 69 the storage
refused; 71 the system refused; 75 this storage keeps no history")]
pub(crate) struct HistoryArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Only this slot
    #[arg(long, value_name = "N", value_parser = parse_slots)]
    pub(crate) slot: Option<NonZeroU32>,
    /// The periods of vvm once instead: which are done, when, by which leader, after how many attempts
    #[arg(long, conflicts_with = "slot")]
    pub(crate) periods: bool,
    /// As JSON: one array with an object for each leadership or period
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw it to this file, too: a row for each leader, with its epochs and how each leadership ended
    #[arg(long, value_name = "FILE", value_parser = parse_file, conflicts_with = "periods")]
    pub(crate) svg: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::liveness::tests::record;
    use async_trait::async_trait;
    use ielections::{Epoch, ReadError, Vacant};
    use std::sync::Arc;
    use testing_time::MockClock;
    use vvm_storage::{
        ClusterName, ElectionKey, ElectionsTtlStorage, Partition, SlotNumber, SysVvmStorage,
        mem::MemDatabase, testing::Layer,
    };

    #[derive(Debug)]
    struct ServerClock(Arc<dyn SysVvmStorage>);

    #[async_trait]
    impl Layer for ServerClock {
        fn beneath(&self) -> &dyn SysVvmStorage {
            &*self.0
        }

        async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
            let mut slot = self.0.read(at).await?;
            if let Slot::Held { proven_age, .. } = &mut slot {
                *proven_age = None;
            }
            Ok(slot)
        }

        async fn shown_ages(&self, at: &[Partition]) -> Result<Vec<Option<Duration>>, ReadError> {
            Ok(vec![Some(Duration::from_secs(20)); at.len()])
        }
    }

    #[tokio::test]
    async fn record_that_is_stale_by_the_clock_of_the_server_ends_its_leadership() {
        let beneath = MemDatabase::new(Arc::new(MockClock::new())).open();
        let storage = ElectionsTtlStorage::new(Arc::new(ServerClock(beneath)).into_storage());
        let key = ElectionKey { cluster: ClusterName::from("a"), slot: SlotNumber::FIRST };
        storage.insert_if_not_exist(&key, Default::default(), &record("a", 7, 1)).await.unwrap();
        let slot = dated_slot(&storage, &key).await.unwrap();
        assert_eq!(unrecorded_end(7, &slot).as_deref(), Some(NOT_RENEWED));
    }

    #[test]
    fn leadership_without_recorded_end_is_ended_by_what_its_slot_shows() {
        let free = Slot::Vacant(Vacant { last_epoch: Epoch::new(7).ok() });
        let held = |age| Slot::Held { entry: record("a", 7, 1), proven_age: Some(Duration::from_secs(age)) };
        let end = |epoch, slot| unrecorded_end(epoch, &slot);
        for slot in [free.clone(), held(1)] {
            assert_eq!(end(6, slot).unwrap(), "no end was recorded; followed by epoch 7");
        }
        assert_eq!(end(7, free).unwrap(), "released; no end was recorded");
        assert_eq!(end(7, held(1)), None);
        assert_eq!(
            end(7, held(20)).unwrap(),
            "not renewed for its TTL: its leader is dead, hangs or is cut off from the storage"
        );
    }

    #[test]
    fn picture_has_each_leadership_to_its_end_or_to_the_next_start() {
        let line = |slot, holder: &str, epoch, started_ms, ended_ms, end: Option<&str>| {
            let (holder, end) = (holder.to_owned(), end.map(Into::into));
            LeadershipRow { slot, leadership: PastLeadership { holder, epoch, started_ms, ended_ms, end } }
        };
        let lines = [
            line(1, "a", 1, 1_000, Some(5_000), Some("the host was killed at its deadline; released")),
            line(1, "b", 2, 6_000, None, Some("no end was recorded; followed by epoch 3")),
            line(1, "b", 3, 9_000, None, None),
            line(2, "a", 1, 2_000, None, Some("released; no end was recorded")),
            line(2, "a", 2, 3_000, Some(4_000), Some("stop requested")),
        ];
        let shown = timeline("payroll", &lines, Duration::from_secs(11));
        let millis = |at: Duration| at.as_millis();
        let bars = shown
            .bars
            .iter()
            .map(|bar| (bar.slot, &*bar.holder, millis(bar.span.start), millis(bar.span.end)));
        assert_eq!(
            bars.collect::<Vec<_>>(),
            [
                (1, "a", 1_000, 5_000),
                (1, "b", 6_000, 9_000),
                (1, "b", 9_000, 11_000),
                (2, "a", 2_000, 3_000),
                (2, "a", 3_000, 4_000)
            ]
        );
        let marks =
            shown.marks.iter().map(|mark| (mark.kind, millis(mark.at), &*mark.text)).collect::<Vec<_>>();
        let expected = [
            (MarkKind::Kill, 5_000, "the host was killed at its deadline"),
            (MarkKind::HandOver, 6_000, "leads"),
            (MarkKind::Loss, 9_000, "no end was recorded"),
            (MarkKind::Loss, 3_000, "released"),
            (MarkKind::Stop, 4_000, "stop requested"),
        ];
        assert_eq!(marks, expected);
    }

    #[test]
    fn leadership_lasts_by_the_clock_unless_that_is_behind_its_start() {
        let shown = |ended_ms, end: Option<&str>| {
            let leadership = PastLeadership {
                holder: "a".into(),
                epoch: 7,
                started_ms: 5_000,
                ended_ms,
                end: end.map(Into::into),
            };
            move |now| lasted(&leadership, Duration::from_secs(now))
        };
        assert_eq!(shown(None, None)(8), Some(Duration::from_secs(3)));
        assert_eq!(shown(None, None)(4), None);
        assert_eq!(shown(Some(6_000), Some("stopped"))(4), Some(Duration::from_secs(1)));
        assert_eq!(shown(None, Some("no end was recorded"))(8), None);
    }
}
