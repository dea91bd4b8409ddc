//! Terms on several threads in real time. All other tests run on one thread.

use async_trait::async_trait;
use ielections::{Candidacy, Elections, Env, Holder, Terms, Ttl};
use primary_only::{
    BoxError, GetOrCreateError, Interrupted, RegistryBuilder, RegistryConfig, RunContext, Service, Task,
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use tokio_util::sync::CancellationToken;
use vvm_clock::{Clock, SystemClock};
use vvm_deadman::{Deadman, recording::RecordingTrigger};
use vvm_storage::{ElectionsTtlStorage, mem::MemDatabase};

const INSTANCES: usize = 100;
const STEPS: u64 = 30;
const STEPS_A_TERM: u64 = 5;

/// The observed runs and steps of one instance.
#[derive(Default)]
struct Seen {
    running: AtomicBool,
    steps: AtomicU64,
    done: AtomicBool,
}

struct Counters(Arc<Vec<Seen>>);
struct Counter(usize, Arc<Vec<Seen>>);

impl Service for Counters {
    type Id = usize;
    type Doc = u64;
    type Task = Counter;

    const NAME: &'static str = "counters";

    fn build(&self, id: &usize, count: &u64) -> Result<Counter, BoxError> {
        // The caller can't know yet that it is done, and must not restart it.
        if *count == 0 && self.0[*id].steps.load(Ordering::SeqCst) > 0 {
            return Err("done already".into());
        }
        Ok(Counter(*id, Arc::clone(&self.0)))
    }
}

#[async_trait]
impl Task for Counter {
    type Doc = u64;

    async fn run(&self, mut cx: RunContext<u64>) -> Result<(), BoxError> {
        let seen = &self.1[self.0];
        assert!(!seen.running.swap(true, Ordering::SeqCst), "{} runs twice", self.0);
        let counted = async {
            cx.state.insert().await?;
            let last = *cx.state.doc() + STEPS_A_TERM;
            while *cx.state.doc() < STEPS {
                if *cx.state.doc() == last {
                    cx.stop.cancelled().await;
                }
                if cx.stop.is_cancelled() {
                    return Err(Interrupted.into());
                }
                let next = cx.state.doc() + 1;
                cx.state.update(next).await?;
                let before = seen.steps.fetch_add(1, Ordering::SeqCst);
                assert_eq!(before + 1, next, "a step of {} counted twice, or not at all", self.0);
                tokio::task::yield_now().await;
            }
            cx.state.delete().await?;
            seen.done.store(true, Ordering::SeqCst);
            Ok(())
        }
        .await;
        seen.running.store(false, Ordering::SeqCst);
        counted
    }
}

#[test]
fn id_never_runs_twice_at_once_and_every_step_counts_once_on_many_threads() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    runtime.block_on(async {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start().unwrap());
        let deadman = Deadman::with_trigger(RecordingTrigger::on(Arc::clone(&clock)));
        let env = Env::with_deadman(deadman, tokio::runtime::Handle::current()).unwrap();
        let storage = ElectionsTtlStorage::new(MemDatabase::new(Arc::clone(&clock)).open());
        let elections = Elections::new(Arc::new(storage), env.clone());
        let seen: Arc<Vec<Seen>> = Arc::new((0..INSTANCES).map(|_| Seen::default()).collect());
        let mut builder = RegistryBuilder::new(RegistryConfig::new(&env));
        let service = builder.register(Counters(Arc::clone(&seen))).unwrap();
        let registry = builder.build();

        let steps = || seen.iter().map(|seen| seen.steps.load(Ordering::SeqCst)).sum::<u64>();
        let all_done = || seen.iter().all(|seen| seen.done.load(Ordering::SeqCst));
        let mut terms = 0_u64;
        while !all_done() {
            terms += 1;
            let candidate = Terms::new(Holder::new("a").unwrap(), Ttl::DEFAULT);
            let candidacy = Candidacy { slots: vec![crate::rig::Cluster::key(1)], terms: candidate };
            let (_, leadership) = elections.acquire(candidacy).await.unwrap();
            let (stop, standing) = (CancellationToken::new(), leadership.standing().clone());
            let asking = tokio::spawn({
                let (service, seen, stop) = (service.clone(), Arc::clone(&seen), stop.clone());
                async move {
                    for id in (0..INSTANCES).filter(|id| !seen[*id].done.load(Ordering::SeqCst)) {
                        // The term may not have begun yet.
                        while let Err(GetOrCreateError::Unavailable(_)) = service.get_or_create(id, 0).await
                            && !stop.is_cancelled()
                        {
                            tokio::task::yield_now().await;
                        }
                    }
                }
            });
            // Terms of several lengths, with at least one step in each.
            let before = steps();
            let ending = async {
                while steps() == before && !all_done() {
                    tokio::task::yield_now().await;
                }
                for _ in 0..terms % 7 * 100 {
                    tokio::task::yield_now().await;
                }
                stop.cancel();
            };
            let (led, ()) = tokio::join!(registry.lead(standing, stop.clone()), ending);
            led.unwrap();
            assert!(seen.iter().all(|seen| !seen.running.load(Ordering::SeqCst)), "not joined");
            leadership.release().await;
            asking.await.unwrap();
        }
        assert!(seen.iter().all(|seen| seen.steps.load(Ordering::SeqCst) == STEPS));
        assert!(terms >= STEPS / STEPS_A_TERM);
        elections.cleanup().await;
    });
}
