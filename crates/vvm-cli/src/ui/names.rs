//! [`Names`]: what is known of all names of a storage, what to read next, and how browsers get it. A value without I/O.

use crate::{
    history::{LeadershipRow, NOT_RENEWED, timeline, unrecorded_end},
    liveness::{Liveness, Observation},
    shown::millis,
};
use ielections::Slot;
use serde_json::{Value, json};
use std::{collections::BTreeSet, num::NonZeroU32, time::Duration};
use vvm_clock::Instant;
use vvm_host::operate::{PastLeadership, Timeline};
use vvm_storage::{ClusterName, ElectionKey, ListedName, OperatorRequests, SlotNumber, Stage};

/// The storage is read so long after a browser asked. The page asks once a second.
const LOOKS: Duration = Duration::from_secs(5);

const LIST_PAUSE: Duration = Duration::from_secs(30);

/// How often the history of a slot is read whose state does not change: its end may be recorded late.
const HISTORY_PAUSE: Duration = Duration::from_secs(60);

/// A history is read so long after a browser asked for its picture, which a page does every few seconds.
const PICTURE_LOOKS: Duration = Duration::from_secs(15);

const SHOWN_SLOTS: u32 = 64;

/// How many holders of a name have a row in its picture. A pod has another name with each start.
const SHOWN_HOLDERS: usize = 8;

const DAY: Duration = Duration::from_hours(24);

/// A picture has so long at least, so that its ticks are seconds apart.
const SHORTEST: Duration = Duration::from_mins(1);

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Step {
    List,
    Count(ClusterName),
    /// Slots, pauses and step-downs of as many names as a scan of this storage takes.
    Scan(Vec<(ClusterName, Vec<ElectionKey>)>),
    Ages(Vec<ElectionKey>),
    History(ElectionKey),
}

pub(super) enum Answer {
    Listed(Option<(Vec<ListedName>, bool)>),
    Counted(Option<NonZeroU32>),
    Scanned(Vec<(Vec<Slot>, OperatorRequests)>),
    Aged(Vec<Option<Duration>>),
    Read(Result<Vec<PastLeadership>, String>),
}

impl Step {
    /// A history is a document and a late end.
    pub(super) fn requests(&self) -> u32 {
        if matches!(self, Self::History(_)) { 2 } else { 1 }
    }
}

pub(super) struct Names {
    location: String,
    names: Vec<NameState>,
    is_fixed: bool,
    has_more: bool,
    listed_at: Option<Instant>,
    /// How many records a scan takes.
    batch: usize,
    /// The first name of the next scan.
    next: usize,
    scanned_last: bool,
    ids: u64,
    /// Rises with each change that browsers get. Begins with the time, so that it rises over a restart, too.
    number: u64,
    /// The number of the last change of the list of names.
    listed_number: u64,
    began: Instant,
    asked_at: Option<Instant>,
    answered_at: Instant,
    trouble: Option<String>,
}

struct NameState {
    id: u64,
    cluster: ClusterName,
    slot_count: Option<NonZeroU32>,
    counted_at: Option<Instant>,
    read_at: Option<Instant>,
    slots: Vec<SlotState>,
    requests: OperatorRequests,
    pictured_at: Option<Instant>,
    histories: u64,
    changed: u64,
    json: String,
}

struct SlotState {
    key: ElectionKey,
    slot: Slot,
    observation: Observation,
    state: Liveness,
    looked_at: Instant,
    age_asked: bool,
    history: Option<SlotHistory>,
}

struct SlotHistory {
    past: Vec<PastLeadership>,
    missing: Option<String>,
    read_at: Instant,
    /// The state when it was read.
    of: (Option<u64>, Liveness),
}

impl Names {
    /// The names in `only`, or those that the storage lists if there are none. `since_1970`: the time.
    pub(super) fn new(location: String, only: &[String], now: Instant, since_1970: Duration) -> Self {
        let number = u64::try_from(since_1970.as_millis()).unwrap_or_default();
        let mut names = Self {
            location,
            names: Vec::new(),
            is_fixed: !only.is_empty(),
            has_more: false,
            listed_at: None,
            batch: 1,
            next: 0,
            scanned_last: false,
            ids: 0,
            number,
            listed_number: number,
            began: now,
            asked_at: None,
            answered_at: now,
            trouble: None,
        };
        let only = only.iter().map(|name| ClusterName::from(name.as_str())).collect::<BTreeSet<_>>();
        names.list(only.into_iter().map(|cluster| (cluster, None)).collect());
        names
    }

    pub(super) fn opened(&mut self, location: Option<String>, batch: usize) {
        self.location = location.unwrap_or_else(|| self.location.clone());
        self.batch = batch;
    }

    pub(super) fn asked(&mut self, now: Instant) {
        self.asked_at = Some(now);
    }

