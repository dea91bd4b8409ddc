//! `vvm step-down`: requests that a leader hands its slot over, and reports the outcome.
//!
//! A request has stages (`vvm_storage::Stage`), each written by comparison with the one before. So a request
//! that this command has withdrawn before the leader began will never take effect. An interrupted command
//! withdraws too: a request left behind would be granted whenever its standby starts.

use super::request::{INTERVAL, Refusal, conclude, new_ask, print};
use crate::{
    announce::say,
    args::StepDownArgs,
    calendar::Span,
    signals::{Signals, ends_a_candidate},
};
use ielections::{Entry, Epoch, ReadError, Slot, Ttl, TtlStorage as _, WriteError};
use std::{
    cell::{Cell, RefCell},
    process::ExitCode,
    time::Duration,
};
use vvm_clock::Instant;
use vvm_host::operate::{Purpose, StorageInspector};
use vvm_storage::{Advanced, ElectionKey, ElectionsTtlStorage, SlotNumber, Stage, StepDown};

/// How long other candidates hold back for the named standby: five polls of a standby that polls once a
/// second, the longest interval.
const FIRST_CHANCE: Duration = Duration::from_secs(5);

/// How long a standby has to accept, and then the leader to begin. Each polls once a second or more
/// often.
const ANSWER: Duration = Duration::from_secs(5);

pub(crate) fn step_down(args: &StepDownArgs) -> ExitCode {
    conclude(args.target.pair(), Purpose::Ask, async |inspector| request(inspector, args).await)
}

/// A request that was written.
struct Requested<'a> {
    inspector: &'a StorageInspector,
    args: &'a StepDownArgs,
    key: ElectionKey,
    leader: Entry,
    began: Instant,
    give_up_at: Instant,
    signals: RefCell<Signals>,
    interrupted: Cell<bool>,
}

async fn request(inspector: &StorageInspector, args: &StepDownArgs) -> Result<(), Refusal> {
    let StorageInspector { storage, name, cluster, clock, .. } = inspector;
    let key = slot(inspector, args).await?;
    let slot = key.slot;
    let refused = |why: String| Err(Refusal::Refused(why));
    let Slot::Held { entry: leader, .. } = storage.get(&key).await? else {
        return refused(format!("no process leads {name} slot {slot}"));
    };
    if args.to.as_ref() == Some(&leader.holder) {
        return refused(format!("{} leads {name} slot {slot} already", leader.holder));
    }
    if let Some(pause) = storage.standing_pause(cluster).await? {
        let by = pause.by();
        return refused(format!("{name} is paused by {by}: no standby could lead next; `vvm resume` first"));
    }
    let signals = RefCell::new(Signals::catch()?);
    let first_chance = Ttl::new(FIRST_CHANCE).map_err(|e| Refusal::Misuse(e.to_string()))?;
    let began = clock.now();
    let to = args.to.as_ref();
    let Advanced::Done(request) =
        storage.ask_step_down(&key, leader.epoch, to, first_chance, new_ask()).await?
    else {
        return refused("another operator requested a step-down at the same moment".into());
    };
    inspector.wake_candidates(args.wake.local_dir.as_ref());
    let give_up_at = began.after(args.timeout);
    let interrupted = Cell::new(false);
    let requested = Requested { inspector, args, key, leader, began, give_up_at, signals, interrupted };
    let outcome = requested.see_through(&request).await;
    // It has no effect any more. If this fails, it does no harm.
    let _ = storage.remove_step_down(cluster, &request).await;
    outcome
}

/// Returns the slot that the arguments name.
async fn slot(inspector: &StorageInspector, args: &StepDownArgs) -> Result<ElectionKey, Refusal> {
    let mut slots = inspector.slots().await?;
    let (name, count) = (&inspector.name, slots.len());
    match args.slot {
        Some(number) => slots
            .into_iter()
            .find(|key| key.slot == SlotNumber::new(number))
            .ok_or_else(|| Refusal::Misuse(format!("--slot {number}: {name} has {count}"))),
        None if count == 1 => Ok(slots.remove(0)),
        None => Err(Refusal::Misuse(format!("{name} has {count} slots: name one with --slot N"))),
    }
}

