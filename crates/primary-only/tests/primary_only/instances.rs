//! Instances: each runs once, ends on every path, and is listed only while its document exists.

use crate::rig::{Probe, ProbeTask, Steps, in_term, run};
use async_trait::async_trait;
use primary_only::{
    BoxError, InstanceState, NotPersisted, Outcome, RegisterError, RegistryBuilder, RegistryConfig, Service,
    StateError,
};

#[test]
fn basic_create_instance() {
    in_term(async |cluster, process, _| {
        process.probe.act("x", |mut cx, _| async move {
            assert!(!cx.state.is_persisted());
            cx.state.insert().await?;
            assert!(cx.state.is_persisted());
            while cx.state.doc().taken < 3 {
                let next = cx.state.doc().next();
                cx.state.update(next).await?;
            }
            Ok(())
        });
        let got = process.service.get_or_create("x".into(), Steps::new()).await.unwrap();
        assert!(got.created);
        assert!(got.handle.completed().await.is_completed());
        got.handle.persisted().await.unwrap();
        let documents = cluster.documents().await;
        assert_eq!(documents.len(), 1);
        assert_eq!(documents[0].id.as_bytes(), b"primary-only/probe\0x");
        assert_eq!(&documents[0].body[..], b"\x01\x00\x00\x00\x01{\"taken\":3,\"request\":\"\"}");
    });
}

#[test]
fn double_create_instance() {
    run(async |cluster| {
        let process = cluster.process("a");
        let term = process.lead().await;
        let ask = || process.service.get_or_create("x".into(), Steps::new());
        let (one, two) = tokio::join!(ask(), ask());
        let (one, two) = (one.unwrap(), two.unwrap());
        assert!(one.created && !two.created);
        assert!(one.handle.is(&two.handle));
        assert!(process.found("x").await.unwrap().is(&one.handle));
        assert!(process.found("y").await.is_none());
        one.handle.persisted().await.unwrap();
        term.end().await.unwrap();
        assert_eq!(process.probe.journal.count("x runs"), 1);
    });
}

#[test]
fn instance_that_fails_before_its_document_exists_is_not_listed() {
    in_term(async |_, process, _| {
        process.probe.act("x", |_, _| async { Err("no luck".into()) });
        let ask = || process.service.get_or_create("x".into(), Steps::new());
        let instance = ask().await.unwrap().handle;
        let failed = instance.completed().await;
        assert!(matches!(&failed, Outcome::Failed(failure) if failure.to_string() == "no luck"));
        assert!(matches!(instance.persisted().await, Err(NotPersisted(Outcome::Failed(_)))));
        assert!(process.found("x").await.is_none());
        assert!(ask().await.unwrap().created);
    });
}

#[test]
fn failed_instance_with_a_document_stays_listed_and_runs_in_the_next_term() {
    run(async |cluster| {
        let process = cluster.process("a");
        process.probe.act("x", |mut cx, _| async move {
            let resumed = cx.state.is_persisted();
            cx.state.insert().await?;
            if resumed { Ok(cx.state.delete().await?) } else { Err("no luck".into()) }
        });
        let term = process.lead().await;
        let instance = process.new_instance("x").await;
        assert!(matches!(instance.completed().await, Outcome::Failed(_)));
        let again = process.service.get_or_create("x".into(), Steps::new()).await.unwrap();
        assert!(!again.created && again.handle.is(&instance));
        assert_eq!(process.probe.journal.count("x runs"), 1);
        term.end().await.unwrap();

        let term = process.lead().await;
        if let Some(instance) = process.service.lookup(&"x".into()).await.unwrap() {
            assert!(instance.completed().await.is_completed());
        }
        assert_eq!(process.probe.journal.count("x runs"), 2);
        assert!(cluster.documents().await.is_empty());
        term.end().await.unwrap();
    });
}

#[test]
fn panic_ends_its_instance_and_no_other() {
    run(async |cluster| {
        let process = cluster.process("a");
        process.probe.act("x", |_, _| async { panic!("planted") });
        let term = process.lead().await;
        let other = process.new_instance("y").await;
        let instance = process.new_instance("x").await;
        let panicked = instance.completed().await;
        assert!(matches!(&panicked, Outcome::Panicked(message) if &**message == "planted"));
        assert!(matches!(instance.persisted().await, Err(NotPersisted(Outcome::Panicked(_)))));
        assert!(process.found("x").await.is_none());
        other.persisted().await.unwrap();
        assert!(other.outcome().is_none());
        term.end().await.unwrap();
        assert!(matches!(other.completed().await, Outcome::Interrupted));
    });
}

