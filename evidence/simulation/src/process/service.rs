//! [`Worker`]: the work under a leadership. It writes documents, and ends somehow.

use super::{ServiceProfile, Started, slots};
use crate::{
    clock::Process,
    faults::FAULTS_END,
    records::{Token, document},
    world::{World, peers::SimLink},
};
use async_trait::async_trait;
use fastrand::Rng;
use futures_util::future::{join, join_all};
use ielections::{
    Candidacy, DocumentVersion, DocumentWrite, Documents, Elections, Holder, Leadership, Loss, OnlyIf, Scan,
    Standing, Terms, Timing, Ttl,
    successor::{SuccessorTerms, SupportPeriod},
};
use std::{future::pending, panic::resume_unwind, sync::Arc, time::Duration};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use vvm_clock::Clock;
use vvm_orch::{BoxError, Service, ServiceContext, Work};
use vvm_storage::ElectionKey;

/// How many documents a service writes, so few that its writers meet.
const DOCUMENTS: u32 = 3;

#[derive(Clone, Debug)]
pub(super) struct Worker {
    world: Arc<World>,
    process: Process,
    clock: Arc<dyn Clock>,
    ttl: Ttl,
    service: ServiceProfile,
    seed: u64,
}

impl Worker {
    pub(super) fn of(started: &Started) -> Self {
        let Started { world, process, profile, env, .. } = started;
        Self {
            world: Arc::clone(world),
            process: *process,
            clock: Arc::clone(&env.clock),
            ttl: profile.ttl,
            service: profile.service,
            seed: profile.seed,
        }
    }

    /// For work that no VVM surrounds, which would catch the panic.
    pub(super) fn that_never_panics(mut self) -> Self {
        self.service.panics_after = None;
        self
    }

    pub(super) fn begins(&self, slot: u32, standing: &Standing) {
        self.world.work_begins(self.process, slot, standing.epoch(), standing.incarnation());
    }

    /// Works until `stop`, or until the work ends by itself. Nothing of it runs afterwards.
    pub(super) async fn works(&self, slot: u32, standing: &Standing, stop: &CancellationToken) {
        let mut rng = Rng::with_seed(self.seed ^ standing.epoch().get());
        let ending = CancellationToken::new();
        let watches_loss = async {
            let loss = standing.lost().await;
            if loss.tightens_deadline() {
                let latest = self.clock.now().after(Timing::new(self.ttl).stopping());
                self.world.tightened(self.process, standing.incarnation(), latest);
            }
            pending::<()>().await;
        };
        let (one, two) = (rng.fork(), rng.fork());
        let works = join(self.ends(stop, &ending), async {
            if let Some(documents) = standing.documents().filter(|_| self.service.writes_documents) {
                let write = |writer, rng| self.writes(slot, standing, &documents, &ending, writer, rng);
                join(write(1, one), write(2, two)).await;
            }
        });
        tokio::select! {
            biased;
            _ = works => {}
            () = watches_loss => {}
        }
        self.world.work_ends(self.process, standing.incarnation());
    }

    async fn ends(&self, stop: &CancellationToken, ending: &CancellationToken) {
        // Not after the last fault: the end of the run might fall between two leaders.
        let within_faults = |after: &Duration| self.world.clock.now().after(*after) < FAULTS_END;
        let after = |limit: Option<Duration>| match limit.filter(within_faults) {
            Some(after) => self.clock.sleep(after),
            None => Box::pin(pending()),
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = after(self.service.ends_after) => {}
            () = after(self.service.panics_after) => {
                self.world.count(|counts| counts.panics += 1);
                // Without the message of a panic.
                resume_unwind(Box::new("simulated panic"));
            }
        }
        ending.cancel();
        if self.service.refuses_to_stop {
            pending::<()>().await;
        }
        self.clock.sleep(self.service.stop_takes).await;
    }