/// What a look shows of a request.
#[derive(PartialEq, Eq, Debug)]
enum Progress {
    Stands(StepDown),
    /// The leader has begun to stop its work.
    Begun,
    /// Another request stands, or none.
    Replaced,
    /// The leadership ended before the leader began.
    Lost,
}

/// Reads the slot first: if the request led to the end of the leadership, a later read of the request shows
/// that it has begun.
async fn progress(
    storage: &ElectionsTtlStorage,
    key: &ElectionKey,
    leader: Epoch,
    request: &StepDown,
) -> Result<Progress, ReadError> {
    let slot = storage.get(key).await?;
    let found = storage.requests(&key.cluster).await?.step_down;
    Ok(match found.filter(|found| found.incarnation() == request.incarnation()) {
        None => Progress::Replaced,
        Some(found) if found.stage == Stage::Begun => Progress::Begun,
        Some(_) if slot.last_epoch() != Some(leader) => Progress::Lost,
        Some(found) => Progress::Stands(found),
    })
}

impl Requested<'_> {
    async fn see_through(&self, request: &StepDown) -> Result<(), Refusal> {
        self.until_begun(request).await?;
        say!("{} slot {}: {} stops its work", self.inspector.name, self.key.slot, self.leader.holder);
        self.until_followed().await
    }

    /// Waits until the leader has begun to stop, or certainly never will.
    async fn until_begun(&self, request: &StepDown) -> Result<(), Refusal> {
        let StorageInspector { storage, clock, .. } = self.inspector;
        let leader = &self.leader;
        let answer_by = || clock.now().after(ANSWER).min(self.give_up_at);
        let (mut deadline, mut stands) = (answer_by(), request.clone());
        loop {
            match self.passing(progress(storage, &self.key, leader.epoch, request).await)? {
                Some(Progress::Begun) => return Ok(()),
                Some(Progress::Replaced) => {
                    let why = "another operator replaced the request by another step-down";
                    return Err(Refusal::Unfinished(why.into()));
                }
                Some(Progress::Lost) => {
                    let why = format!("{} lost the slot before it began to step down", leader.holder);
                    return Err(Refusal::Refused(why));
                }
                Some(Progress::Stands(found)) => {
                    if found.stage > stands.stage {
                        deadline = answer_by();
                    }
                    stands = found;
                }
                None => {}
            }
            let interrupted = self.is_interrupted();
            if interrupted || clock.now() >= deadline {
                if !self.withdraw(&stands).await? {
                    // The leader was faster, or the outcome is unknown: the next look shows it.
                    deadline = clock.now().after(ANSWER);
                } else if interrupted {
                    let why = format!("withdrawn, so nothing was changed: {} leads on", leader.holder);
                    return Err(Refusal::Refused(why));
                } else {
                    return Err(self.unanswered(stands.stage).await);
                }
            }
            clock.sleep(INTERVAL).await;
        }
    }

    /// Returns whether the request was withdrawn, so that the leader will not begin.
    async fn withdraw(&self, stands: &StepDown) -> Result<bool, Refusal> {
        let StorageInspector { storage, cluster, .. } = self.inspector;
        match storage.advance_step_down(cluster, stands, Stage::Withdrawn).await {
            Ok(Advanced::Done(_)) => Ok(true),
            Ok(Advanced::Overtaken(_)) => Ok(false),
            Err(WriteError::NotApplied(_) | WriteError::Unknown(_)) if self.has_time() => Ok(false),
            Err(refusal) => Err(Refusal::Unfinished(format!("the request can't be withdrawn: {refusal}"))),
        }
    }

    async fn unanswered(&self, stage: Stage) -> Refusal {
        let StorageInspector { storage, name, clock, .. } = self.inspector;
        let (leader, after) = (&self.leader.holder, Span(self.began.until(clock.now())));
        let unchanged = format!("within {after}, so nothing was changed: {leader} leads on");
        if stage > Stage::Asked {
            return Refusal::Refused(format!(
                "{leader} did not answer {unchanged}. It is dead or hangs, or ignores such requests"
            ));
        }
        let Some(to) = &self.args.to else {
            return Refusal::Refused(format!("no standby answered {unchanged}. Start one first"));
        };
        let keys = self.inspector.slots().await.unwrap_or_default();
        let slots = storage.scan(&keys).await.unwrap_or_default();
        let leads = |slot: &Slot| slot.entry().is_some_and(|entry| entry.holder == *to);
        let hint = match keys.iter().zip(&slots).find(|(_, slot)| leads(slot)) {
            Some((key, _)) => format!("{to} leads {name} slot {}: name a standby", key.slot),
            None => format!("Was it started with --holder {to}?"),
        };
        Refusal::Refused(format!("standby {to} did not answer {unchanged}. {hint}"))
    }

    /// Waits until another leadership of the slot has begun.
    async fn until_followed(&self) -> Result<(), Refusal> {
        let StorageInspector { storage, name, clock, .. } = self.inspector;
        let (slot, former) = (self.key.slot, &self.leader);
        let mut released_at = None;
        loop {
            let found = self.passing(storage.get(&self.key).await)?;
            let now = clock.now();
            match found {
                Some(Slot::Held { entry, .. }) if entry.epoch != former.epoch => {
                    return self.followed(&entry, now, released_at.unwrap_or(now));
                }
                Some(Slot::Vacant(_)) => {
                    released_at.get_or_insert(now);
                }
                Some(Slot::Held { .. }) | None => {}
            }
            if now >= self.give_up_at || self.is_interrupted() {
                let (holder, after) = (&former.holder, Span(self.began.until(now)));
                return Err(Refusal::Unfinished(match released_at {
                    None => format!("{name} slot {slot}: after {after} {holder} still stops its work"),
                    Some(_) => {
                        format!("{name} slot {slot}: released, but after {after} no process leads it")
                    }
                }));
            }
            clock.sleep(INTERVAL).await;
        }
    }

    fn followed(&self, next: &Entry, now: Instant, released_at: Instant) -> Result<(), Refusal> {
        let (name, slot) = (&self.inspector.name, self.key.slot);
        let (took, gap) = (Span(self.began.until(now)), Span(released_at.until(now)));
        let Entry { holder, epoch, .. } = next;
        let line = format!("{holder} leads slot {slot} now, epoch {epoch}");
        let missed = match &self.args.to {
            Some(to) if to != holder => format!("{to} had the first chance and did not take it"),
            None if *holder == self.leader.holder => "no other standby came forward".to_owned(),
            Some(_) | None => {
                print(self.inspector, format_args!("{line}, after {took} ({gap} after the release)"));
                return Ok(());
            }
        };
        Err(Refusal::Unfinished(format!("{name}: {missed}: {line}, after {took}")))
    }

    /// Returns an answer, or none for now.
    fn passing<T>(&self, outcome: Result<T, ReadError>) -> Result<Option<T>, Refusal> {
        match outcome {
            Ok(found) => Ok(Some(found)),
            Err(ReadError::Unavailable(_)) if self.has_time() => Ok(None),
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// Returns whether a signal requested the end of this command.
    fn is_interrupted(&self) -> bool {
        let caught = self.signals.borrow_mut().pending().unwrap_or_default();
        let is_now = caught.iter().any(|caught| ends_a_candidate(caught.signal));
        self.interrupted.set(self.interrupted.get() || is_now);
        self.interrupted.get()
    }

    fn has_time(&self) -> bool {
        self.inspector.clock.now() < self.give_up_at
    }
}

#[cfg(test)]
mod tests;
