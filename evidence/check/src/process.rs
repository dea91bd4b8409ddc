//! [`Process`]: one candidate around the shipped values, in place of the engine, the deadman and the work.

use crate::{
    observer::{Sent, Violation},
    world::{Draws, Notes, Settings},
};
use ielections::{
    Claim, Delete, Entry, Holder, Loss, ReadError, ReleaseOutcome, Slot, Swap, Terms, Timing, Ttl,
    WriteError,
    protocol::{
        Campaign, CampaignEvent, CampaignStep, Lease, LeaseEvent, LeaseStep, Release, ReleaseEvent,
        ReleaseStep, RenewalAttempts, Scanned, Won,
    },
    timing::Jitter,
};
use std::{sync::Arc, time::Duration};
use testing_time::MockWallClock;
use vvm_clock::Instant;
use vvm_storage::Step;

#[derive(Clone, Hash)]
pub(crate) struct Process {
    pub(crate) name: &'static str,
    /// Tenths of a second that its clock counts in a second.
    pub(crate) rate: u64,
    /// What its clock shows.
    pub(crate) clock: Instant,
    pub(crate) ttl: Ttl,
    /// The campaign or the lease, or the records that are being released.
    pub(crate) actors: Vec<Actor>,
    pub(crate) is_paused: bool,
    /// No message of it arrives, and none to it.
    pub(crate) is_cut: bool,
    /// Its work goes on although it was handed back: a caller that lies.
    pub(crate) works_on: bool,
    /// The observer's notes of what it sent.
    pub(crate) sent: Vec<Sent>,
}

#[derive(Clone, Hash)]
pub(crate) struct Actor {
    pub(crate) kind: Kind,
    pub(crate) wake_at: Instant,
    pub(crate) call: Option<Call>,
}

#[derive(Clone, Hash)]
pub(crate) enum Kind {
    Campaigning(Box<Campaign>),
    Leading(Box<Leading>),
    Releasing(Release),
}

#[derive(Clone, Hash)]
pub(crate) struct Leading {
    pub(crate) lease: Lease,
    /// The deadman's deadline.
    pub(crate) kill_at: Instant,
    pub(crate) is_lost: bool,
    /// The storage showed that the record is not ours.
    pub(crate) is_gone: bool,
    /// The work has stopped, and the leadership was handed back.
    pub(crate) is_ending: bool,
}

/// A call without an answer.
#[derive(Clone, Hash)]
pub(crate) struct Call {
    pub(crate) request: Request,
    pub(crate) deadline: Instant,
    /// Its messages may take any time. Others are answered before time goes on.
    pub(crate) is_slow: bool,
    /// The request has arrived; this answer is under way.
    pub(crate) answer: Option<Answer>,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Request {
    Scan,
    Get,
    Write(Step),
}

/// The slot that a read shows, or that refused a write; `None` if the write was applied.
#[derive(Clone, Debug)]
pub(crate) struct Answer(pub(crate) Option<Slot>);

/// Why a call has no answer that says what became of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Failure {
    /// Its time is over.
    Unanswered,
    /// The storage refused, and says so.
    NotApplied,
    /// The storage was replaced.
    Replaced,
}

impl Process {
    pub(crate) fn new(name: &'static str, rate: u64, ttl: Ttl, began: Instant) -> Self {
        let (actors, sent) = (Vec::new(), Vec::new());
        Self { name, rate, clock: began, ttl, actors, is_paused: false, is_cut: false, works_on: false, sent }
    }

    /// Begins a campaign if nothing else is under way, as a host does after a release or a restart.
    pub(crate) fn begin(&mut self, draws: &Arc<Draws>) {
        if !self.actors.is_empty() {
            return;
        }
        self.sent.clear();
        let Ok(holder) = Holder::new(self.name) else { return };
        // Less often than by default, which is within the rules and makes fewer states.
        let poll = self.ttl.get() * 6 / 25;
        let terms = Terms { poll, ..Terms::new(holder, self.ttl) };
        let wall = Arc::new(MockWallClock::new());
        let campaign = Campaign::begin(terms, 1, self.clock, Arc::clone(draws) as _, wall);
        let kind = Kind::Campaigning(Box::new(campaign));
        self.actors.push(Actor { kind, wake_at: self.clock, call: None });
    }

    pub(crate) fn leading(&self) -> Option<&Leading> {
        self.actors.iter().find_map(|actor| match &actor.kind {
            Kind::Leading(leading) => Some(&**leading),
            Kind::Campaigning(_) | Kind::Releasing(_) => None,
        })
    }