    pub(super) fn is_asked(&self, now: Instant) -> bool {
        self.asked_at.is_some_and(|at| at.until(now) < LOOKS)
    }

    pub(super) fn failed(&mut self, reason: String) {
        self.trouble = Some(reason);
    }

    /// Scans take every second turn if there is anything else to read.
    pub(super) fn next_step(&mut self, now: Instant) -> Step {
        let is_listed = self.is_fixed || self.listed_at.is_some_and(|at| at.until(now) < LIST_PAUSE);
        if !is_listed || self.names.is_empty() {
            return Step::List;
        }
        let other = if self.scanned_last { self.other_step(now) } else { None };
        self.scanned_last = other.is_none();
        other.unwrap_or_else(|| self.scan())
    }

    fn scan(&mut self) -> Step {
        let (mut clusters, mut records) = (Vec::new(), 0);
        for _ in 0..self.names.len() {
            let Some(name) = self.names.get(self.next) else { break };
            let keys = name.keys();
            // With its pause and its step-down.
            records += keys.len() + 2;
            if records > self.batch && !clusters.is_empty() {
                break;
            }
            clusters.push((name.cluster.clone(), keys));
            self.next = (self.next + 1) % self.names.len();
        }
        Step::Scan(clusters)
    }

    fn other_step(&mut self, now: Instant) -> Option<Step> {
        let slots = self.names.iter_mut().flat_map(|name| &mut name.slots);
        let undated = slots.filter(|slot| slot.state == Liveness::Held && !slot.age_asked).take(self.batch);
        let undated = undated.map(|slot| {
            slot.age_asked = true;
            slot.key.clone()
        });
        let undated = undated.collect::<Vec<_>>();
        if !undated.is_empty() {
            return Some(Step::Ages(undated));
        }
        let uncounted = self.names.iter_mut().find(|name| {
            name.slot_count.is_none() && name.counted_at.is_none_or(|at| at.until(now) >= LIST_PAUSE)
        });
        if let Some(name) = uncounted {
            // A damaged count is no obstacle to the others.
            name.counted_at = Some(now);
            return Some(Step::Count(name.cluster.clone()));
        }
        let is_pictured =
            |name: &&NameState| name.pictured_at.is_some_and(|at| at.until(now) < PICTURE_LOOKS);
        let slots = self.names.iter().filter(is_pictured).flat_map(|name| &name.slots);
        let unread = slots.filter(|slot| slot.is_history_due(now));
        let oldest = unread.min_by_key(|slot| slot.history.as_ref().map(|history| history.read_at));
        oldest.map(|slot| Step::History(slot.key.clone()))
    }

    pub(super) fn add(&mut self, step: Step, answer: Answer, now: Instant) {
        if !matches!(answer, Answer::Read(Err(_))) {
            (self.answered_at, self.trouble) = (now, None);
        }
        match (step, answer) {
            (Step::List, Answer::Listed(Some((listed, has_more)))) => {
                (self.listed_at, self.has_more) = (Some(now), has_more);
                self.list(listed);
            }
            (Step::Count(cluster), Answer::Counted(count)) => {
                self.change(&cluster, |name| name.slot_count = count)
            }
            (Step::Scan(clusters), Answer::Scanned(found)) => {
                for ((cluster, keys), (slots, requests)) in clusters.into_iter().zip(found) {
                    self.change(&cluster, |name| {
                        (name.read_at, name.requests) = (Some(now), requests);
                        name.slots.truncate(keys.len());
                        for (place, (key, slot)) in keys.into_iter().zip(slots).enumerate() {
                            match name.slots.get_mut(place) {
                                Some(known) => known.look(slot, now),
                                None => name.slots.push(SlotState::new(key, slot, now)),
                            }
                        }
                    });
                }
            }
            (Step::Ages(keys), Answer::Aged(ages)) => {
                for (key, age) in keys.into_iter().zip(ages) {
                    let Some(age) = age else { continue };
                    self.change_slot(&key, |slot| slot.state = slot.observation.add_shown_age(age));
                }
            }
            (Step::History(key), Answer::Read(found)) => {
                self.change_slot(&key, |slot| {
                    let known = slot.history.take().map(|known| known.past);
                    let (past, missing) = match found {
                        Ok(past) => (past, None),
                        Err(reason) => (known.unwrap_or_default(), Some(reason)),
                    };
                    slot.history = Some(SlotHistory { past, missing, read_at: now, of: slot.fingerprint() });
                });
                self.change(&key.cluster, |name| name.histories += 1);
            }
            _ => {}
        }
    }

