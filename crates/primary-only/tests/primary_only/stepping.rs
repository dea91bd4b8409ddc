//! Terms: each begins once, and interrupts all instances when it ends.

use crate::rig::{Steps, in_term, run};
use ielections::{
    Candidacy, Elections, Holder, Terms, Ttl,
    testing::{
        MockTtlStorage,
        mock::{Fault, Verb},
    },
};
use primary_only::{LeadError, NotPersisted, Outcome, TermInterrupted};
use std::sync::Arc;

#[test]
fn instance_completes_in_the_term_after_an_interruption() {
    run(async |cluster| {
        let process = cluster.process("a");
        process.probe.act("x", |mut cx, probe| async move {
            cx.state.insert().await?;
            tokio::select! {
                biased;
                () = cx.stop.cancelled() => return Err(TermInterrupted.into()),
                () = probe.go.wait("x") => {}
            }
            Ok(cx.state.delete().await?)
        });
        let first = process.lead().await;
        let instance = process.persisted("x").await;
        first.end().await.unwrap();
        assert!(matches!(instance.completed().await, Outcome::Interrupted));

        let second = process.lead().await;
        let instance = process.found("x").await.unwrap();
        process.probe.go.give("x");
        assert!(instance.completed().await.is_completed());
        assert!(cluster.documents().await.is_empty());
        second.end().await.unwrap();
    });
}

#[test]
fn step_down_before_persisted() {
    run(async |cluster| {
        let process = cluster.process("a");
        process.probe.act("x", |cx, _| async move {
            cx.stop.cancelled().await;
            Err(TermInterrupted.into())
        });
        let first = process.lead().await;
        let instance = process.new_instance("x").await;
        process.probe.journal.shows("x runs", 1).await;
        first.end().await.unwrap();
        assert!(matches!(instance.persisted().await, Err(NotPersisted(Outcome::Interrupted))));
        assert!(matches!(instance.completed().await, Outcome::Interrupted));

        let second = process.lead().await;
        assert!(process.found("x").await.is_none());
        second.end().await.unwrap();
    });
}

#[test]
fn instance_that_still_waits_when_the_term_ends_is_never_run() {
    run(async |cluster| {
        let process = cluster.process("a");
        process.probe.act("x", |mut cx, _| async move {
            cx.state.insert().await?;
            cx.state.delete().await?;
            cx.stop.cancelled().await;
            Err(TermInterrupted.into())
        });
        let term = process.lead().await;
        process.persisted("x").await;
        cluster.sleep(1).await;
        // The first one of this id has deleted its document, and runs on.
        let second = process.new_instance("x").await;
        cluster.sleep(1).await;
        term.end().await.unwrap();
        assert!(matches!(second.completed().await, Outcome::Interrupted));
        assert!(matches!(second.persisted().await, Err(NotPersisted(Outcome::Interrupted))));
        assert_eq!(process.probe.journal.count("x runs"), 1);
    });
}

#[test]
fn lead_is_refused_on_a_storage_without_documents() {
    run(async |cluster| {
        let process = cluster.process("a");
        let elections = Elections::new(Arc::new(MockTtlStorage::vacant()), process.env.clone());
        let terms = Terms::new(Holder::new("a").unwrap(), Ttl::DEFAULT);
        let (_, leadership) = elections.acquire(Candidacy { slots: vec![1], terms }).await.unwrap();
        let term = process.step_up(leadership).await;
        assert_eq!(term.end().await, Err(LeadError::NoDocuments));
    });
}

#[test]
fn lead_is_refused_twice_under_one_leadership() {
    run(async |cluster| {
        let process = cluster.process("a");
        let term = process.lead().await;
        process.service.get_all().await.unwrap();
        let standing = term.standing().clone();
        let again = process.registry.lead(standing.clone(), term.stop.clone()).await;
        assert_eq!(again, Err(LeadError::Leading));
        term.stop.cancel();
        let led = term.led.await.unwrap();
        assert_eq!(led, Ok(()));
        let again = process.registry.lead(standing, term.stop).await;
        assert_eq!(again, Err(LeadError::SameTerm));
        term.leadership.release().await;
        assert_eq!(process.probe.journal.count("prepares"), 1);
    });
}

#[test]
fn terms_in_quick_succession_leave_no_runner() {
    run(async |cluster| {
        let process = cluster.process("a");
        for number in 1..=50 {
            let term = process.lead().await;
            if number % 3 == 0 {
                term.end().await.unwrap();
                continue;
            }
            let got = process.service.get_or_create("x".into(), Steps::new()).await.unwrap();
            assert_eq!(got.created, number == 1);
            got.handle.persisted().await.unwrap();
            if number % 2 == 0 {
                process.probe.journal.shows("x runs", 1).await;
            }
            term.end().await.unwrap();
            assert_eq!(process.runners(), 0);
        }
        let (runs, ends) = (process.probe.journal.count("x runs"), process.probe.journal.count("x ends"));
        assert!(runs > 1);
        assert_eq!(runs, ends);
        assert_eq!(cluster.documents().await.len(), 1);
    });
}

/// Shows I6.
#[test]
fn loss_ends_a_term_that_is_not_stopped() {
    in_term(async |cluster, process, term| {
        process.persisted("x").await;
        process.documents.fail_always(Verb::CompareAndSwap, Fault::NotApplied);
        term.leadership.lost().await;
        cluster.sleep(1).await;
        assert!(term.led.is_finished());
        assert_eq!(process.probe.journal.count("x ends"), 1);
    });
}

/// Shows I9.
#[test]
fn no_task_or_timer_is_left_after_a_term() {
    run(async |cluster| {
        let process = cluster.process("a");
        let term = process.lead().await;
        for id in 0..20 {
            process.service.get_or_create(id.to_string(), Steps::new()).await.unwrap();
        }
        process.probe.journal.shows("19 runs", 1).await;
        assert_eq!(process.runners(), 20);
        term.end().await.unwrap();
        assert_eq!(process.runners(), 0);
        process.elections.cleanup().await;
        process.tasks.all_end().await;
        // That of the test itself.
        assert_eq!(cluster.clock.sleepers(), 1);
    });
}
