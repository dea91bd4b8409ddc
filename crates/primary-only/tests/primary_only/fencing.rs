//! Fencing: a write of a deposed leader is refused, ends its term, and is not repeated. The result that an
//! instance receives for a write is true.

use crate::rig::{Steps, depose, release, run};
use async_trait::async_trait;
use ielections::{
    Candidacy, Elections, Env, Holder, Terms, Ttl,
    testing::mock::{
        Fault::{Hang, LostAnswer, LostRequest, NotApplied},
        Verb::{FenceState, WriteDocuments},
    },
};
use primary_only::{
    BoxError, Deposed, GetOrCreateError, Interrupted, LeadError, Outcome, RegistryBuilder, RegistryConfig,
    RunContext, Service, StateError, Task, Unavailable,
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use tokio_util::sync::CancellationToken;
use vvm_clock::{Clock, SystemClock};
use vvm_deadman::{Deadman, recording::RecordingTrigger};
use vvm_storage::{ElectionsTtlStorage, mem::MemDatabase};

/// Shows I2.
#[test]
fn refused_write_of_a_deposed_leader_ends_its_term_at_once() {
    run(async |cluster| {
        let process = cluster.process("a");
        process.probe.act("x", |mut cx, probe| async move {
            cx.state.insert().await?;
            probe.go.wait("deposed").await;
            for _ in 0..3 {
                let next = cx.state.doc().next();
                let Err(error) = cx.state.update(next).await else { panic!("written") };
                assert!(matches!(error, StateError::Deposed(_)), "{error}");
                assert!(cx.stop.is_cancelled());
                probe.journal.write("x is deposed");
            }
            // A run that ignores the error does no harm.
            Ok(())
        });
        let mut term = process.lead().await;
        for id in ["x", "y"] {
            let instance = process.service.get_or_create(id.into(), Steps::new()).await.unwrap().handle;
            instance.persisted().await.unwrap();
        }
        let other = process.found("y").await.unwrap();
        let writes = process.documents.count(WriteDocuments);
        depose(&cluster).await;
        let before = cluster.documents().await;
        process.probe.go.give("deposed");
        // The test does not cancel `stop`.
        let led = (&mut term.led).await.unwrap();
        assert_eq!(led, Err(LeadError::Deposed(Deposed { current: None })));
        assert!(matches!(other.completed().await, Outcome::Interrupted));
        assert!(matches!(process.service.get_all().await, Err(Unavailable::NotLeader)));
        assert_eq!(process.probe.journal.count("x is deposed"), 3);
        // The storage receives no second write.
        assert!(process.documents.count(WriteDocuments) <= writes + 1);
        assert_eq!(cluster.documents().await, before);
        term.leadership.release().await;
    });
}

/// Shows I2.
#[test]
fn late_write_of_a_deposed_leader_is_refused_after_take_over() {
    run(async |cluster| {
        let [old, new] = ["a", "b"].map(|name| cluster.process(name));
        old.probe.act("x", |mut cx, probe| async move {
            cx.state.insert().await?;
            probe.go.wait("write").await;
            let next = Steps { taken: 999, ..Steps::new() };
            let written = cx.state.update(next).await;
            probe.journal.write("x wrote");
            Ok(written?)
        });
        let term = old.lead().await;
        let instance = old.persisted("x").await;
        old.documents.fail_always(WriteDocuments, Hang);
        old.probe.go.give("write");
        tokio::task::yield_now().await;
        depose(&cluster).await;
        let successor = new.lead().await;
        assert!(new.found("x").await.is_some());
        let before = cluster.documents().await;
        release(&old.documents, WriteDocuments).await;
        old.probe.journal.shows("x wrote", 1).await;
        assert_eq!(cluster.documents().await, before);
        assert!(matches!(instance.completed().await, Outcome::Interrupted));
        successor.end().await.unwrap();
        drop(term.end().await);
    });
}

/// Shows I7.
#[test]
fn write_with_lost_answer_is_found_by_read_back_and_not_repeated() {
    run(async |cluster| {
        let process = cluster.process("a");
        process.probe.act("x", |mut cx, probe| async move {
            cx.state.insert().await?;
            for step in 1..=5 {
                let next = cx.state.doc().next();
                cx.state.update(next).await?;
                assert_eq!(cx.state.doc().taken, step);
            }
            probe.go.wait("delete").await;
            Ok(cx.state.delete().await?)
        });
        for fault in [LostAnswer, LostRequest, NotApplied, LostAnswer, LostAnswer, LostRequest] {
            process.documents.fail_next(WriteDocuments, fault);
        }
        let term = process.lead().await;
        let instance = process.persisted("x").await;
        for fault in [LostAnswer, LostRequest, LostRequest] {
            process.documents.fail_next(WriteDocuments, fault);
        }
        process.probe.go.give("delete");
        let outcome = instance.completed().await;
        assert!(outcome.is_completed(), "{outcome}");
        assert!(cluster.documents().await.is_empty());
        assert!(process.found("x").await.is_none());
        term.end().await.unwrap();
    });
}

#[test]
fn write_in_doubt_for_a_minute_is_resolved() {
    run(async |cluster| {
        let process = cluster.process("a");
        process.probe.act("x", |mut cx, probe| async move {
            cx.state.insert().await?;
            probe.go.wait("update").await;
            let next = cx.state.doc().next();
            cx.state.update(next).await?;
            probe.go.wait("delete").await;
            Ok(cx.state.delete().await?)
        });
        let term = process.lead().await;
        let instance = process.persisted("x").await;
        for signal in ["update", "delete"] {
            process.documents.fail_next(WriteDocuments, LostAnswer);
            process.documents.fail_always(FenceState, NotApplied);
            process.probe.go.give(signal);
            // Longer than the document writer itself tries to resolve the write.
            cluster.sleep(60).await;
            assert!(instance.outcome().is_none());
            process.documents.pass_always(FenceState);
            cluster.sleep(60).await;
        }
        let outcome = instance.completed().await;
        assert!(outcome.is_completed(), "{outcome}");
        assert!(cluster.documents().await.is_empty());
        term.end().await.unwrap();
    });
}

#[test]
fn dropped_write_is_finished_before_the_next_write() {
    run(async |cluster| {
        let process = cluster.process("a");
        let probe = process.probe.clone();
        let documents = std::sync::Arc::clone(&process.documents);
        process.probe.act("x", move |mut cx, _| {
            let (go, documents) = (probe.go.clone(), documents.clone());
            async move {
                cx.state.insert().await?;
                documents.fail_always(WriteDocuments, Hang);
                let next = cx.state.doc().next();
                tokio::select! {
                    biased;
                    _ = cx.state.update(next) => panic!("not held"),
                    () = go.wait("dropped") => {}
                }
                release(&documents, WriteDocuments).await;
                let next = Steps { taken: 10, ..Steps::new() };
                cx.state.update(next).await?;
                Ok(())
            }
        });
        let term = process.lead().await;
        let instance = process.persisted("x").await;
        process.probe.go.give("dropped");
        let outcome = instance.completed().await;
        assert!(outcome.is_completed(), "{outcome}");
        assert!(cluster.documents().await[0].body.ends_with(b"{\"taken\":10,\"request\":\"\"}"));
        term.end().await.unwrap();
    });
}

#[test]
fn write_dropped_by_a_panicking_run_is_finished_before_the_instance_ends() {
    run(async |cluster| {
        let process = cluster.process("a");
        let documents = std::sync::Arc::clone(&process.documents);
        let probe = process.probe.clone();
        process.probe.act("x", move |mut cx, _| {
            let (go, documents) = (probe.go.clone(), documents.clone());
            async move {
                cx.state.insert().await?;
                documents.fail_always(WriteDocuments, Hang);
                tokio::select! {
                    biased;
                    _ = cx.state.delete() => panic!("not held"),
                    () = go.wait("leave") => {}
                }
                panic!("during a write")
            }
        });
        let term = process.lead().await;
        let instance = process.persisted("x").await;
        process.probe.go.give("leave");
        cluster.sleep(1).await;
        assert!(instance.outcome().is_none());
        release(&process.documents, WriteDocuments).await;
        assert!(matches!(instance.completed().await, Outcome::Panicked(_)));
        assert!(cluster.documents().await.is_empty());
        assert!(process.found("x").await.is_none());
        term.end().await.unwrap();
    });
}

#[test]
fn interrupted_run_may_still_write_its_document() {
    run(async |cluster| {
        let process = cluster.process("a");
        process.probe.act("x", |mut cx, _| async move {
            cx.state.insert().await?;
            cx.stop.cancelled().await;
            let next = cx.state.doc().next();
            cx.state.update(next).await?;
            Err(primary_only::Interrupted.into())
        });
        let term = process.lead().await;
        process.persisted("x").await;
        term.end().await.unwrap();
        assert!(cluster.documents().await[0].body.ends_with(b"{\"taken\":1,\"request\":\"\"}"));
    });
}

/// Shows I10.
#[test]
fn write_that_never_succeeds_ends_with_the_term() {
    run(async |cluster| {
        let process = cluster.process("a");
        process.probe.act("x", |mut cx, probe| async move {
            let refused = cx.state.insert().await;
            assert!(
                matches!(refused, Err(StateError::OutOfTime { .. } | StateError::Lost(_))),
                "{refused:?}"
            );
            probe.journal.write("x gave up");
            Ok(refused?)
        });
        process.documents.fail_always(WriteDocuments, NotApplied);
        let term = process.lead().await;
        let instance = process.new_instance("x").await;
        cluster.sleep(60).await;
        assert_eq!(process.probe.journal.count("x gave up"), 0);
        term.end().await.unwrap();
        assert_eq!(process.probe.journal.count("x gave up"), 1);
        assert!(matches!(instance.completed().await, Outcome::Interrupted));
        assert!(cluster.documents().await.is_empty());
    });
}

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