    /// Takes over a list of names, which is sorted. What is known of those that were listed before stays.
    fn list(&mut self, listed: Vec<ListedName>) {
        let is_same = |(name, (cluster, _)): (&NameState, &ListedName)| name.cluster == *cluster;
        if self.names.len() == listed.len() && self.names.iter().zip(&listed).all(is_same) {
            return;
        }
        let mut known = std::mem::take(&mut self.names).into_iter().peekable();
        for (cluster, count) in listed {
            while known.next_if(|name| name.cluster < cluster).is_some() {}
            let name = known.next_if(|name| name.cluster == cluster).unwrap_or_else(|| {
                self.ids += 1;
                NameState::new(self.ids, cluster, count)
            });
            self.names.push(name);
        }
        self.next = 0;
        self.number += 1;
        self.listed_number = self.number;
    }

    /// Changes what is known of a name. Browsers get it if that changes what they show.
    fn change(&mut self, cluster: &ClusterName, change: impl FnOnce(&mut NameState)) {
        let Ok(place) = self.names.binary_search_by(|name| name.cluster.cmp(cluster)) else { return };
        let Some(name) = self.names.get_mut(place) else { return };
        change(name);
        let json = name.to_json(self.began).to_string();
        if json != name.json {
            self.number += 1;
            (name.changed, name.json) = (self.number, json);
        }
    }

    fn change_slot(&mut self, key: &ElectionKey, change: impl FnOnce(&mut SlotState)) {
        self.change(&key.cluster, |name| {
            if let Some(slot) = name.slots.iter_mut().find(|slot| slot.key == *key) {
                change(slot);
            }
        });
    }

    /// Returns what has changed since `after`, the number of an earlier answer, or all of it after a change of the list.
    /// Times count from the start of this process, as `now_ms` does.
    pub(super) fn json(&self, after: u64, now: Instant) -> String {
        let is_all = after < self.listed_number || after > self.number;
        let changed = |name: &&NameState| !name.json.is_empty() && (is_all || name.changed > after);
        let changed = self.names.iter().filter(changed).map(|name| name.json.as_str()).collect::<Vec<_>>();
        let read = self.names.iter().map(|name| name.read_at).min().flatten();
        let head = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "number": self.number, "all": is_all, "now_ms": millis(self.began.until(now)),
            "location": self.location, "trouble": self.trouble,
            "answered_ms": millis(self.began.until(self.answered_at)),
            // The oldest of what is shown; none before all was read.
            "read_ms": read.map(|at| millis(self.began.until(at))),
            "listed": self.is_fixed || self.listed_at.is_some(), "has_more": self.has_more,
            "total": self.names.len(),
        });
        let head = head.to_string();
        let head = head.strip_suffix('}').unwrap_or_default();
        format!("{head},\"names\":[{}]}}\n", changed.join(","))
    }

    /// Returns the picture of the last day of a name. Its histories are read while this is called time and again.
    pub(super) fn timeline(&mut self, id: u64, now: Instant, since_1970: Duration) -> Option<Timeline> {
        let name = self.names.iter_mut().find(|name| name.id == id)?;
        name.pictured_at = Some(now);
        let mut rows = Vec::new();
        for slot in &name.slots {
            let number = slot.key.slot.get().get();
            let past = slot.past(now, since_1970).into_iter();
            rows.extend(past.map(|leadership| LeadershipRow { slot: number, leadership }));
        }
        let day_ago = since_1970.saturating_sub(DAY);
        let until = |past: &PastLeadership| past.ended_ms.map_or(since_1970, Duration::from_millis);
        rows.retain(|row| until(&row.leadership) >= day_ago);
        merge_holders(&mut rows);
        let mut timeline = timeline(&name.cluster.to_string(), &rows, since_1970);
        let is_read = name.slots.iter().all(|slot| slot.history.is_some());
        let missing = name.slots.iter().find_map(|slot| slot.history.as_ref()?.missing.as_ref());
        timeline.note = match (missing, is_read) {
            (Some(reason), _) => format!("UTC; its history can't be read: {reason}"),
            (None, true) => "UTC, by the leaders' own wall clocks; the last day at most".into(),
            (None, false) => "UTC; its history is not read yet".into(),
        };
        let start = timeline.span.start.min(since_1970.saturating_sub(SHORTEST));
        timeline.span = start.max(day_ago)..since_1970;
        Some(timeline)
    }
}

/// Has the older holders of leaderships share a row.
fn merge_holders(rows: &mut [LeadershipRow]) {
    let mut newest = rows.iter().map(|row| &row.leadership).collect::<Vec<_>>();
    newest.sort_by_key(|past| std::cmp::Reverse(past.started_ms));
    let mut kept = Vec::new();
    for past in newest {
        if !kept.contains(&past.holder) && kept.len() < SHOWN_HOLDERS {
            kept.push(past.holder.clone());
        }
    }
    for row in rows.iter_mut().filter(|row| !kept.contains(&row.leadership.holder)) {
        row.leadership.holder = "earlier holders".into();
    }
}