    fn call(&mut self, actor: usize, request: Request, timeout: Duration, notes: &mut Notes) {
        notes.tell(|| format!("    {} sends {}", self.name, request.told()));
        if let Request::Write(Step::Claim { to, .. } | Step::Renew { to, .. }) = &request {
            self.sent.push(Sent { version: to.version, at: self.clock, applied: false });
        }
        let deadline = self.clock.after(timeout);
        self.actors[actor].call = Some(Call { request, deadline, is_slow: false, answer: None });
    }

    /// Delivers the end of a call.
    pub(crate) fn answered(
        &mut self,
        actor: usize,
        answer: Result<Answer, Failure>,
        cx: &mut Context<'_>,
    ) -> Result<(), Violation> {
        let Some(call) = self.actors[actor].call.take() else { return Ok(()) };
        let read = |answer: Result<Answer, Failure>| match answer {
            Ok(Answer(slot)) => Ok(slot.unwrap_or(Slot::Vacant(Default::default()))),
            Err(Failure::Replaced) => Err(ReadError::Replaced("replaced".into())),
            Err(Failure::Unanswered | Failure::NotApplied) => Err(ReadError::Unavailable("failed".into())),
        };
        let written = |answer: Result<Answer, Failure>| match answer {
            Ok(Answer(refused)) => Ok(refused),
            Err(Failure::Unanswered) => Err(WriteError::Unknown("failed".into())),
            Err(Failure::NotApplied) => Err(WriteError::NotApplied("failed".into())),
            Err(Failure::Replaced) => Err(WriteError::Replaced("replaced".into())),
        };
        let swap = |refused: Option<Slot>| refused.map_or(Swap::Swapped, Swap::Mismatch);
        match (&mut self.actors[actor].kind, &call.request) {
            (Kind::Campaigning(_), request) => {
                let event = match request {
                    Request::Scan => CampaignEvent::Scanned(match read(answer) {
                        Ok(slot) => Scanned { seen: vec![Some(slot)], outcome: Ok(()), hints_follow: false },
                        Err(error) => Scanned { seen: vec![None], outcome: Err(error), hints_follow: false },
                    }),
                    Request::Get => CampaignEvent::Read(read(answer)),
                    Request::Write(Step::Renew { .. }) => CampaignEvent::Swapped(written(answer).map(swap)),
                    Request::Write(_) => CampaignEvent::Claimed(
                        written(answer).map(|refused| refused.map_or(Claim::Claimed, Claim::Refused)),
                    ),
                };
                self.campaign(actor, event, cx)
            }
            (Kind::Leading(leading), request) => {
                let event = match request {
                    Request::Write(_) => LeaseEvent::Swapped(written(answer).map(swap)),
                    Request::Scan | Request::Get => LeaseEvent::Read(read(answer)),
                };
                if leading.is_ending {
                    self.settle(actor, cx);
                    return Ok(());
                }
                self.lease(actor, event, cx)
            }
            (Kind::Releasing(_), _) => {
                let deleted =
                    written(answer).map(|refused| refused.map_or(Delete::Deleted, Delete::Mismatch));
                self.release(actor, ReleaseEvent::Deleted(deleted), cx);
                Ok(())
            }
        }
    }

    pub(crate) fn woken(&mut self, actor: usize, cx: &mut Context<'_>) -> Result<(), Violation> {
        self.actors[actor].wake_at = Instant::NEVER;
        match &self.actors[actor].kind {
            Kind::Campaigning(_) => self.campaign(actor, CampaignEvent::Woken, cx),
            Kind::Leading(_) => self.lease(actor, LeaseEvent::Woken, cx),
            Kind::Releasing(_) => {
                self.release(actor, ReleaseEvent::Woken, cx);
                Ok(())
            }
        }
    }

