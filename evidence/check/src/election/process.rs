//! [`Process`]: one candidate around the shipped values, in place of the engine, the deadman and the work.

use super::{
    message::{Answer, Datagram, Failure, Request},
    settings::{Context, Surroundings},
    support::Supported,
};
use ielections::{
    Claim, Delete, Entry, Epoch, Holder, Incarnation, Loss, ReadError, ReleaseOutcome, Slot, Swap, Terms,
    Timing, Ttl, Vacant, Version, WriteError,
    protocol::{
        Campaign, CampaignEvent, CampaignStep, Lease, LeaseEvent, LeaseStep, Release, ReleaseEvent,
        ReleaseStep, ScanAnswer, WonSlot,
        successor::{Successor, SuccessorEvent, SupportEvent},
    },
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
    /// It exchanges no datagrams.
    pub(crate) is_unlinked: bool,
    /// What it sends in this event.
    pub(crate) outbox: Vec<Datagram>,
    /// Writes of candidates that won or ended in another way: they may arrive late.
    pub(crate) dropped: Vec<Request>,
    pub(crate) leaves: bool,
    pub(crate) has_left: bool,
}

#[derive(Clone, Hash)]
pub(crate) struct Sent {
    pub(crate) version: Version,
    pub(crate) at: Instant,
    pub(crate) applied: bool,
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
    Succeeding(Box<Successor>),
}

#[derive(Clone, Hash)]
pub(crate) struct Leading {
    pub(crate) lease: Lease,
    pub(crate) kill_at: Instant,
    pub(crate) is_lost: bool,
    /// The storage showed that the record is not ours.
    pub(crate) is_gone: bool,
    /// The work has stopped, and the leadership was handed back.
    pub(crate) is_ending: bool,
    pub(crate) may_stop: bool,
    pub(crate) support: Option<Box<Supported>>,
}

#[derive(Clone, Hash)]
pub(crate) struct Call {
    pub(crate) request: Request,
    pub(crate) deadline: Instant,
    /// Its messages may take any time. Others are answered before time goes on.
    pub(crate) is_slow: bool,
    /// The request has arrived; this answer is under way.
    pub(crate) answer: Option<Result<Answer, Failure>>,
}

/// The number of a leader's support, in place of that of an actor.
pub(crate) const SUPPORT: usize = 9;

impl Leading {
    pub(crate) fn dead_at(&self) -> Instant {
        let support = self.support.as_ref().and_then(|support| support.kill_at);
        support.map_or(self.kill_at, |kill_at| kill_at.min(self.kill_at))
    }
}

impl Process {
    pub(crate) fn new(name: &'static str, rate: u64, ttl: Ttl, clock: Instant) -> Self {
        Self {
            name,
            rate,
            clock,
            ttl,
            actors: Vec::new(),
            is_paused: false,
            is_cut: false,
            works_on: false,
            sent: Vec::new(),
            is_unlinked: false,
            outbox: Vec::new(),
            dropped: Vec::new(),
            leaves: false,
            has_left: false,
        }
    }

    /// Begins a campaign if nothing else is under way, as a host does after a release or a restart.
    pub(crate) fn begin(&mut self, around: &Arc<Surroundings>) {
        self.begin_after(Vec::new(), around);
    }

    /// [`begin`](Self::begin), after releases that failed.
    fn begin_after(&mut self, left_behind: Vec<(Incarnation, Epoch)>, around: &Arc<Surroundings>) {
        if !self.actors.is_empty() {
            return;
        }
        self.sent.clear();
        let Ok(holder) = Holder::new(self.name) else { return };
        // Less often than by default, which is within the rules and makes fewer states.
        let poll = self.ttl.get() * around.poll / 25;
        let terms = Terms { poll, left_behind, ..Terms::new(holder, self.ttl) };
        let wall = MockWallClock::new();
        wall.set(around.wall);
        let wall = Arc::new(wall);
        let holder = terms.holder.clone();
        let campaign = Campaign::begin(terms, 1, self.clock, Arc::clone(around) as _, Arc::clone(&wall) as _);
        let kind = Kind::Campaigning(Box::new(campaign));
        self.actors.push(Actor { kind, wake_at: self.clock, call: None });
        if around.succeeds {
            let successor = Successor::begin(holder, self.ttl, Arc::clone(around) as _, wall);
            let kind = Kind::Succeeding(Box::new(successor));
            self.actors.push(Actor { kind, wake_at: Instant::NEVER, call: None });
        }
    }