    async fn writes(
        &self,
        slot: u32,
        standing: &Standing,
        documents: &Documents,
        ending: &CancellationToken,
        writer: u32,
        mut rng: Rng,
    ) {
        let incarnation = standing.incarnation();
        let mut known: [Option<DocumentVersion>; DOCUMENTS as usize] = [None; DOCUMENTS as usize];
        if rng.bool() {
            // What an earlier leader wrote.
            let scan = Scan { limit: 2, ..Scan::default() };
            drop(documents.scan(&scan).await);
        }
        for number in 1.. {
            let pause = if rng.bool() { Duration::from_secs(8).mul_f64(rng.f64()) } else { Duration::ZERO };
            if !self.pauses(pause, ending).await || standing.loss().is_some() {
                return;
            }
            let token = Token { incarnation, writer, number };
            let first = rng.u32(..DOCUMENTS);
            let second = (first + 1) % DOCUMENTS;
            let count = 1 + usize::from(rng.bool());
            let chosen: Vec<u32> = [first, second].into_iter().take(count).collect();
            let put = |number: &u32, rng: &mut Rng| {
                let version = known[*number as usize];
                let only_if = match rng.u32(..3) {
                    0 => version.map_or(OnlyIf::Absent, OnlyIf::Version),
                    _ => OnlyIf::Always,
                };
                Some(DocumentWrite::Put { id: document(*number)?, body: token.body(), only_if })
            };
            let batch: Vec<_> = chosen.iter().filter_map(|number| put(number, &mut rng)).collect();
            let patience =
                if rng.u32(..8) == 0 { Some(Duration::from_secs(1).mul_f64(rng.f64())) } else { None };
            let answer = tokio::select! {
                biased;
                answer = documents.write(batch) => answer,
                () = self.waits(patience) => continue,
            };
            self.world.batch_answered(slot, token, &answer);
            match answer {
                Ok(version) => chosen.iter().for_each(|number| known[*number as usize] = Some(version)),
                Err(ielections::DocumentWriteError::Conflict { .. }) => known = [None; DOCUMENTS as usize],
                // A service that ignores errors writes on, and is refused.
                Err(_) => self.clock.sleep(Duration::from_millis(100)).await,
            }
        }
    }

    async fn pauses(&self, pause: Duration, ending: &CancellationToken) -> bool {
        tokio::select! {
            biased;
            () = ending.cancelled() => false,
            () = self.clock.sleep(pause) => true,
        }
    }

    async fn waits(&self, limit: Option<Duration>) {
        match limit {
            Some(limit) => self.clock.sleep(limit).await,
            None => pending().await,
        }
    }
}

#[async_trait]
impl Service<ElectionKey> for Worker {
    fn name(&self) -> &str {
        "service"
    }

    async fn start(self: Box<Self>, cx: ServiceContext<ElectionKey>) -> Result<Work, BoxError> {
        let slot = cx.slot.slot.get().get();
        self.begins(slot, &cx.standing);
        self.clock.sleep(self.service.start_takes).await;
        if self.service.fails_to_start {
            self.world.work_ends(self.process, cx.standing.incarnation());
            return Err("simulated failure to start".into());
        }
        Ok(Box::pin(async move {
            self.works(slot, &cx.standing, &cx.stop).await;
            Ok(())
        }))
    }
}

