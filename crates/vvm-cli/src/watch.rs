//! `vvm watch`: a line for each change. Reads as a standby does, at a modest interval. [`look`] reads, [`Slots`]
//! remembers what was seen, and a [`WatchEvent`] is a difference.

use crate::{
    args::{InvalidValue, TargetArgs, parse_duration},
    inspection::operate,
    liveness::{Liveness, Observation},
    runtime::stop_of_process_1,
    shown::{HumanDuration, Moment, Palette, Style, millis},
};
use clap::Args;
use ielections::{Entry, Epoch, ReadError, Slot};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    error::Error,
    io::{self, Write as _},
    mem,
    net::SocketAddr,
    num::NonZeroU32,
    process::ExitCode,
    time::Duration,
};
use vvm_clock::{Instant, SystemWallClock, WallClock as _};
use vvm_host::operate::{InspectError, Purpose, StorageInspector, named_successor};

pub(crate) fn main(args: &WatchArgs) -> ExitCode {
    operate(args.target.pair(), Purpose::Read, async |inspector| {
        tokio::select! {
            biased;
            status = stop_of_process_1() => Ok(status?),
            watched = watch(args, inspector) => Ok(watched.map(|()| 0)?),
        }
    })
}

async fn watch(args: &WatchArgs, inspector: &StorageInspector) -> Result<(), InspectError> {
    let (mut slots, mut settled, clock) = (Slots::default(), None, &inspector.clock);
    let palette = Palette::of_standard_output();
    let mut due = clock.now();
    // Without a change there is no write that would fail.
    while !is_reader_gone() {
        clock.sleep_until(due).await;
        let found = look(inspector, &mut settled).await;
        let (now, at) = (clock.now(), SystemWallClock.since_unix_epoch());
        due = now.after(args.interval);
        let mut out = io::stdout().lock();
        for change in slots.changes(found, now)? {
            let style = if change.is_alarming { Style::Bad } else { Style::Plain };
            let line = if args.json { change.json(at) } else { palette.paint(&change.line(at), style) };
            let written = writeln!(out, "{line}").and_then(|()| out.flush());
            written.map_err(InspectError::Output)?;
        }
    }
    Ok(())
}

fn is_reader_gone() -> bool {
    let stdout = rustix::stdio::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&at_once)).is_ok_and(|ready| ready > 0)
}

/// Watch the leaders: one line for each change.
///
/// It only reads, and sees what a standby sees: records and their renewals. A crash shows as renewals that stop
/// for a TTL. The time that a leader has left is known to the leader alone (--http, /metrics).
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  vvm watch --storage sqlite:/var/lib/payroll/leader.db --name payroll

On a terminal, what an operator should look into is red. NO_COLOR is respected. Ctrl-C ends it.
For a table of all slots: watch -n 1 vvm status --name payroll

Exit status: 0 if the reader of its output has gone; 64 wrong arguments; 66 no such storage; 69 the storage refused;
71 the system refused")]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// How often to read the storage
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_poll)]
    pub(crate) interval: Duration,
    /// Print one JSON object a line for each change
    #[arg(long)]
    pub(crate) json: bool,
}

fn parse_poll(text: &str) -> Result<Duration, Box<dyn Error + Send + Sync>> {
    let interval = parse_duration(text)?;
    if interval < Duration::from_millis(100) {
        return Err(
            InvalidValue("write 100ms or more: each read costs the storage as much as a standby's").into()
        );
    }
    Ok(interval)
}

struct SlotList {
    slots: Vec<Slot>,
    /// Whether a candidate has settled how many there are.
    is_settled: bool,
    paused: Option<(String, Duration)>,
    /// Of the leader of the only slot.
    successor: Option<SocketAddr>,
}

async fn look(inspector: &StorageInspector, settled: &mut Option<NonZeroU32>) -> Result<SlotList, ReadError> {
    let StorageInspector { storage, cluster, .. } = inspector;
    if settled.is_none() {
        *settled = storage.slot_count(cluster).await?;
    }
    let keys = inspector.keys_of(*settled);
    let (slots, requests) = storage.scan_with_requests(cluster, &keys).await?;
    let successor = match (&keys[..], &slots[..]) {
        ([key], [Slot::Held { entry, .. }]) => named_successor(storage, key, entry).await?,
        _ => None,
    };
    let paused = requests.pause.map(|pause| (pause.by().to_owned(), pause.since_unix_epoch()));
    Ok(SlotList { slots, is_settled: settled.is_some(), paused, successor })
}

