//! `vvm step-down`: asks a leader to give its slot up, and tells what comes of it.
//!
//! The request goes through stages (`vvm_storage::Stage`), each a write that compares the one before. So when
//! this command says that nothing has happened, nothing will: it has withdrawn the request before the leader
//! began. So it does when it is interrupted: a request that was left behind would be granted whenever its
//! standby comes.

use super::{LOOK, Refusal, StorageInspector, conclude, new_ask, tell};
use crate::{
    announce::say,
    calendar::Span,
    cli::args::StepDownArgs,
    signals::{Signals, ends_a_candidate},
};
use ielections::{Entry, ReadError, Slot, Ttl, TtlStorage as _, WriteError};
use std::{
    cell::{Cell, RefCell},
    process::ExitCode,
    time::Duration,
};
use vvm_clock::Instant;
use vvm_host::operate::Purpose;
use vvm_storage::{Advanced, ElectionKey, SlotNumber, Stage, StepDown};

/// How long others have the first chance after a step-down: five looks of a standby that looks once a second,
/// which is the longest pause between two.
const FIRST_CHANCE: Duration = Duration::from_secs(5);

/// How long the named standby has to say that it is there, and then the leader that it has heard: each looks
/// once a second at least.
const ANSWER: Duration = Duration::from_secs(5);

/// `vvm step-down`.
pub(crate) fn step_down(args: &StepDownArgs) -> ExitCode {
    conclude((&args.storage, &args.name), Purpose::Ask, async |desk| ask_and_wait(desk, args).await)
}

/// A request that was made, and of whom.
struct Asked<'a> {
    desk: &'a StorageInspector,
    args: &'a StepDownArgs,
    key: ElectionKey,
    leader: Entry,
    began: Instant,
    give_up_at: Instant,
    signals: RefCell<Signals>,
    interrupted: Cell<bool>,
}

async fn ask_and_wait(desk: &StorageInspector, args: &StepDownArgs) -> Result<(), Refusal> {
    let key = slot(desk, args).await?;
    let Slot::Held { entry: leader, .. } = desk.storage.get(&key).await? else {
        return Err(Refusal::Refused(format!("nobody leads {} slot {}", desk.name, key.slot)));
    };
    if args.to.as_ref() == Some(&leader.holder) {
        return Err(Refusal::Refused(format!(
            "{} leads {} slot {} already",
            leader.holder, desk.name, key.slot
        )));
    }
    if let Some(pause) = desk.storage.standing_pause(&desk.cluster).await? {
        return Err(Refusal::Refused(format!(
            "{} is paused by {}: nobody could lead next; `vvm resume` first",
            desk.name,
            pause.by()
        )));
    }
    let signals = RefCell::new(Signals::catch()?);
    let first_chance = Ttl::new(FIRST_CHANCE).map_err(|e| Refusal::Misuse(e.to_string()))?;
    let began = desk.clock.now();
    let to = args.to.as_ref();
    let request = match desk.storage.ask_step_down(&key, leader.epoch, to, first_chance, new_ask()).await? {
        Advanced::Done(request) => request,
        Advanced::Overtaken(_) => {
            return Err(Refusal::Refused("another step-down was asked for at the same moment".into()));
        }
    };
    desk.wake_candidates(args.local_dir.as_ref());
    let give_up_at = began.after(args.timeout);
    let interrupted = Cell::new(false);
    let asked = Asked { desk, args, key, leader, began, give_up_at, signals, interrupted };
    let outcome = asked.see_through(&request).await;
    // It says nothing to anybody any more; left behind, it would do no harm.
    let _ = desk.storage.remove_step_down(&desk.cluster, &request).await;
    outcome
}

/// The slot that was meant.
async fn slot(desk: &StorageInspector, args: &StepDownArgs) -> Result<ElectionKey, Refusal> {
    let mut slots = desk.slots().await?;
    let count = slots.len();
    match args.slot {
        Some(number) => slots
            .into_iter()
            .find(|key| key.slot == SlotNumber::new(number))
            .ok_or_else(|| Refusal::Misuse(format!("--slot {number}: {} has {count}", desk.name))),
        None if count == 1 => Ok(slots.remove(0)),
        None => Err(Refusal::Misuse(format!("{} has {count} slots: say which with --slot N", desk.name))),
    }
}