pub(super) async fn run(started: &Started) {
    let Started { world, process, profile, env, storage, stop, .. } = started;
    let elections = Arc::new(Elections::new(Arc::clone(storage) as _, env.clone()));
    let Ok(holder) = Holder::new("10.0.0.8") else { return };
    let terms = Terms::new(holder, profile.ttl);
    let candidacy = Candidacy { slots: slots(profile.slots), terms };
    let over = CancellationToken::new();
    let mut rng = Rng::with_seed(profile.seed);
    let campaigns = profile.slots.get().min(1 + rng.u32(..3));
    // With a successor, each is for a slot of its own.
    let campaigns = if profile.support.is_some() { profile.slots.get() } else { campaigns };
    let running: Vec<_> = (0..campaigns)
        .map(|number| {
            let (ended, has_ended) = oneshot::channel::<()>();
            let campaigns = Campaigns {
                worker: Worker::of(started).that_never_panics(),
                clock: Arc::clone(&env.clock),
                candidacy: match profile.support {
                    Some(_) => Candidacy { slots: one_slot(&candidacy, number), ..candidacy.clone() },
                    None => candidacy.clone(),
                },
                elections: Arc::clone(&elections),
                over: over.clone(),
                support: profile
                    .support
                    .map(|period| (period, SimLink::new(world, *process, number, rng.fork()))),
                rng: rng.fork(),
            };
            let task = async move {
                campaigns.run().await;
                drop(ended);
            };
            env.spawn.spawn("campaigns", Box::pin(task));
            has_ended
        })
        .collect();
    tokio::select! {
        biased;
        () = stop.notified() => {
            world.count(|counts| counts.stops += 1);
            over.cancel();
        }
        () = over.cancelled() => {}
    }
    world.note(format_args!("{process} closes its elections"));
    // Leaders get a loss, and hand back.
    let _ = tokio::join!(elections.cleanup(), join_all(running));
}

struct Campaigns {
    worker: Worker,
    clock: Arc<dyn Clock>,
    candidacy: Candidacy<ElectionKey>,
    elections: Arc<Elections<ElectionKey>>,
    over: CancellationToken,
    support: Option<(SupportPeriod, Arc<SimLink>)>,
    rng: Rng,
}

fn one_slot(candidacy: &Candidacy<ElectionKey>, number: u32) -> Vec<ElectionKey> {
    candidacy.slots.get(number as usize).cloned().into_iter().collect()
}

impl Campaigns {
    async fn run(mut self) {
        loop {
            let acquiring = async {
                match self.terms() {
                    None => self.elections.acquire(self.candidacy.clone()).await,
                    Some(terms) => self.elections.acquire_with_successor(self.candidacy.clone(), terms).await,
                }
            };
            let acquired = tokio::select! {
                biased;
                () = self.over.cancelled() => return,
                () = self.leaves() => return self.over.cancel(),
                acquired = acquiring => acquired,
            };
            match acquired {
                Ok((key, leadership)) => self.lead(key.slot.get().get(), leadership).await,
                // The storage refuses, so the process ends.
                Err(_) => return self.over.cancel(),
            }
            // Other processes may lead for a while.
            let pause = self.clock.sleep(Duration::from_secs(3).mul_f64(self.rng.f64()));
            tokio::select! {
                biased;
                () = self.over.cancelled() => return,
                () = pause => {}
            }
        }
    }

    fn terms(&self) -> Option<SuccessorTerms<ElectionKey>> {
        let (period, link) = self.support.clone()?;
        Some(SuccessorTerms { period, link })
    }

    /// With a successor, it stops now and then, and asks first: as a leader, or as a standby.
    async fn leaves(&self) {
        let Some((period, link)) = &self.support else { return pending().await };
        let after = Duration::from_secs(60).mul_f64(self.rng.clone().f64());
        if self.worker.world.clock.now().after(after) > FAULTS_END {
            return pending().await;
        }
        self.clock.sleep(after).await;
        tokio::select! {
            biased;
            () = link.stop() => {}
            () = self.clock.sleep(period.get()) => {}
        }
    }

    async fn lead(&self, slot: u32, leadership: Leadership) {
        self.worker.begins(slot, leadership.standing());
        let stop = CancellationToken::new();
        let stops = async {
            tokio::select! {
                biased;
                loss = leadership.lost() => {
                    if matches!(loss, Loss::SupportEnded { .. }) {
                        self.worker.world.count(|counts| counts.losses_of_support += 1);
                    }
                }
                () = self.leaves() => {}
            }
            stop.cancel();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = self.worker.works(slot, leadership.standing(), &stop) => {}
            () = stops => {}
        }
        let _outcome = leadership.release().await;
    }
}