#[derive(Debug)]
struct WatchEvent {
    slot: Option<u32>,
    is_alarming: bool,
    /// For people. Texts from the storage are escaped: they may contain control sequences of terminals.
    says: String,
    members: Value,
}

impl WatchEvent {
    fn new(says: impl Into<String>, members: Value) -> Self {
        Self { slot: None, is_alarming: false, says: says.into(), members }
    }

    fn alarming(says: impl Into<String>, members: Value) -> Self {
        Self { is_alarming: true, ..Self::new(says, members) }
    }

    fn of_record(event: &str, verb: &str, entry: &Entry) -> Self {
        let (holder, epoch, ttl) = (entry.holder.as_str(), entry.epoch, entry.ttl);
        let ttl_ms = millis(ttl.get());
        Self::new(
            format!("{verb} {}, epoch {epoch}, TTL {ttl}", holder.escape_debug()),
            json!({"event": event, "holder": holder, "epoch": epoch.get(), "ttl_ms": ttl_ms}),
        )
    }

    /// Returns a line for people. It was seen at `at`, in Unix time.
    fn line(&self, at: Duration) -> String {
        let slot = self.slot.map(|slot| format!("slot {slot}: ")).unwrap_or_default();
        format!("{}  {slot}{}", Moment(at), self.says)
    }

    fn json(mut self, at: Duration) -> String {
        self.members["at"] = Moment(at).to_string().into();
        self.members["unix_ms"] = millis(at).into();
        self.members["slot"] = self.slot.into();
        self.members["says"] = self.says.into();
        self.members.to_string()
    }
}

/// After so many looks in a row at an older state, the storage went back. Fewer may be a replica that lags.
const BEHIND: u32 = 3;

#[derive(Debug, Default)]
struct Slots {
    seen: BTreeMap<u32, SlotProgress>,
    answered: bool,
    fails: bool,
    paused: Option<(String, Duration)>,
    successor: Option<SocketAddr>,
}

#[derive(Debug)]
struct SlotProgress {
    slot: Slot,
    observation: Observation,
    overdue: bool,
    behind: u32,
}

impl Slots {
    /// Adds a look that was answered at `now`, and returns the changes that it shows. A failed look is a change. Fails if
    /// the storage refuses for good before any look succeeded, or was replaced: this handle may never see the new one.
    fn changes(
        &mut self,
        found: Result<SlotList, ReadError>,
        now: Instant,
    ) -> Result<Vec<WatchEvent>, InspectError> {
        let found = match found {
            Ok(found) => found,
            Err(cause @ ReadError::Replaced(_)) => return Err(InspectError::Read(cause)),
            Err(cause @ ReadError::Fatal(_)) if !self.answered => return Err(InspectError::Read(cause)),
            Err(cause) => {
                let says = format!("can't be read: {cause}; trying again");
                let change =
                    WatchEvent::alarming(says, json!({"event": "trouble", "cause": cause.to_string()}));
                return Ok(if mem::replace(&mut self.fails, true) { vec![] } else { vec![change] });
            }
        };
        let mut changes = Vec::new();
        let is_first = !mem::replace(&mut self.answered, true);
        if mem::take(&mut self.fails) {
            changes.push(WatchEvent::new("can be read again", json!({"event": "works_again"})));
        }
        let paused_before = mem::replace(&mut self.paused, found.paused);
        if self.paused != paused_before {
            changes.push(match &self.paused {
                Some((by, _)) => WatchEvent::new(
                    format!("paused by {}: no new leader begins", by.escape_debug()),
                    json!({"event": "paused", "by": by}),
                ),
                None => WatchEvent::new("resumed: candidates may lead again", json!({"event": "resumed"})),
            });
        }
        let was_led = found.slots.iter().any(|slot| slot.last_epoch().is_some());
        if is_first && !found.is_settled && !was_led {
            let says = "no candidate has ever used this name: check --name";
            changes.push(WatchEvent::new(says, json!({"event": "unknown"})));
        }
        for (number, slot) in (1..).zip(found.slots) {
            let change = match self.seen.get_mut(&number) {
                Some(seen) => seen.change(slot, now),
                None => {
                    let first = first_seen(&slot);
                    self.seen.insert(number, SlotProgress::new(slot, now));
                    Some(first)
                }
            };
            changes.extend(change.map(|change| WatchEvent { slot: Some(number), ..change }));
        }
        let before = mem::replace(&mut self.successor, found.successor);
        let change = match (before, found.successor) {
            (before, Some(named)) if before != Some(named) => {
                let (address, says) = (named.to_string(), format!("successor named: {named}"));
                Some(WatchEvent::new(says, json!({"event": "successor_named", "address": address})))
            }
            (Some(before), None) => {
                let (address, says) = (before.to_string(), format!("no successor any more, after {before}"));
                Some(WatchEvent::new(says, json!({"event": "successor_withdrawn", "address": address})))
            }
            _ => None,
        };
        changes.extend(change.map(|change| WatchEvent { slot: Some(1), ..change }));
        Ok(changes)
    }
}