impl Asked<'_> {
    async fn see_through(&self, request: &StepDown) -> Result<(), Refusal> {
        self.until_begun(request).await?;
        say!("{} slot {}: {} stops its work", self.desk.name, self.key.slot, self.leader.holder);
        self.until_followed().await
    }

    /// Until the leader has begun to stop, or certainly never will.
    async fn until_begun(&self, request: &StepDown) -> Result<(), Refusal> {
        let mut answer_by = self.began.after(ANSWER).min(self.give_up_at);
        let mut stands = request.clone();
        loop {
            match self.passing(self.desk.storage.requests(&self.desk.cluster).await)? {
                None => {}
                Some(found) => match found.step_down {
                    Some(found) if found.incarnation() == request.incarnation() => {
                        if found.stage > stands.stage {
                            answer_by = self.desk.clock.now().after(ANSWER).min(self.give_up_at);
                        }
                        stands = found;
                    }
                    _ => return Err(Refusal::Unfinished("another step-down was asked for meanwhile".into())),
                },
            }
            if stands.stage == Stage::Begun {
                return Ok(());
            }
            if let Some(now) = self.passing(self.desk.storage.get(&self.key).await)?
                && now.last_epoch() != Some(self.leader.epoch)
            {
                return Err(Refusal::Refused(format!("{} had lost the slot by itself", self.leader.holder)));
            }
            let interrupted = self.is_interrupted();
            if interrupted || self.desk.clock.now() >= answer_by {
                match self.withdraw(&stands).await? {
                    Withdrawn::Certainly if interrupted => {
                        let leader = &self.leader.holder;
                        return Err(Refusal::Refused(format!(
                            "withdrawn, so nothing was changed: {leader} leads on"
                        )));
                    }
                    Withdrawn::Certainly => return Err(self.unanswered(stands.stage)),
                    // It was faster.
                    Withdrawn::No => answer_by = self.desk.clock.now().after(ANSWER),
                }
            }
            self.pause().await;
        }
    }

    /// Makes sure that the leader won't begin.
    async fn withdraw(&self, stands: &StepDown) -> Result<Withdrawn, Refusal> {
        let outcome = self.desk.storage.advance_step_down(&self.desk.cluster, stands, Stage::Withdrawn).await;
        match outcome {
            Ok(Advanced::Done(_)) => Ok(Withdrawn::Certainly),
            Ok(Advanced::Overtaken(_)) => Ok(Withdrawn::No),
            // What stands then, the next look tells.
            Err(WriteError::NotApplied(_) | WriteError::Unknown(_)) if self.has_time() => Ok(Withdrawn::No),
            Err(refusal) => Err(Refusal::Unfinished(format!("it could not be withdrawn: {refusal}"))),
        }
    }

    fn unanswered(&self, stage: Stage) -> Refusal {
        let (leader, after) = (&self.leader.holder, Span(self.desk.clock.now().since(self.began)));
        Refusal::Refused(match &self.args.to {
            Some(to) if stage == Stage::Asked => format!(
                "no standby {to} has answered within {after}, so nothing was changed: {leader} leads on; is --holder {to} \
                 what it was started with?"
            ),
            _ => format!(
                "{leader} has not answered within {after}, so nothing was changed: it is dead or hangs, or its program \
                 knows nothing of such requests"
            ),
        })
    }

    /// Until somebody leads who did not before.
    async fn until_followed(&self) -> Result<(), Refusal> {
        let (name, slot, former) = (&self.desk.name, self.key.slot, &self.leader);
        let mut released_at = None;
        loop {
            let found = self.passing(self.desk.storage.get(&self.key).await)?;
            let now = self.desk.clock.now();
            match found {
                Some(Slot::Held { entry, .. }) if entry.epoch != former.epoch => {
                    let released_at = released_at.unwrap_or(now);
                    return self.followed(&entry, now, released_at);
                }
                Some(Slot::Vacant(_)) => {
                    released_at.get_or_insert(now);
                }
                Some(Slot::Held { .. }) | None => {}
            }
            if now >= self.give_up_at || self.is_interrupted() {
                let after = Span(now.since(self.began));
                return Err(Refusal::Unfinished(match released_at {
                    None => {
                        format!("{name} slot {slot}: after {after} {} still stops its work", former.holder)
                    }
                    Some(_) => format!("{name} slot {slot}: released, but nobody leads it after {after}"),
                }));
            }
            self.pause().await;
        }
    }

    fn followed(&self, next: &Entry, now: Instant, released_at: Instant) -> Result<(), Refusal> {
        let (name, slot) = (&self.desk.name, self.key.slot);
        let (took, gap) = (Span(now.since(self.began)), Span(now.since(released_at)));
        let Entry { holder, epoch, .. } = next;
        let line = format!("{holder} leads slot {slot} now, epoch {epoch}");
        let missed = match &self.args.to {
            Some(to) if to != holder => Some(format!("{to} had the first chance and did not take it")),
            None if *holder == self.leader.holder => Some("nobody else came forward".to_owned()),
            Some(_) | None => None,
        };
        match missed {
            None => {
                tell(self.desk, format_args!("{line}, after {took} ({gap} after the release)"));
                Ok(())
            }
            Some(missed) => Err(Refusal::Unfinished(format!("{name}: {missed}: {line}, after {took}"))),
        }
    }

    /// An answer, or none for now.
    fn passing<T>(&self, outcome: Result<T, ReadError>) -> Result<Option<T>, Refusal> {
        match outcome {
            Ok(found) => Ok(Some(found)),
            Err(ReadError::Unavailable(_)) if self.has_time() => Ok(None),
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// Whether somebody wants this command to end.
    fn is_interrupted(&self) -> bool {
        let caught = self.signals.borrow_mut().pending().unwrap_or_default();
        let is_now = caught.iter().any(|caught| ends_a_candidate(caught.signal));
        self.interrupted.set(self.interrupted.get() || is_now);
        self.interrupted.get()
    }

    fn has_time(&self) -> bool {
        self.desk.clock.now() < self.give_up_at
    }

    async fn pause(&self) {
        self.desk.clock.sleep(LOOK).await;
    }
}

/// What came of a withdrawal.
enum Withdrawn {
    Certainly,
    No,
}
