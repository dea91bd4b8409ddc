//! Calls to a service: answered while it runs, delayed while it is rebuilt, refused otherwise.

use crate::rig::{Steps, in_term, release, run};
use futures_util::FutureExt;
use ielections::testing::mock::{Fault::Hang, Verb::ScanDocuments};
use primary_only::{GetOrCreateError, Unavailable};

#[test]
fn calls_are_refused_before_and_after_a_term() {
    run(async |cluster| {
        let process = cluster.process("a");
        let every_call_is_refused = async || {
            let x = "x".to_owned();
            let refused = process.service.get_or_create(x.clone(), Steps::new()).await.unwrap_err();
            assert!(matches!(refused, GetOrCreateError::Unavailable(Unavailable::NotLeader)));
            assert!(matches!(process.service.lookup(&x).await, Err(Unavailable::NotLeader)));
            assert!(matches!(process.service.get_all().await, Err(Unavailable::NotLeader)));
        };
        every_call_is_refused().await;
        assert!(process.probe.journal.lines().is_empty());
        let term = process.lead().await;
        for id in ["b", "a", "c"] {
            process.persisted(id).await;
        }
        let all = process.service.get_all().await.unwrap();
        assert_eq!(all.iter().map(|instance| instance.id().as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
        term.end().await.unwrap();
        every_call_is_refused().await;
    });
}

#[test]
fn call_during_a_rebuild_is_dropped_or_ends_with_the_term() {
    run(async |cluster| {
        let process = cluster.process("a");
        process.documents.fail_always(ScanDocuments, Hang);
        let term = process.lead().await;
        process.wait_for_scans(1).await;
        let x = "x".to_owned();
        let ask = || process.service.get_or_create(x.clone(), Steps::new());
        assert!(process.service.lookup(&x).now_or_never().is_none());
        assert!(process.service.get_all().now_or_never().is_none());
        assert!(ask().now_or_never().is_none());
        let (found, created, ended) = tokio::join!(process.service.lookup(&x), ask(), term.end());
        assert!(matches!(found, Err(Unavailable::NotLeader)));
        assert!(matches!(created, Err(GetOrCreateError::Unavailable(Unavailable::NotLeader))));
        ended.unwrap();
        assert_eq!(process.probe.journal.count("x runs"), 0);
    });
}

#[test]
fn call_that_waits_through_the_end_of_a_term_fails_in_the_next() {
    run(async |cluster| {
        let process = cluster.process("a");
        process.documents.fail_always(ScanDocuments, Hang);
        let first = process.lead().await;
        process.wait_for_scans(1).await;
        let asked = process.service.get_all();
        tokio::pin!(asked);
        assert!(asked.as_mut().now_or_never().is_none());
        first.end().await.unwrap();
        let second = process.lead().await;
        process.wait_for_scans(2).await;
        // It was not polled between the terms.
        assert!(matches!(asked.await, Err(Unavailable::NotLeader)));
        release(&process.documents, ScanDocuments).await;
        assert!(process.service.get_all().await.unwrap().is_empty());
        second.end().await.unwrap();
    });
}

#[test]
fn end_of_rebuild_wakes_waiting_calls() {
    run(async |cluster| {
        let process = cluster.process("a");
        process.documents.fail_always(ScanDocuments, Hang);
        let term = process.lead().await;
        process.wait_for_scans(1).await;
        let (x, y) = ("x".to_owned(), "y".to_owned());
        let (found, all, created, ()) = tokio::join!(
            process.service.lookup(&x),
            process.service.get_all(),
            process.service.get_or_create(y, Steps::new()),
            async {
                tokio::task::yield_now().await;
                release(&process.documents, ScanDocuments).await;
            },
        );
        assert!(found.unwrap().is_none());
        assert!(all.unwrap().len() <= 1);
        assert!(created.unwrap().created);
        term.end().await.unwrap();
    });
}

#[test]
fn other_request_under_the_same_id_is_refused() {
    run(async |cluster| {
        let process = cluster.process("a");
        let term = process.lead().await;
        let ask = |request| process.service.get_or_create("x".into(), Steps::requesting(request));
        assert!(ask("copy").await.unwrap().created);
        assert!(!ask("copy").await.unwrap().created);
        let refused = ask("move").await.unwrap_err();
        assert!(matches!(&refused, GetOrCreateError::AnotherRequest(id) if id == "x"));
        term.end().await.unwrap();

        let term = process.lead().await;
        assert!(matches!(ask("move").await, Err(GetOrCreateError::AnotherRequest(_))));
        assert!(!ask("copy").await.unwrap().created);
        term.end().await.unwrap();
    });
}

#[test]
fn service_whose_code_panics_in_a_call_continues() {
    in_term(async |_, process, _| {
        let service = process.service.clone();
        let asked =
            tokio::spawn(
                async move { service.get_or_create("x".into(), Steps::requesting("to panic")).await },
            );
        assert!(asked.await.unwrap_err().is_panic());
        assert!(process.service.get_or_create("x".into(), Steps::new()).await.unwrap().created);
    });
}

#[test]
fn instance_that_is_refused_is_not_listed() {
    in_term(async |_, process, term| {
        process.new_instance("x").await;
        let too_long = "y".repeat(term.standing().documents().unwrap().limits().max_id_bytes);
        let refused = [
            ("y", "alone", "conflicts with another instance: x is there"),
            ("y", "not to be built", "no instance was made: not to be built"),
            (&too_long, "", "an id of"),
        ];
        for (id, request, why) in refused {
            let refusal = process.service.get_or_create(id.into(), Steps::requesting(request)).await;
            let refusal = refusal.unwrap_err().to_string();
            assert!(refusal.starts_with(why), "{refusal}");
            assert!(process.found(id).await.is_none());
        }
        assert!(!process.service.get_or_create("x".into(), Steps::new()).await.unwrap().created);
        assert!(process.service.get_or_create("y".into(), Steps::new()).await.unwrap().created);
    });
}
