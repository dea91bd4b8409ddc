//! Fencing: a write of a deposed leader is refused, ends its term, and is not repeated. Results of writes are true.

use crate::rig::{Steps, depose, in_term, release, run};
use ielections::testing::mock::{
    Fault::{Hang, LostAnswer, NotApplied},
    Verb::{FenceState, WriteDocuments},
};
use primary_only::{LeadError, LeaderReplaced, Outcome, StateError, Unavailable};
use std::sync::Arc;

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
            Ok(())
        });
        let mut term = process.lead().await;
        for id in ["x", "y"] {
            process.persisted(id).await;
        }
        let other = process.found("y").await.unwrap();
        let writes = process.documents.count(WriteDocuments);
        depose(&cluster).await;
        let before = cluster.documents().await;
        process.probe.go.give("deposed");
        let led = (&mut term.led).await.unwrap();
        assert_eq!(led, Err(LeadError::Deposed(LeaderReplaced { current: None })));
        assert!(matches!(other.completed().await, Outcome::Interrupted));
        assert!(matches!(process.service.get_all().await, Err(Unavailable::NotLeader)));
        assert_eq!(process.probe.journal.count("x is deposed"), 3);
        assert!(process.documents.count(WriteDocuments) <= writes + 1);
        assert_eq!(cluster.documents().await, before);
        term.leadership.release().await;
    });
}

#[test]
fn write_in_doubt_for_a_minute_is_resolved() {
    in_term(async |cluster, process, _| {
        process.probe.act("x", |mut cx, probe| async move {
            cx.state.insert().await?;
            probe.go.wait("update").await;
            let next = cx.state.doc().next();
            cx.state.update(next).await?;
            probe.go.wait("delete").await;
            Ok(cx.state.delete().await?)
        });
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
    });
}

#[test]
fn dropped_write_is_finished_before_the_next_write() {
    for by_insert in [false, true] {
        run(async |cluster| {
            let process = cluster.process("a");
            let probe = process.probe.clone();
            let documents = Arc::clone(&process.documents);
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
                    if by_insert {
                        cx.state.insert().await?;
                    }
                    assert_eq!(cx.state.doc().taken, u64::from(by_insert));
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
}

#[test]
fn write_dropped_by_a_panicking_run_is_finished_before_the_instance_ends() {
    run(async |cluster| {
        let process = cluster.process("a");
        let documents = Arc::clone(&process.documents);
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

/// Shows I9.
#[test]
fn runtime_that_ends_during_a_write_leaves_nothing_of_the_service() {
    let left = std::cell::OnceCell::new();
    run(async |cluster| {
        let process = cluster.process("a");
        let probe = Arc::new(());
        assert!(left.set(Arc::downgrade(&probe)).is_ok());
        process.probe.act("x", move |mut cx, _| {
            let _ = &probe;
            async move { Ok(cx.state.insert().await?) }
        });
        process.documents.fail_always(WriteDocuments, Hang);
        let _term = process.lead().await;
        process.new_instance("x").await;
        process.called.until(|| process.documents.under_way() == 1).await;
    });
    assert_eq!(left.get().unwrap().strong_count(), 0);
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
            Err(primary_only::TermInterrupted.into())
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

#[test]
fn write_in_doubt_that_meets_the_write_of_another_is_a_conflict() {
    in_term(async |cluster, process, term| {
        let documents = std::sync::Arc::clone(&process.documents);
        process.probe.act("x", move |mut cx, probe| {
            let documents = documents.clone();
            async move {
                cx.state.insert().await?;
                documents.fail_always(WriteDocuments, Hang);
                let next = cx.state.doc().next();
                tokio::select! {
                    biased;
                    _ = cx.state.update(next) => panic!("not held"),
                    () = probe.go.wait("dropped") => {}
                }
                release(&documents, WriteDocuments).await;
                probe.journal.write("x is in doubt");
                probe.go.wait("written").await;
                let refused = cx.state.update(Steps { taken: 10, ..Steps::new() }).await;
                assert!(matches!(refused, Err(StateError::Conflict { found: Some(_) })), "{refused:?}");
                probe.journal.write("x is refused");
                Ok(())
            }
        });
        let instance = process.persisted("x").await;
        process.probe.go.give("dropped");
        process.probe.journal.shows("x is in doubt", 1).await;
        let stored = cluster.documents().await.remove(0);
        let other = [&stored.body[..], b" "].concat();
        process.put(term.standing(), stored.id.as_bytes(), &other).await;
        process.probe.go.give("written");
        instance.completed().await;
        assert_eq!(process.probe.journal.count("x is refused"), 1);
    });
}