fn first_seen(slot: &Slot) -> WatchEvent {
    let Some(entry) = slot.entry() else {
        let last = slot.last_epoch();
        let says = last.map_or("free, and never led".into(), |last| format!("free, last epoch {last}"));
        return WatchEvent::new(says, json!({"event": "free", "epoch": last.map(Epoch::get)}));
    };
    WatchEvent::of_record("held", "held by", entry)
}

impl SlotProgress {
    fn new(slot: Slot, now: Instant) -> Self {
        let mut observation = Observation::default();
        observation.add(&slot, now);
        Self { slot, observation, overdue: false, behind: 0 }
    }

    fn change(&mut self, slot: Slot, now: Instant) -> Option<WatchEvent> {
        if is_older(&slot, &self.slot) {
            self.behind += 1;
            return (self.behind >= BEHIND).then(|| self.went_back(slot, now));
        }
        self.behind = 0;
        let liveness = self.observation.add(&slot, now);
        let was_overdue = mem::replace(&mut self.overdue, liveness == Liveness::Stale);
        let before = mem::replace(&mut self.slot, slot);
        let holder_before = before.entry().map(|entry| entry.holder.as_str());
        match (before.entry(), self.slot.entry()) {
            (Some(then), Some(entry)) if then.is_of(entry.incarnation(), entry.epoch) => {
                let holder = entry.holder.as_str();
                let (shown, age) = (holder.escape_debug(), self.observation.age());
                match (was_overdue, self.overdue) {
                    (true, false) => {
                        let members = json!({"event": "renews_again", "holder": holder});
                        Some(WatchEvent::new(format!("{shown} renews again"), members))
                    }
                    (false, true) => Some(WatchEvent::alarming(
                        format!(
                            "no renewal of {shown} seen for {}: candidates may take over",
                            HumanDuration(age)
                        ),
                        json!({"event": "overdue", "holder": holder, "silent_ms": millis(age)}),
                    )),
                    _ => None,
                }
            }
            (_, Some(entry)) => {
                let mut change = WatchEvent::of_record("leads", "leads:", entry);
                change.members["after"] = holder_before.into();
                if let Some(before) = holder_before {
                    change.says += &format!(", after {}", before.escape_debug());
                }
                Some(change)
            }
            (None, None) if before.last_epoch() == self.slot.last_epoch() => None,
            (_, None) => self.slot.last_epoch().map(|epoch| {
                let says = format!("released, free, last epoch {epoch}");
                WatchEvent::new(says, json!({"event": "released", "epoch": epoch.get()}))
            }),
        }
    }

