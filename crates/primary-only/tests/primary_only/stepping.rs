//! Terms: each begins once, and interrupts what runs when it ends.

use crate::{
    probe::{Steps, hold},
    rig::run,
};
use ielections::Loss;
use primary_only::{Interrupted, LeadError, NotPersisted, Outcome, ServiceState, Unavailable};

#[test]
fn cancellation_on_step_down() {
    run(async |cluster| {
        let process = cluster.process("a");
        let reign = process.lead().await;
        let instance = process.service.get_or_create("x".into(), Steps::new()).await.unwrap().handle;
        instance.persisted().await.unwrap();
        assert!(instance.outcome().is_none());
        reign.end().await.unwrap();
        assert!(matches!(instance.completed().await, Outcome::Interrupted));
        assert_eq!(process.probe.journal.lines(), ["prepares", "x runs", "x ends"]);
    });
}

#[test]
fn a_new_term_is_not_cancelled_and_completes_successfully() {
    run(async |cluster| {
        let process = cluster.process("a");
        let probe = process.probe.clone();
        process.probe.act("x", move |mut cx| {
            let go = probe.go.clone();
            async move {
                cx.state.insert().await?;
                tokio::select! {
                    biased;
                    () = cx.stop.cancelled() => return Err(Interrupted.into()),
                    () = go.wait("x") => {}
                }
                Ok(cx.state.delete().await?)
            }
        });
        let first = process.lead().await;
        let instance = process.service.get_or_create("x".into(), Steps::new()).await.unwrap().handle;
        instance.persisted().await.unwrap();
        first.end().await.unwrap();
        assert!(matches!(instance.completed().await, Outcome::Interrupted));

        let second = process.lead().await;
        let instance = process.service.lookup(&"x".into()).await.unwrap().unwrap();
        process.probe.go.give("x");
        assert!(instance.completed().await.is_completed());
        assert!(cluster.documents().await.is_empty());
        second.end().await.unwrap();
    });
}

#[test]
fn a_new_term_is_not_cancelled_until_it_steps_down() {
    run(async |cluster| {
        let process = cluster.process("a");
        let first = process.lead().await;
        let instance = process.service.get_or_create("x".into(), Steps::new()).await.unwrap().handle;
        instance.persisted().await.unwrap();
        first.end().await.unwrap();

        let second = process.lead().await;
        let again = process.service.lookup(&"x".into()).await.unwrap().unwrap();
        assert!(!again.is(&instance));
        process.probe.journal.shows("x runs", 2).await;
        assert!(again.outcome().is_none());
        second.end().await.unwrap();
        assert!(matches!(again.completed().await, Outcome::Interrupted));
    });
}

#[test]
fn step_down_before_persisted() {
    run(async |cluster| {
        let process = cluster.process("a");
        process.probe.act("x", |cx| async move {
            cx.stop.cancelled().await;
            Err(Interrupted.into())
        });
        let first = process.lead().await;
        let instance = process.service.get_or_create("x".into(), Steps::new()).await.unwrap().handle;
        process.probe.journal.shows("x runs", 1).await;
        first.end().await.unwrap();
        assert!(matches!(instance.persisted().await, Err(NotPersisted(Outcome::Interrupted))));
        assert!(matches!(instance.completed().await, Outcome::Interrupted));

        // Nothing of it is left.
        let second = process.lead().await;
        assert!(process.service.lookup(&"x".into()).await.unwrap().is_none());
        second.end().await.unwrap();
    });
}

#[test]
fn an_instance_whose_term_ends_before_its_turn_is_never_run() {
    run(async |cluster| {
        let process = cluster.process_with("a", crate::probe::Probe::at_most(1));
        let reign = process.lead().await;
        let first = process.service.get_or_create("first".into(), Steps::new()).await.unwrap().handle;
        first.persisted().await.unwrap();
        let second = process.service.get_or_create("second".into(), Steps::new()).await.unwrap().handle;
        reign.end().await.unwrap();
        assert!(matches!(second.completed().await, Outcome::Interrupted));
        assert!(matches!(second.persisted().await, Err(NotPersisted(Outcome::Interrupted))));
        assert_eq!(process.probe.journal.count("second runs"), 0);
    });
}