#[test]
fn instance_runs_on_unlisted_after_it_deletes_its_document() {
    in_term(async |cluster, process, _| {
        process.probe.act("x", |mut cx, probe| async move {
            cx.state.insert().await?;
            cx.state.delete().await?;
            probe.journal.write("x tidies up");
            assert!(!cx.stop.is_cancelled());
            probe.go.wait("tidy").await;
            Ok(())
        });
        let instance = process.new_instance("x").await;
        process.probe.journal.shows("x tidies up", 1).await;
        assert!(process.found("x").await.is_none());
        assert!(instance.outcome().is_none());

        // A new instance of the id is another one, and runs only after the first has ended.
        let next = process.service.get_or_create("x".into(), Steps::new()).await.unwrap();
        assert!(next.created && !next.handle.is(&instance));
        cluster.sleep(60).await;
        assert_eq!(process.probe.journal.count("x runs"), 1);
        assert_eq!(next.handle.status().state, InstanceState::Waiting);
        let status = process.service.status();
        assert_eq!((status.instances, status.running, status.waiting), (1, 1, 1));
        process.probe.go.give("tidy");
        assert!(instance.completed().await.is_completed());
        assert!(next.handle.completed().await.is_completed());
        let lines = process.probe.journal.lines();
        assert_eq!(lines[1..], ["x runs", "x tidies up", "x ends", "x runs", "x tidies up", "x ends"]);
    });
}

#[test]
fn state_cell_refuses_writes_that_do_not_fit_its_document() {
    in_term(async |cluster, process, _| {
        process.probe.act("x", |mut cx, _| async move {
            assert!(matches!(cx.state.update(Steps::new()).await, Err(StateError::NotInserted)));
            assert!(matches!(cx.state.delete().await, Err(StateError::NotInserted)));
            cx.state.insert().await?;
            cx.state.insert().await?;
            let huge =
                Steps::requesting(&"x".repeat(cx.standing.documents().unwrap().limits().max_body_bytes));
            assert!(matches!(cx.state.update(huge).await, Err(StateError::TooLarge(_))));
            assert_eq!(cx.state.doc(), &Steps::new());
            cx.state.delete().await?;
            assert!(matches!(cx.state.delete().await, Err(StateError::Deleted)));
            assert!(matches!(cx.state.insert().await, Err(StateError::Deleted)));
            Ok(())
        });
        let instance = process.new_instance("x").await;
        let outcome = instance.completed().await;
        assert!(outcome.is_completed(), "{outcome}");
        assert!(cluster.documents().await.is_empty());
    });
}

#[test]
fn update_of_a_document_with_another_writer_is_a_conflict() {
    run(async |cluster| {
        let process = cluster.process("a");
        process.probe.act("x", |mut cx, probe| async move {
            cx.state.insert().await?;
            probe.go.wait("written").await;
            let next = cx.state.doc().next();
            match cx.state.update(next).await {
                Err(StateError::Conflict { found: Some(_) }) => Err("a conflict".into()),
                other => Err(format!("{other:?}").into()),
            }
        });
        let term = process.lead().await;
        let instance = process.persisted("x").await;
        process.put(term.standing(), b"primary-only/probe\0x", b"mine").await;
        process.probe.go.give("written");
        let outcome = instance.completed().await;
        assert_eq!(outcome.to_string(), "failed: a conflict");
        assert_eq!(&cluster.documents().await[0].body[..], b"mine");
        term.end().await.unwrap();
    });
}

struct Renamed;

impl Service for Renamed {
    type Id = String;
    type Doc = Steps;
    type Task = ProbeTask;

    const NAME: &'static str = "renamed";
    const COLLECTION: &'static str = Probe::NAME;

    fn build(&self, id: &String, doc: &Steps) -> Result<ProbeTask, BoxError> {
        Probe::default().build(id, doc)
    }
}

struct Nameless;

#[async_trait]
impl Service for Nameless {
    type Id = String;
    type Doc = Steps;
    type Task = ProbeTask;

    const NAME: &'static str = "nameless";
    const COLLECTION: &'static str = "";

    fn build(&self, id: &String, doc: &Steps) -> Result<ProbeTask, BoxError> {
        Probe::default().build(id, doc)
    }
}

#[test]
fn double_register_service() {
    run(async |cluster| {
        let process = cluster.process("a");
        let mut builder = RegistryBuilder::new(RegistryConfig::new(&process.env));
        builder.register(Probe::default()).unwrap();
        assert_eq!(builder.register(Probe::default()).unwrap_err(), RegisterError::Name("probe"));
        assert_eq!(builder.register(Renamed).unwrap_err(), RegisterError::Collection("probe"));
        assert!(matches!(builder.register(Nameless).unwrap_err(), RegisterError::NotACollection(_)));
        let services: Vec<_> = builder.build().status().iter().map(|status| status.service).collect();
        assert_eq!(services, ["probe"]);
    });
}