    fn went_back(&mut self, slot: Slot, now: Instant) -> WatchEvent {
        let [from, to] = [&self.slot, &slot].map(|slot| slot.last_epoch().map(Epoch::get));
        *self = Self::new(slot, now);
        let text = |epoch: Option<u64>| epoch.map_or("none".into(), |epoch| epoch.to_string());
        let (later, earlier) = (text(from), text(to));
        WatchEvent::alarming(
            format!("the storage shows an older epoch, {earlier} after {later}: restored from a backup?"),
            json!({"event": "went_back", "from_epoch": from, "epoch": to}),
        )
    }
}

fn is_older(slot: &Slot, known: &Slot) -> bool {
    match (slot.entry(), known.entry()) {
        (Some(entry), Some(known)) => entry.age_order() < known.age_order(),
        // A release keeps the epoch of the leadership that it ends.
        (Some(entry), None) => Some(entry.epoch) <= known.last_epoch(),
        (None, _) => slot.last_epoch() < known.last_epoch(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::liveness;
    use ielections::Vacant;

    fn record(holder: &str, epoch: u64, write: u64) -> Slot {
        Slot::Held { entry: liveness::tests::record(holder, epoch, write), proven_age: None }
    }

    fn free(last_epoch: u64) -> Slot {
        Slot::Vacant(Vacant { last_epoch: Epoch::new(last_epoch).ok() })
    }

    fn found(slot: Slot) -> SlotList {
        SlotList { slots: vec![slot], is_settled: true, paused: None, successor: None }
    }

    fn seen(slots: &mut Slots, second: u64, found: Result<SlotList, ReadError>) -> Vec<WatchEvent> {
        slots.changes(found, Instant::ORIGIN.after(Duration::from_secs(100 + second))).unwrap()
    }

    fn shown(looks: impl IntoIterator<Item = (u64, Result<Slot, ReadError>)>) -> Vec<String> {
        let mut slots = Slots::default();
        let changes = looks.into_iter().flat_map(|(at, slot)| seen(&mut slots, at, slot.map(found)));
        changes.map(|change| change.line(Duration::ZERO).split_once("  ").unwrap().1.to_owned()).collect()
    }

    fn unavailable() -> Result<Slot, ReadError> {
        Err(ReadError::Unavailable("no route".into()))
    }

    #[test]
    fn claims_releases_and_takeovers_are_shown() {
        let shown = shown([
            (0, Ok(free(0))),
            (1, Ok(record("a", 3, 1))),
            (2, Ok(record("a", 3, 2))),
            (6, Ok(record("a", 3, 3))),
            (7, Ok(free(3))),
            (8, Ok(record("b", 4, 1))),
            (9, Ok(record("c", 5, 1))),
        ]);
        let expected = [
            "slot 1: free, and never led",
            "slot 1: leads: a, epoch 3, TTL 20s",
            "slot 1: released, free, last epoch 3",
            "slot 1: leads: b, epoch 4, TTL 20s",
            "slot 1: leads: c, epoch 5, TTL 20s, after b",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn end_of_renewals_and_their_return_are_shown_once() {
        let shown = shown([
            (0, Ok(record("a", 3, 1))),
            (19, Ok(record("a", 3, 1))),
            (20, Ok(record("a", 3, 1))),
            (40, Ok(record("a", 3, 1))),
            (41, Ok(record("a", 3, 2))),
            (42, Ok(record("a", 3, 3))),
        ]);
        let expected = [
            "slot 1: held by a, epoch 3, TTL 20s",
            "slot 1: no renewal of a seen for 20.0s: candidates may take over",
            "slot 1: a renews again",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn record_is_overdue_by_the_age_that_the_storage_proves() {
        let Slot::Held { entry, .. } = record("a", 3, 1) else { unreachable!() };
        let aged = |age| Ok(Slot::Held { entry: entry.clone(), proven_age: Some(Duration::from_secs(age)) });
        let shown = shown([(0, aged(4)), (15, aged(19)), (16, aged(20))]);
        assert_eq!(shown[1..], ["slot 1: no renewal of a seen for 20.0s: candidates may take over"]);
    }

    #[test]
    fn older_state_is_shown_only_after_three_looks() {
        let shown = shown([
            (0, Ok(record("b", 4, 7))),
            (1, Ok(free(3))),
            (2, Ok(record("b", 4, 6))),
            (3, Ok(record("b", 4, 8))),
            (4, Ok(record("a", 3, 9))),
            (5, Ok(record("a", 3, 9))),
            (6, Ok(record("a", 3, 9))),
            (7, Ok(record("a", 3, 9))),
        ]);
        let expected = [
            "slot 1: held by b, epoch 4, TTL 20s",
            "slot 1: the storage shows an older epoch, 3 after 4: restored from a backup?",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn failure_is_shown_once_and_a_refusal_of_the_first_look_or_a_replacement_is_an_error() {
        let looks = [(0, Ok(free(3))), (1, unavailable()), (2, unavailable()), (3, Ok(free(3)))];
        let expected = [
            "slot 1: free, last epoch 3",
            "can't be read: the read failed: no route; trying again",
            "can be read again",
        ];
        assert_eq!(shown(looks), expected);
        let refused = || ReadError::Fatal("no such table".into());
        let looked = Slots::default().changes(Err(refused()), Instant::ORIGIN);
        assert!(matches!(looked, Err(InspectError::Read(ReadError::Fatal(_)))));
        let mut slots = Slots::default();
        seen(&mut slots, 0, Ok(found(free(3))));
        assert_eq!(seen(&mut slots, 1, Err(refused())).len(), 1);
        let looked = slots.changes(Err(ReadError::Replaced("another file".into())), Instant::ORIGIN);
        assert!(matches!(looked, Err(InspectError::Read(ReadError::Replaced(_)))), "{looked:?}");
    }

    #[test]
    fn pause_and_its_end_are_shown() {
        let mut slots = Slots::default();
        let looks = (0..).zip([None, Some("a: \x1b"), Some("a: \x1b"), None]);
        let shown = looks.flat_map(|(second, by)| {
            let paused = by.map(|by| (by.to_owned(), Duration::from_secs(7)));
            seen(&mut slots, second, Ok(SlotList { paused, ..found(free(3)) }))
        });
        let expected = [
            "free, last epoch 3",
            "paused by a: \\u{1b}: no new leader begins",
            "resumed: candidates may lead again",
        ];
        assert_eq!(shown.map(|change| change.says).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn name_without_candidates_is_shown_once() {
        let mut slots = Slots::default();
        let unknown = || Ok(SlotList { is_settled: false, ..found(free(0)) });
        let shown = (0..2).flat_map(|second| seen(&mut slots, second, unknown()));
        let expected = ["no candidate has ever used this name: check --name", "free, and never led"];
        assert_eq!(shown.map(|change| change.says).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn change_is_one_json_object_on_one_line() {
        let mut slots = Slots::default();
        seen(&mut slots, 0, Ok(found(free(3))));
        let leads = seen(&mut slots, 61, Ok(found(record("a\n\"", 4, 1)))).remove(0);
        let line = leads.json(Duration::from_secs(61));
        assert!(!line.contains('\n'), "{line}");
        let shown: Value = serde_json::from_str(&line).unwrap();
        let expected = json!({
            "event": "leads", "slot": 1, "holder": "a\n\"", "epoch": 4, "ttl_ms": 20_000, "after": null,
            "at": "1970-01-01T00:01:01Z", "unix_ms": 61_000,
            "says": "leads: a\\n\\\", epoch 4, TTL 20s",
        });
        assert_eq!(shown, expected);
    }

    #[test]
    fn successor_is_shown_when_it_is_named_replaced_or_withdrawn() {
        let mut slots = Slots::default();
        let named = |port: u16| Some(SocketAddr::from(([10, 0, 0, 8], port)));
        let looks = [None, named(7400), named(7400), named(7401), None, None];
        let changes = (1..).zip(looks).flat_map(|(second, successor)| {
            seen(&mut slots, second, Ok(SlotList { successor, ..found(record("a", 3, second)) }))
        });
        let says = changes.map(|change| change.says).collect::<Vec<_>>();
        let expected = [
            "successor named: 10.0.0.8:7400",
            "successor named: 10.0.0.8:7401",
            "no successor any more, after 10.0.0.8:7401",
        ];
        assert_eq!(says[1..], expected, "{says:?}");
    }
}