#[test]
fn a_term_goes_through_its_states_once() {
    run(async |cluster| {
        let process = cluster.process("a");
        let state = || process.service.status().state;
        assert!(matches!(state(), ServiceState::Paused));
        process.documents.hold_scans(true);
        let reign = process.lead().await;
        process.documents.scans(1).await;
        assert!(matches!(state(), ServiceState::Rebuilding));
        process.documents.hold_scans(false);
        process.service.get_all().await.unwrap();
        assert!(matches!(state(), ServiceState::Running));
        reign.end().await.unwrap();
        assert!(matches!(state(), ServiceState::Paused));
        assert_eq!(process.probe.journal.lines(), ["prepares"]);
    });
}

#[test]
fn a_leadership_is_no_two_terms() {
    run(async |cluster| {
        let process = cluster.process("a");
        let reign = process.lead().await;
        process.service.get_all().await.unwrap();
        let standing = reign.standing().clone();
        let again = process.registry.lead(standing.clone(), reign.stop.clone()).await;
        assert_eq!(again, Err(LeadError::Leading));
        reign.stop.cancel();
        let led = reign.led.await.unwrap();
        assert_eq!(led, Ok(()));
        let again = process.registry.lead(standing, reign.stop).await;
        assert_eq!(again, Err(LeadError::SameTerm));
        reign.leadership.release().await;
        assert_eq!(process.probe.journal.count("prepares"), 1);
    });
}

#[test]
fn a_term_that_follows_at_once_finds_nothing_of_the_one_before() {
    run(async |cluster| {
        let process = cluster.process("a");
        for term in 1..=50 {
            let reign = process.lead().await;
            if term % 3 == 0 {
                // Ended before it was rebuilt.
                reign.end().await.unwrap();
                continue;
            }
            let got = process.service.get_or_create("x".into(), Steps::new()).await.unwrap();
            assert_eq!(got.created, term == 1);
            got.handle.persisted().await.unwrap();
            if term % 2 == 0 {
                process.probe.journal.shows("x runs", 1).await;
            }
            reign.end().await.unwrap();
            assert_eq!(process.tasks.runners(), 0);
        }
        let (runs, ends) = (process.probe.journal.count("x runs"), process.probe.journal.count("x ends"));
        assert!(runs > 1);
        assert_eq!(runs, ends);
        assert_eq!(cluster.documents().await.len(), 1);
    });
}

#[test]
fn each_slot_has_documents_of_its_own() {
    run(async |cluster| {
        let process = cluster.process("a");
        let first = process.lead_slot(1).await;
        let instance = process.service.get_or_create("x".into(), Steps::new()).await.unwrap().handle;
        instance.persisted().await.unwrap();
        first.end().await.unwrap();

        let other = process.lead_slot(2).await;
        assert!(process.service.get_all().await.unwrap().is_empty());
        let created = process.service.get_or_create("x".into(), Steps::new()).await.unwrap();
        assert!(created.created);
        created.handle.persisted().await.unwrap();
        other.end().await.unwrap();

        let first = process.lead_slot(1).await;
        assert_eq!(process.service.get_all().await.unwrap().len(), 1);
        first.end().await.unwrap();
    });
}

#[test]
fn a_loss_interrupts_by_whoever_watches_the_leadership() {
    run(async |cluster| {
        let process = cluster.process("a");
        process.probe.act("x", hold);
        let leadership = process.acquire(1).await;
        let registry = process.registry.clone();
        let ran =
            tokio::spawn(leadership.run(|stop, standing| async move { registry.lead(standing, stop).await }));
        let instance = process.created("x").await;
        instance.persisted().await.unwrap();
        crate::rig::usurp(&cluster).await;
        let ran = ran.await.unwrap();
        assert!(matches!(ran.loss, Some(Loss::Vanished)), "{:?}", ran.loss);
        assert_eq!(ran.output, Ok(()));
        assert!(matches!(instance.completed().await, Outcome::Interrupted));
        assert!(matches!(process.service.get_all().await, Err(Unavailable::NotLeader)));
    });
}

/// Shows I9.
#[test]
fn nothing_is_left_after_a_term() {
    run(async |cluster| {
        let process = cluster.process("a");
        let reign = process.lead().await;
        for id in 0..20 {
            process.service.get_or_create(id.to_string(), Steps::new()).await.unwrap();
        }
        process.probe.journal.shows("19 runs", 1).await;
        assert_eq!(process.tasks.runners(), 20);
        reign.end().await.unwrap();
        assert_eq!(process.tasks.runners(), 0);
        process.elections.cleanup().await;
        process.tasks.all_end().await;
        assert_eq!(cluster.clock.sleepers(), 0);
    });
}