    pub(crate) fn leading(&self) -> Option<&Leading> {
        self.actors.iter().find_map(|actor| match &actor.kind {
            Kind::Leading(leading) => Some(&**leading),
            Kind::Campaigning(_) | Kind::Releasing(_) | Kind::Succeeding(_) => None,
        })
    }

    pub(crate) fn calls(&mut self) -> impl Iterator<Item = &mut Call> {
        self.actors.iter_mut().filter_map(|actor| actor.call.as_mut())
    }

    pub(super) fn call(&mut self, actor: usize, request: Request, timeout: Duration, cx: &mut Context<'_>) {
        cx.notes.tell(|| format!("    {} sends {}", self.name, request.told()));
        cx.notes.reach(match (&self.actors[actor].kind, &request) {
            (_, Request::Scan) => "a scan",
            (Kind::Leading(_), Request::Get) => "a read-back of a leader",
            (Kind::Succeeding(_), Request::Get) => "a read of a successor",
            (_, Request::Get) => "a read-back of a candidate",
            (Kind::Leading(_), _) => "a renewal of a leader",
            (Kind::Succeeding(_), Request::Write(Step::Renew { .. })) => "a renewal of a successor",
            (Kind::Succeeding(_), _) => "a claim by right",
            (_, Request::Write(Step::Renew { .. })) => "a renewal of a candidate",
            (Kind::Campaigning(_), Request::Write(Step::Release { .. })) => "a release by a candidate",
            (Kind::Campaigning(_), _) => "a claim",
            (Kind::Releasing(_), _) => "a release",
        });
        if let Request::Write(Step::Claim { to, .. } | Step::Renew { to, .. }) = &request {
            self.sent.push(Sent { version: to.version, at: self.clock, applied: false });
        }
        let deadline = self.clock.after(timeout);
        self.actors[actor].call = Some(Call { request, deadline, is_slow: false, answer: None });
    }

    pub(crate) fn answered(&mut self, actor: usize, answer: Result<Answer, Failure>, cx: &mut Context<'_>) {
        let Some(call) = self.actors[actor].call.take() else { return };
        let answer = answer.map(|Answer(slot)| slot);
        let shown = answer.as_ref().ok().and_then(|slot| slot.as_ref()?.entry().cloned());
        let read = |answer: Result<Option<Slot>, Failure>| match answer {
            Ok(slot) => Ok(slot.unwrap_or(Slot::Vacant(Vacant::default()))),
            Err(Failure::Replaced) => Err(ReadError::Replaced("replaced".into())),
            Err(Failure::Fatal) => Err(ReadError::Fatal("fatal".into())),
            Err(Failure::Unanswered | Failure::NotApplied) => Err(ReadError::Unavailable("failed".into())),
        };
        let written = |answer: Result<Option<Slot>, Failure>| {
            answer.map_err(|failure| match failure {
                Failure::Unanswered => WriteError::Unknown("failed".into()),
                Failure::NotApplied => WriteError::NotApplied("failed".into()),
                Failure::Replaced => WriteError::Replaced("replaced".into()),
                Failure::Fatal => WriteError::Fatal("fatal".into()),
            })
        };
        let swap = |refused: Option<Slot>| refused.map_or(Swap::Swapped, Swap::Mismatch);
        let deleted = |answer: Result<Option<Slot>, WriteError>| {
            answer.map(|refused| refused.map_or(Delete::Deleted, Delete::Mismatch))
        };
        let claim = |refused: Option<Slot>| refused.map_or(Claim::Claimed, Claim::Refused);
        match (&mut self.actors[actor].kind, call.request) {
            (Kind::Campaigning(_), request) => {
                let is_scan = request == Request::Scan;
                let event = match request {
                    Request::Scan => {
                        let (seen, outcome) = match read(answer) {
                            Ok(slot) => (Some(slot), Ok(())),
                            Err(error) => (None, Err(error)),
                        };
                        CampaignEvent::Scanned(ScanAnswer { seen: vec![seen], outcome, hints_follow: false })
                    }
                    Request::Get => CampaignEvent::Read(read(answer)),
                    Request::Write(Step::Renew { .. }) => CampaignEvent::TakenOver(written(answer).map(swap)),
                    Request::Write(Step::Release { .. }) => CampaignEvent::Deleted(deleted(written(answer))),
                    Request::Write(_) => CampaignEvent::Claimed(written(answer).map(claim)),
                };
                self.campaign(actor, event, cx);
                let succeeds = |actor: &Actor| matches!(actor.kind, Kind::Succeeding(_));
                if let Some(entry) = shown.clone().filter(|_| is_scan)
                    && let Some(successor) = self.actors.iter().position(succeeds)
                {
                    self.succeed(successor, SuccessorEvent::Found(entry), cx);
                }
                if let Some(entry) = shown.filter(|_| !self.renews_or_leads(actor) && !cx.around.succeeds) {
                    self.knows_its_own(&entry, cx);
                }
            }
            (Kind::Succeeding(_), request) => {
                let event = match request {
                    Request::Write(Step::Renew { .. }) => SuccessorEvent::Swapped(written(answer).map(swap)),
                    Request::Write(_) => SuccessorEvent::Claimed(written(answer).map(claim)),
                    Request::Scan | Request::Get => SuccessorEvent::Read(read(answer)),
                };
                self.succeed(actor, event, cx);
            }
            (Kind::Leading(leading), _) if leading.is_ending => {
                self.settle(actor, cx);
            }
            (Kind::Leading(_), request) => {
                let event = match request {
                    Request::Write(_) => LeaseEvent::Renewed(written(answer).map(swap)),
                    Request::Scan | Request::Get => LeaseEvent::Read(read(answer)),
                };
                self.lease(actor, event, cx)
            }
            (Kind::Releasing(_), _) => {
                self.release(actor, ReleaseEvent::Deleted(deleted(written(answer))), cx);
            }
        }
    }

