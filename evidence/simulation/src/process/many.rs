//! A process with several leaderships on one engine: each campaigns, works, hands back, and campaigns again.

use super::{Started, service::Worker, slots};
use fastrand::Rng;
use futures_util::future::join_all;
use ielections::{Candidacy, Elections, Holder, Leadership, Terms};
use std::{sync::Arc, time::Duration};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use vvm_clock::Clock;
use vvm_storage::ElectionKey;

pub(super) async fn run(started: &Started) {
    let Started { world, process, profile, env, storage, stop, .. } = started;
    let elections = Arc::new(Elections::new(Arc::clone(storage) as _, env.clone()));
    let Ok(holder) = Holder::new("10.0.0.8") else { return };
    let terms = Terms::new(holder, profile.ttl);
    let candidacy = Candidacy { slots: slots(profile.slots), terms };
    let over = CancellationToken::new();
    let mut rng = Rng::with_seed(profile.seed);
    let running: Vec<_> = (0..profile.slots.get().min(1 + rng.u32(..3)))
        .map(|_| {
            let (ended, has_ended) = oneshot::channel::<()>();
            let campaigns = Campaigns {
                worker: Worker::of(started).that_never_panics(),
                clock: Arc::clone(&env.clock),
                candidacy: candidacy.clone(),
                elections: Arc::clone(&elections),
                over: over.clone(),
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
    rng: Rng,
}

impl Campaigns {
    async fn run(mut self) {
        loop {
            let acquired = tokio::select! {
                biased;
                () = self.over.cancelled() => return,
                acquired = self.elections.acquire(self.candidacy.clone()) => acquired,
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

    async fn lead(&self, slot: u32, leadership: Leadership) {
        self.worker.begins(slot, leadership.standing());
        let stop = CancellationToken::new();
        let stops = async {
            leadership.lost().await;
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