impl NameState {
    fn new(id: u64, cluster: ClusterName, slot_count: Option<NonZeroU32>) -> Self {
        Self {
            id,
            cluster,
            slot_count,
            counted_at: None,
            read_at: None,
            slots: Vec::new(),
            requests: OperatorRequests::default(),
            pictured_at: None,
            histories: 0,
            changed: 0,
            json: String::new(),
        }
    }

    /// Those of the slots that are shown. Of the first one alone if the number is not known.
    fn keys(&self) -> Vec<ElectionKey> {
        let slots = SlotNumber::all(self.slot_count.unwrap_or(NonZeroU32::MIN)).take(SHOWN_SLOTS as usize);
        slots.map(|slot| ElectionKey { cluster: self.cluster.clone(), slot }).collect()
    }

    fn to_json(&self, began: Instant) -> Value {
        let OperatorRequests { pause, step_down } = &self.requests;
        let pause = pause.as_ref().map(|pause| {
            let since_ms = millis(pause.since_unix_epoch());
            json!({"by": pause.author(), "reason": pause.reason(), "since_unix_ms": since_ms})
        });
        let slots = self.slots.iter().map(|slot| {
            let mut shown = slot.to_json(began);
            let epoch = slot.slot.entry().map(|entry| entry.epoch);
            let request = step_down.as_ref().filter(|request| {
                request.stage != Stage::Withdrawn && request.is_about(slot.key.slot, epoch)
            });
            if let Some(request) = request {
                let to = request.to.as_ref().map(|to| to.as_str());
                shown["step_down"] = json!({"to": to, "has_begun": request.stage == Stage::Begun});
            }
            shown
        });
        json!({
            "id": self.id, "name": self.cluster.to_string(), "slots": self.slot_count, "pause": pause,
            "histories": self.histories, "rows": slots.collect::<Vec<_>>(),
        })
    }
}

impl SlotState {
    fn new(key: ElectionKey, slot: Slot, now: Instant) -> Self {
        let mut observation = Observation::default();
        let state = observation.add(&slot, now);
        Self { key, slot, observation, state, looked_at: now, age_asked: false, history: None }
    }

    fn look(&mut self, slot: Slot, now: Instant) {
        let is_same = match (self.slot.entry(), slot.entry()) {
            (Some(seen), Some(entry)) => seen.is_same_write(entry),
            _ => false,
        };
        self.age_asked &= is_same;
        self.state = self.observation.add(&slot, now);
        (self.slot, self.looked_at) = (slot, now);
    }

    fn fingerprint(&self) -> (Option<u64>, Liveness) {
        (self.slot.last_epoch().map(|epoch| epoch.get()), self.state)
    }

    fn is_history_due(&self, now: Instant) -> bool {
        let is_fresh = |history: &SlotHistory| {
            history.of == self.fingerprint() && history.read_at.until(now) < HISTORY_PAUSE
        };
        !self.history.as_ref().is_some_and(is_fresh)
    }

    /// What a free slot has no value for is left out.
    fn to_json(&self, began: Instant) -> Value {
        let mut shown =
            json!({"slot": self.key.slot.get(), "state": self.state, "epoch": self.fingerprint().0});
        if let Some(entry) = self.slot.entry() {
            shown["holder"] = entry.holder.as_str().into();
            shown["ttl_ms"] = millis(entry.ttl.get()).into();
            // In tenths of a second: a proven age is measured anew by each look, and no row shall change by that. It may
            // have been written before this process began, and before this machine did.
            let signed = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
            let written = signed(began.until(self.looked_at)).saturating_sub(signed(self.observation.age()));
            shown["written_ms"] = (written.div_euclid(100) * 100).into();
        }
        shown
    }

    /// The leaderships that the history has, with the one that the record shows, and with what it shows of their ends.
    fn past(&self, now: Instant, since_1970: Duration) -> Vec<PastLeadership> {
        let mut past = self.history.as_ref().map(|history| history.past.clone()).unwrap_or_default();
        if let Some(entry) = self.slot.entry()
            && past.last().is_none_or(|last| last.epoch < entry.epoch.get())
        {
            // Epochs follow the wall clock.
            let (holder, epoch) = (entry.holder.to_string(), entry.epoch.get());
            past.push(PastLeadership { holder, epoch, started_ms: epoch, ended_ms: None, end: None });
        }
        let age = self.looked_at.until(now) + self.observation.age();
        let last_write = millis(since_1970.saturating_sub(age));
        for leadership in past.iter_mut().filter(|leadership| leadership.end.is_none()) {
            if self.state == Liveness::Stale && self.fingerprint().0 == Some(leadership.epoch) {
                leadership.ended_ms = Some(last_write.max(leadership.started_ms));
                leadership.end = Some(NOT_RENEWED.into());
            } else {
                leadership.end = unrecorded_end(leadership.epoch, &self.slot);
            }
        }
        past
    }
}