    /// Whether the actor, which may be a candidate, knows that a record is its own.
    fn renews_or_leads(&self, actor: usize) -> bool {
        let renews = |sent: &Sent| sent.version.write > 0;
        self.leading().is_some() || self.actors.get(actor).is_none() || self.sent.iter().any(renews)
    }

    pub(crate) fn woken(&mut self, actor: usize, cx: &mut Context<'_>) {
        if actor == SUPPORT {
            return self.support(SupportEvent::Woken, cx);
        }
        self.actors[actor].wake_at = Instant::NEVER;
        match &self.actors[actor].kind {
            Kind::Succeeding(_) => self.succeed(actor, SuccessorEvent::Woken, cx),
            Kind::Campaigning(_) => self.campaign(actor, CampaignEvent::Woken, cx),
            Kind::Leading(_) => self.lease(actor, LeaseEvent::Woken, cx),
            Kind::Releasing(_) => {
                self.release(actor, ReleaseEvent::Woken, cx);
            }
        }
    }

    fn campaign(&mut self, actor: usize, event: CampaignEvent, cx: &mut Context<'_>) {
        let now = self.clock;
        let Kind::Campaigning(campaign) = &mut self.actors[actor].kind else { return };
        let held = |entry| Slot::Held { entry, proven_age: None };
        let (request, timeout) = match campaign.on(now, event) {
            // A turn comes at once.
            CampaignStep::Send => return self.campaign(actor, CampaignEvent::MaySend, cx),
            CampaignStep::Sleep(until) => {
                self.actors[actor].wake_at = until;
                return;
            }
            CampaignStep::Scan(timeout) => (Request::Scan, timeout),
            CampaignStep::Read(_, timeout) => (Request::Get, timeout),
            CampaignStep::Insert(_, vacant, to, timeout) => {
                (Request::Write(Step::claim(&Slot::Vacant(vacant), &to)), timeout)
            }
            CampaignStep::TakeOver(_, entry, to, timeout) => {
                (Request::Write(Step::claim(&held(entry), &to)), timeout)
            }
            CampaignStep::Renew(_, held, to, timeout) => (Request::Write(Step::renew(&held, &to)), timeout),
            CampaignStep::Delete(_, incarnation, epoch, timeout) => {
                (Request::Write(Step::release(incarnation, epoch)), timeout)
            }
            CampaignStep::Won(WonSlot { entry, sent_at, .. }) => return self.won(actor, entry, sent_at, cx),
            CampaignStep::Failed(error) => {
                cx.notes.reach("a campaign that fails");
                cx.notes.tell(|| format!("    {}'s campaign fails: {error}", self.name));
                self.abandon_candidates(cx);
                self.begin(cx.around);
                // Its host pauses before it tries again.
                let pause = self.ttl.get() / 5;
                let begun = |actor: &&mut Actor| matches!(actor.kind, Kind::Campaigning(_));
                let begun = self.actors.iter_mut().filter(begun);
                begun.for_each(|actor| actor.wake_at = self.clock.after(pause));
                return;
            }
        };
        self.call(actor, request, timeout, cx);
    }