    fn campaign(
        &mut self,
        actor: usize,
        event: CampaignEvent,
        cx: &mut Context<'_>,
    ) -> Result<(), Violation> {
        let mut event = event;
        loop {
            let now = self.clock;
            let Kind::Campaigning(campaign) = &mut self.actors[actor].kind else { return Ok(()) };
            let (request, timeout) = match campaign.on(now, event) {
                CampaignStep::Send => {
                    event = CampaignEvent::MaySend;
                    continue;
                }
                CampaignStep::Sleep(until) => {
                    cx.notes.reach("campaign: Sleep");
                    self.actors[actor].wake_at = until;
                    return Ok(());
                }
                CampaignStep::Scan(timeout) => {
                    cx.notes.reach("campaign: Scan");
                    (Request::Scan, timeout)
                }
                CampaignStep::Read(_, timeout) => {
                    cx.notes.reach("campaign: Read");
                    (Request::Get, timeout)
                }
                CampaignStep::Insert(_, vacant, to, timeout) => {
                    cx.notes.reach("campaign: Insert");
                    (Request::Write(Step::claim(&Slot::Vacant(vacant), &to)), timeout)
                }
                CampaignStep::TakeOver(_, entry, to, timeout) => {
                    cx.notes.reach("campaign: TakeOver");
                    let from = Slot::Held { entry, proven_age: None };
                    (Request::Write(Step::claim(&from, &to)), timeout)
                }
                CampaignStep::Renew(_, held, to, timeout) => {
                    cx.notes.reach("campaign: Renew");
                    (Request::Write(Step::renew(&held, &to)), timeout)
                }
                CampaignStep::Won(won) => {
                    cx.notes.reach("campaign: Won");
                    return self.won(actor, won, cx);
                }
                CampaignStep::Failed(error) => {
                    cx.notes.reach("campaign: Failed");
                    cx.notes.tell(|| format!("    {}'s campaign fails: {error}", self.name));
                    let Kind::Campaigning(campaign) = self.actors.remove(actor).kind else { return Ok(()) };
                    let left = campaign.abandon().map_or(Vec::new(), |(_, entries)| entries);
                    for entry in left {
                        self.begin_release(&entry, cx);
                    }
                    self.begin(cx.draws);
                    return Ok(());
                }
            };
            self.call(actor, request, timeout, cx.notes);
            return Ok(());
        }
    }

    fn won(&mut self, actor: usize, won: Won, cx: &mut Context<'_>) -> Result<(), Violation> {
        let Won { entry, sent_at, .. } = won;
        let kill_at = cx.settings.kill_at(entry.ttl, sent_at);
        self.confirmed(&entry, sent_at, kill_at, cx.settings)?;
        cx.notes.tell(|| {
            let left = self.clock.until(kill_at).as_secs_f64();
            format!(
                "    {} LEADS at {:?}; its kill deadline is in {left} s of its clock",
                self.name, entry.epoch
            )
        });
        let lease = Lease::begin(entry, sent_at, RenewalAttempts::UntilLoss, cx.draws.jitter());
        let wake_at = lease.wake_at();
        let leading = Leading { lease, kill_at, is_lost: false, is_gone: false, is_ending: false };
        self.actors[actor] = Actor { kind: Kind::Leading(Box::new(leading)), wake_at, call: None };
        Ok(())
    }

    fn lease(&mut self, actor: usize, event: LeaseEvent, cx: &mut Context<'_>) -> Result<(), Violation> {
        let mut event = event;
        loop {
            let now = self.clock;
            let Kind::Leading(leading) = &mut self.actors[actor].kind else { return Ok(()) };
            if leading.is_ending {
                return Ok(());
            }
            match leading.lease.on(now, event, cx.draws.jitter()) {
                LeaseStep::Sleep(until) => {
                    cx.notes.reach("lease: Sleep");
                    self.actors[actor].wake_at = until;
                }
                LeaseStep::Send(_) => {
                    event = LeaseEvent::MaySend;
                    continue;
                }
                LeaseStep::Swap { held, entry, timeout, loss_at } => {
                    cx.notes.reach("lease: Swap");
                    self.actors[actor].wake_at = loss_at;
                    self.call(actor, Request::Write(Step::renew(&held, &entry)), timeout, cx.notes);
                }
                LeaseStep::ReadBack { timeout, loss_at } => {
                    cx.notes.reach("lease: ReadBack");
                    self.actors[actor].wake_at = loss_at;
                    self.call(actor, Request::Get, timeout, cx.notes);
                }
                LeaseStep::Confirmed { sent_at, wake_at } => {
                    cx.notes.reach("lease: Confirmed");
                    let held = leading.lease.held().clone();
                    // The deadman only moves a deadline later, and this one is not final (I4).
                    leading.kill_at = leading.kill_at.max(cx.settings.kill_at(held.ttl, sent_at));
                    self.actors[actor].wake_at = wake_at;
                    self.confirmed(&held, sent_at, cx.settings.kill_at(held.ttl, sent_at), cx.settings)?;
                }
                LeaseStep::Lost(loss) => {
                    cx.notes.reach(name_of(&loss));
                    cx.notes.tell(|| format!("    {} has lost: {loss}", self.name));
                    (leading.is_lost, leading.is_gone) = (true, loss.is_mismatch());
                    if loss.tightens_deadline() {
                        let stopping = Timing::of(leading.lease.held().ttl).stopping();
                        leading.kill_at = leading.kill_at.min(now.after(stopping));
                    }
                    self.actors[actor].wake_at = Instant::NEVER;
                }
                LeaseStep::Over => cx.notes.reach("lease: Over"),
            }
            return Ok(());
        }
    }