    pub(super) fn won(&mut self, actor: usize, entry: Entry, sent_at: Instant, cx: &mut Context<'_>) {
        let kill_at = cx.around.kill_at(entry.ttl, sent_at);
        self.confirmed(&entry, sent_at, kill_at, cx);
        let left = self.clock.until(kill_at);
        cx.notes.tell(|| {
            format!("    {} LEADS at {:?}, killed in {left:?} of its clock", self.name, entry.epoch)
        });
        let lease = Lease::begin(entry, sent_at, cx.around.jitter());
        let wake_at = lease.wake_at();
        let support = Supported::begin(&lease, self.clock, cx.around);
        let leading = Leading {
            lease,
            kill_at,
            is_lost: false,
            is_gone: false,
            is_ending: false,
            may_stop: false,
            support,
        };
        self.actors[actor] = Actor { kind: Kind::Leading(Box::new(leading)), wake_at, call: None };
        self.abandon_candidates(cx);
    }

    /// Ends campaign and successor, and deletes what their unresolved attempts may have written.
    fn abandon_candidates(&mut self, cx: &mut Context<'_>) {
        let is_candidate =
            |actor: &mut Actor| matches!(actor.kind, Kind::Campaigning(_) | Kind::Succeeding(_));
        let ended: Vec<Actor> = self.actors.extract_if(.., is_candidate).collect();
        let mut left = Vec::new();
        for Actor { kind, call, .. } in ended {
            let dropped = call.filter(|call| call.answer.is_none()).map(|call| call.request);
            self.dropped.extend(dropped.filter(|request| request.step().is_some()));
            match kind {
                Kind::Campaigning(campaign) => {
                    left.extend(campaign.abandon().into_iter().flat_map(|(_, left)| left))
                }
                Kind::Succeeding(successor) => left.extend(successor.abandon()),
                Kind::Leading(_) | Kind::Releasing(_) => {}
            }
        }
        left.iter().for_each(|entry| self.begin_release(entry, cx));
    }

    pub(super) fn lease(&mut self, actor: usize, event: LeaseEvent, cx: &mut Context<'_>) {
        let now = self.clock;
        let Kind::Leading(leading) = &mut self.actors[actor].kind else { return };
        if leading.is_ending {
            return;
        }
        let (mut shown, mut is_lost) = (None, false);
        let (wake_at, request) = match leading.lease.on(now, event, cx.around.jitter()) {
            // A turn comes at once.
            LeaseStep::Send(_) => return self.lease(actor, LeaseEvent::MaySend, cx),
            LeaseStep::Sleep(until) => {
                cx.notes.reach("a leader that waits");
                (until, None)
            }
            LeaseStep::Renew { held, entry, timeout, loss_at } => {
                (loss_at, Some((Request::Write(Step::renew(&held, &entry)), timeout)))
            }
            LeaseStep::ReadBack { timeout, loss_at } => (loss_at, Some((Request::Get, timeout))),
            LeaseStep::Confirmed { sent_at, version, wake_at } => {
                shown = Some(version);
                cx.notes.reach("a confirmed renewal");
                let held = leading.lease.held().clone();
                let kill_at = cx.around.kill_at(held.ttl, sent_at);
                // The deadman only moves a deadline later, and this one is not final (I4).
                leading.kill_at = leading.kill_at.max(kill_at);
                self.confirmed(&held, sent_at, kill_at, cx);
                (wake_at, None)
            }
            LeaseStep::Lost(loss) => {
                cx.notes.reach(name_of(&loss));
                cx.notes.tell(|| format!("    {} has lost: {loss}", self.name));
                let by = if let Loss::Stolen { by } = &loss { Some(by.clone()) } else { None };
                (leading.is_lost, leading.is_gone) = (true, loss.is_mismatch());
                is_lost = true;
                if loss.tightens_deadline() {
                    let stopping = Timing::new(leading.lease.held().ttl).stopping();
                    leading.kill_at = leading.kill_at.min(now.after(stopping));
                }
                by.iter().for_each(|by| self.knows_its_own(by, cx));
                if matches!(&loss, Loss::EpochWentBack { held, found } if *found == Some(*held)) {
                    cx.violated("I7", || format!("{} takes its own record for an older one", self.name));
                }
                (Instant::NEVER, None)
            }
            LeaseStep::Over => {
                cx.notes.reach("an answer after a loss");
                return;
            }
        };
        self.actors[actor].wake_at = wake_at;
        if let Some((request, timeout)) = request {
            self.call(actor, request, timeout, cx);
        }
        if let Some(version) = shown {
            self.support(SupportEvent::Confirmed(version), cx);
        }
        if is_lost {
            self.support(SupportEvent::LeaseLost, cx);
        }
    }

    pub(crate) fn hand_back(&mut self, actor: usize, cx: &mut Context<'_>) {
        if let Kind::Leading(leading) = &mut self.actors[actor].kind {
            (leading.is_ending, leading.support) = (true, None);
            self.settle(actor, cx);
        }
    }

    /// Disarms the deadman once no renewal is in flight, and then deletes the record (I6).
    fn settle(&mut self, actor: usize, cx: &mut Context<'_>) {
        if self.actors[actor].call.is_some() {
            return;
        }
        match self.actors.remove(actor).kind {
            Kind::Leading(leading) if !leading.is_gone => {
                self.begin_release(leading.lease.held(), cx);
            }
            _ => self.begin(cx.around),
        }
    }

    fn begin_release(&mut self, entry: &Entry, cx: &mut Context<'_>) {
        let release = Release::begin(entry.incarnation(), entry.epoch, Timing::new(entry.ttl));
        self.actors.push(Actor { kind: Kind::Releasing(release), wake_at: Instant::NEVER, call: None });
        self.release(self.actors.len() - 1, ReleaseEvent::MaySend, cx);
    }

    fn release(&mut self, actor: usize, event: ReleaseEvent, cx: &mut Context<'_>) {
        let now = self.clock;
        let Kind::Releasing(release) = &mut self.actors[actor].kind else { return };
        match release.on(now, event) {
            ReleaseStep::Sleep(until) => {
                cx.notes.reach("a release that waits");
                self.actors[actor].wake_at = until;
            }
            ReleaseStep::Send => self.release(actor, ReleaseEvent::MaySend, cx),
            ReleaseStep::Delete { incarnation, epoch, timeout } => {
                self.call(actor, Request::Write(Step::release(incarnation, epoch)), timeout, cx);
            }
            ReleaseStep::Done(outcome) => {
                cx.notes.reach(match outcome {
                    ReleaseOutcome::Released => "Released",
                    ReleaseOutcome::AlreadyGone => "AlreadyGone",
                    ReleaseOutcome::LeftToExpire | ReleaseOutcome::StillArmed => "LeftToExpire",
                });
                cx.notes.tell(|| format!("    {}: {outcome}", self.name));
                let Kind::Releasing(release) = self.actors.remove(actor).kind else { return };
                let is_left = outcome == ReleaseOutcome::LeftToExpire;
                self.begin_after(is_left.then(|| release.record()).into_iter().collect(), cx.around);
            }
        }
    }
}

fn name_of(loss: &Loss) -> &'static str {
    match loss {
        Loss::Stolen { .. } => "Stolen",
        Loss::Vanished => "Vanished",
        Loss::EpochWentBack { .. } => "EpochWentBack",
        Loss::StorageReplaced { .. } => "StorageReplaced",
        Loss::StorageUnreachable { .. } => "StorageUnreachable",
        Loss::SupportEnded { .. } => "SupportEnded",
        Loss::Suspended => "Suspended",
        Loss::Closing | Loss::HandedBack | Loss::EngineEnded | Loss::Dropped => "a loss of the engine",
    }
}