    /// The work has stopped: hands the leadership back.
    pub(crate) fn hand_back(&mut self, actor: usize, cx: &mut Context<'_>) {
        if let Kind::Leading(leading) = &mut self.actors[actor].kind {
            leading.is_ending = true;
            self.settle(actor, cx);
        }
    }

    /// Disarms the deadman once no renewal is in flight, and then deletes the record (I6).
    fn settle(&mut self, actor: usize, cx: &mut Context<'_>) {
        if self.actors[actor].call.is_some() {
            return;
        }
        let Kind::Leading(leading) = self.actors.remove(actor).kind else { return };
        if leading.is_gone {
            self.begin(cx.draws);
        } else {
            self.begin_release(leading.lease.held(), cx);
        }
    }

    fn begin_release(&mut self, entry: &Entry, cx: &mut Context<'_>) {
        let release = Release::begin(entry.incarnation(), entry.epoch, Timing::of(entry.ttl));
        self.actors.push(Actor { kind: Kind::Releasing(release), wake_at: Instant::NEVER, call: None });
        self.release(self.actors.len() - 1, ReleaseEvent::MaySend, cx);
    }

    fn release(&mut self, actor: usize, event: ReleaseEvent, cx: &mut Context<'_>) {
        let mut event = event;
        loop {
            let now = self.clock;
            let Kind::Releasing(release) = &mut self.actors[actor].kind else { return };
            match release.on(now, event) {
                ReleaseStep::Sleep(until) => {
                    cx.notes.reach("release: Sleep");
                    self.actors[actor].wake_at = until;
                }
                ReleaseStep::Send => {
                    event = ReleaseEvent::MaySend;
                    continue;
                }
                ReleaseStep::Delete { incarnation, epoch, timeout } => {
                    cx.notes.reach("release: Delete");
                    self.call(actor, Request::Write(Step::release(incarnation, epoch)), timeout, cx.notes);
                }
                ReleaseStep::Done(outcome) => {
                    cx.notes.reach(match outcome {
                        ReleaseOutcome::Released => "release: Released",
                        ReleaseOutcome::AlreadyGone => "release: AlreadyGone",
                        ReleaseOutcome::LeftToExpire | ReleaseOutcome::StillArmed => "release: LeftToExpire",
                    });
                    cx.notes.tell(|| format!("    {}: {outcome}", self.name));
                    self.actors.remove(actor);
                    self.begin(cx.draws);
                }
            }
            return;
        }
    }
}

/// What the values need from outside.
pub(crate) struct Context<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) draws: &'a Arc<Draws>,
    pub(crate) notes: &'a mut Notes,
}

impl Draws {
    fn jitter(&self) -> Jitter {
        Jitter::from_random(ielections::Entropy::next_u64(self))
    }
}

impl Request {
    pub(crate) fn told(&self) -> String {
        let shown = |entry: &Entry| {
            let version = entry.version;
            format!("{:?} {:?} write {}", entry.epoch, version.incarnation, version.write)
        };
        match self {
            Self::Scan => "a scan".into(),
            Self::Get => "a read".into(),
            Self::Write(Step::Claim { from: Slot::Held { entry, .. }, to }) => {
                format!("a take-over of [{}] by [{}]", shown(entry), shown(to))
            }
            Self::Write(Step::Claim { to, .. }) => format!("a claim [{}]", shown(to)),
            Self::Write(Step::Renew { from, to }) => {
                format!("a renewal [{}], before write {}", shown(to), from.version.write)
            }
            Self::Write(Step::Release { incarnation, epoch }) => {
                format!("a release of [{epoch:?} {incarnation:?}]")
            }
            Self::Write(other) => format!("{other:?}"),
        }
    }
}

fn name_of(loss: &Loss) -> &'static str {
    match loss {
        Loss::Stolen { .. } => "loss: Stolen",
        Loss::Vanished => "loss: Vanished",
        Loss::EpochWentBack { .. } => "loss: EpochWentBack",
        Loss::StorageReplaced { .. } => "loss: StorageReplaced",
        Loss::StorageUnreachable { .. } => "loss: StorageUnreachable",
        Loss::Suspended => "loss: Suspended",
        Loss::Closing | Loss::HandedBack | Loss::EngineEnded | Loss::Dropped => "loss: of the engine",
    }
}
