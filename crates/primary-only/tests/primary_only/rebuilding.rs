//! Each document becomes an instance or is quarantined. If documents can't be read, the service fails for the term.

use crate::rig::{Probe, Process, Steps, depose, release, run};
use ielections::testing::mock::{
    Fault::{Fatal, Hang, NotApplied},
    Verb::ScanDocuments,
};
use primary_only::{
    BoxError, GetOrCreateError, LeadError, Outcome, RegistryBuilder, RegistryConfig, RunContext,
    SchemaVersion, Service, ServiceHandle, ServiceState, Task, Unavailable,
};
use std::{
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Wake, Waker},
};

#[test]
fn recreate_instance_on_step_up() {
    run(async |cluster| {
        let process = cluster.process("a");
        process.probe.act("x", |mut cx, probe| async move {
            probe.journal.write(format!("x is at {}", cx.state.doc().taken));
            cx.state.insert().await?;
            let next = cx.state.doc().next();
            cx.state.update(next).await?;
            probe.journal.write("x took a step");
            cx.stop.cancelled().await;
            Err(primary_only::TermInterrupted.into())
        });
        for number in 0..3 {
            let term = process.lead().await;
            if number == 0 {
                process.new_instance("x").await;
            }
            process.probe.journal.shows("x took a step", number + 1).await;
            let instance = process.found("x").await.unwrap();
            instance.persisted().await.unwrap();
            assert_eq!(instance.status().report["began_with"], number);
            term.end().await.unwrap();
        }
        let at: Vec<_> =
            process.probe.journal.lines().into_iter().filter(|line| line.contains("at")).collect();
        assert_eq!(at, ["x is at 0", "x is at 1", "x is at 2"]);
    });
}

#[test]
fn step_down_before_rebuilding_instances() {
    run(async |cluster| {
        let process = cluster.process("a");
        let term = process.lead().await;
        process.persisted("x").await;
        term.end().await.unwrap();

        process.documents.fail_always(ScanDocuments, Hang);
        let term = process.lead().await;
        process.wait_for_scans(2).await;
        term.end().await.unwrap();
        assert!(matches!(process.service.status().state, ServiceState::NotLeading));
        assert_eq!(process.probe.journal.count("x runs"), 1);
        assert_eq!(process.runners(), 0);

        release(&process.documents, ScanDocuments).await;
        let term = process.lead().await;
        assert!(process.found("x").await.is_some());
        term.end().await.unwrap();
        assert_eq!(process.probe.journal.count("x runs"), 2);
    });
}

#[test]
fn term_that_ends_during_prepare_reads_no_documents() {
    run(async |cluster| {
        let process = cluster.process("a");
        let journal = process.probe.journal.clone();
        process.probe.prepare_by(move |cx| {
            let journal = journal.clone();
            async move {
                cx.stop.cancelled().await;
                journal.write("prepared");
                Ok(())
            }
        });
        let term = process.lead().await;
        process.probe.journal.shows("prepares", 1).await;
        term.end().await.unwrap();
        assert_eq!(process.probe.journal.lines(), ["prepares", "prepared"]);
        assert_eq!(process.documents.count(ScanDocuments), 0);
    });
}

#[test]
fn recreate_instances_fails() {
    run(async |cluster| {
        let process = cluster.process("a");
        process.documents.fail_next(ScanDocuments, Fatal);
        let term = process.lead().await;
        for _ in 0..2 {
            let failed = process.service.lookup(&"x".into()).await;
            assert!(matches!(failed, Err(Unavailable::RebuildFailed(_))), "{failed:?}");
            let failed = process.service.get_or_create("x".into(), Steps::new()).await;
            let failed = failed.unwrap_err();
            assert!(
                matches!(failed, GetOrCreateError::Unavailable(Unavailable::RebuildFailed(_))),
                "{failed}"
            );
            cluster.sleep(60).await;
        }
        let status = process.service.status();
        assert!(matches!(status.state, ServiceState::RebuildFailed(_)));
        let failure = status.failure.unwrap();
        assert!(failure.starts_with("its documents could not be read: "), "{failure}");
        term.end().await.unwrap();
        assert!(matches!(process.service.status().state, ServiceState::NotLeading));

        let term = process.lead().await;
        assert!(process.service.get_or_create("x".into(), Steps::new()).await.unwrap().created);
        term.end().await.unwrap();
    });
}

struct Look(ServiceHandle<Probe>, Mutex<Vec<ServiceState>>);

impl Wake for Look {
    fn wake(self: Arc<Self>) {
        self.1.lock().unwrap().push(self.0.status().state);
    }
}

#[test]
fn rebuild_that_ends_by_a_loss_has_not_failed() {
    run(async |cluster| {
        let process = cluster.process("a");
        let go = process.probe.go.clone();
        process.probe.prepare_by(move |_| {
            let go = go.clone();
            async move {
                go.wait("read").await;
                Ok(())
            }
        });
        let mut term = process.lead().await;
        let look = Arc::new(Look(process.service.clone(), Mutex::default()));
        let waker = Waker::from(Arc::clone(&look));
        let mut caller = pin!(process.service.get_all());
        assert!(caller.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        depose(&cluster).await;
        process.probe.go.give("read");
        assert!(matches!((&mut term.led).await.unwrap(), Err(LeadError::Deposed(_))));
        assert!(matches!(caller.await, Err(Unavailable::NotLeader)));
        let seen = look.1.lock().unwrap();
        assert!(matches!(seen[..], [ServiceState::NotLeading]), "another thread would have seen {seen:?}");
    });
}

#[test]
fn rebuild_service_fails() {
    run(async |cluster| {
        let process = cluster.process("a");
        process.probe.prepare_by(|_| async { Err("no index".into()) });
        let term = process.lead().await;
        let Err(Unavailable::RebuildFailed(failure)) = process.service.get_all().await else { panic!() };
        assert_eq!(failure.to_string(), "preparing it failed: no index");
        term.end().await.unwrap();

        process.probe.prepare_by(|_| async { panic!("no index at all") });
        let term = process.lead().await;
        let Err(Unavailable::RebuildFailed(failure)) = process.service.get_all().await else { panic!() };
        assert_eq!(failure.to_string(), "preparing it failed: it panicked: no index at all");
        term.end().await.unwrap();

        process.probe.prepare_by(|_| async { Ok(()) });
        let term = process.lead().await;
        assert!(process.service.get_all().await.unwrap().is_empty());
        term.end().await.unwrap();
    });
}

#[test]
fn read_of_an_unavailable_storage_is_repeated() {
    run(async |cluster| {
        let process = cluster.process("a");
        (0..100).for_each(|_| process.documents.fail_next(ScanDocuments, NotApplied));
        let term = process.lead().await;
        assert!(process.service.get_all().await.unwrap().is_empty());
        assert_eq!(process.documents.count(ScanDocuments), 101);
        term.end().await.unwrap();

        process.documents.fail_always(ScanDocuments, NotApplied);
        let term = process.lead().await;
        cluster.sleep(60).await;
        assert!(matches!(process.service.status().state, ServiceState::Rebuilding));
        term.end().await.unwrap();
    });
}

#[test]
fn failed_rebuild_interrupts_instances_that_run_already() {
    run(async |cluster| {
        let process = cluster.process("a");
        let term = process.lead().await;
        for id in ["a", "b"] {
            process.persisted(id).await;
        }
        term.end().await.unwrap();

        process.documents.limit_pages(1);
        process.documents.pass_next(ScanDocuments);
        process.documents.fail_always(ScanDocuments, Fatal);
        let term = process.lead().await;
        process.probe.journal.shows("a ends", 2).await;
        assert!(matches!(process.service.get_all().await, Err(Unavailable::RebuildFailed(_))));
        assert_eq!(process.probe.journal.count("b runs"), 1);
        term.end().await.unwrap();
    });
}

#[test]
fn first_instances_run_before_the_last_documents_are_read() {
    run(async |cluster| {
        let process = cluster.process("a");
        let term = process.lead().await;
        for id in 0..10 {
            process.persisted(&id.to_string()).await;
        }
        term.end().await.unwrap();

        process.documents.limit_pages(3);
        let (journal, documents) = (process.probe.journal.clone(), Arc::clone(&process.documents));
        let scanned_at = Arc::new(Mutex::new(None));
        process.probe.act("0", {
            let scanned_at = Arc::clone(&scanned_at);
            move |cx, _| {
                scanned_at.lock().unwrap().get_or_insert(documents.count(ScanDocuments));
                crate::rig::hold(cx)
            }
        });
        let before = process.documents.count(ScanDocuments);
        let term = process.lead().await;
        assert_eq!(process.service.get_all().await.unwrap().len(), 10);
        assert_eq!(process.documents.count(ScanDocuments) - before, 4);
        assert!(scanned_at.lock().unwrap().unwrap() < before + 4);
        for id in 0..10 {
            journal.shows(&format!("{id} runs"), 2).await;
        }
        term.end().await.unwrap();
    });
}

#[test]
fn unusable_document_is_quarantined_and_the_others_run() {
    run(async |cluster| {
        let process = cluster.process("a");
        let leadership = process.acquire().await;
        let put = async |id: &str, body: &[u8]| {
            let id = [b"primary-only/probe\0", id.as_bytes()].concat();
            process.put(leadership.standing(), &id, body).await;
        };
        put("cut", b"\x01\x00").await;
        put("foreign", b"{}").await;
        put("garbled", b"\x01\x00\x00\x00\x01{\"taken\":tru").await;
        put("newer", b"\x01\x00\x00\x00\x02{}").await;
        put("panics", b"\x01\x00\x00\x00\x01{\"taken\":0,\"request\":\"to panic\"}").await;
        put("refused", b"\x01\x00\x00\x00\x01{\"taken\":0,\"request\":\"not to be built\"}").await;
        put("whole", b"\x01\x00\x00\x00\x01{\"taken\":7,\"request\":\"\"}").await;
        process.put(leadership.standing(), b"primary-only/probe\0\xff", b"\x01").await;
        process.put(leadership.standing(), b"primary-only/probe2\0other", b"\x01").await;
        let before = cluster.documents().await;

        let term = process.step_up(leadership).await;
        let all = process.service.get_all().await.unwrap();
        assert_eq!(all.iter().map(|instance| instance.id().as_str()).collect::<Vec<_>>(), ["whole"]);
        process.probe.journal.shows("whole runs", 1).await;
        let quarantined = process.service.status().quarantined;
        let reasons: Vec<_> = quarantined.iter().map(|one| (one.id.as_str(), one.reason.as_str())).collect();
        let starts = [
            ("cut", "a body of 2 bytes is too short for an envelope"),
            ("foreign", "an envelope of format 123, and this program reads 1"),
            ("garbled", "EOF while parsing a value"),
            ("newer", "written with schema version 2, and this program reads 1"),
            ("panics", "it panicked: built to panic"),
            ("refused", "not to be built"),
            ("\u{fffd}", "invalid utf-8 sequence"),
        ];
        assert_eq!(reasons.len(), starts.len(), "{reasons:?}");
        for ((id, reason), (expected, start)) in reasons.iter().zip(starts) {
            assert_eq!(*id, expected);
            assert!(reason.starts_with(start), "{reason}");
        }

        let lookup = process.service.lookup(&"garbled".into()).await;
        assert!(matches!(lookup, Err(Unavailable::Quarantined { .. })), "{lookup:?}");
        let created = process.service.get_or_create("garbled".into(), Steps::new()).await;
        assert!(matches!(created, Err(GetOrCreateError::Unavailable(Unavailable::Quarantined { .. }))));
        assert_eq!(cluster.documents().await, before);
        term.end().await.unwrap();

        let leadership = process.acquire().await;
        let mended = b"\x01\x00\x00\x00\x01{\"taken\":1,\"request\":\"\"}";
        process.put(leadership.standing(), b"primary-only/probe\0garbled", mended).await;
        let term = process.step_up(leadership).await;
        assert!(process.found("garbled").await.is_some());
        assert_eq!(process.service.status().quarantined.len(), starts.len() - 1);
        term.end().await.unwrap();
    });
}

struct Upgraded(Arc<Mutex<Vec<u64>>>);
struct UpgradedTask(u64, Arc<Mutex<Vec<u64>>>);

impl Service for Upgraded {
    type Id = String;
    type Doc = u64;
    type Task = UpgradedTask;

    const NAME: &'static str = "upgraded";
    const COLLECTION: &'static str = Probe::NAME;
    const SCHEMA: SchemaVersion = SchemaVersion::new(2);

    fn build(&self, _: &String, doc: &u64) -> Result<UpgradedTask, BoxError> {
        Ok(UpgradedTask(*doc, Arc::clone(&self.0)))
    }

    fn upgrade(&self, from: SchemaVersion, json: &[u8]) -> Result<u64, BoxError> {
        assert_eq!(from, SchemaVersion::FIRST);
        Ok(serde_json::from_slice::<Steps>(json)?.taken)
    }
}

#[async_trait::async_trait]
impl Task for UpgradedTask {
    type Doc = u64;

    async fn run(&self, mut cx: RunContext<u64>) -> Result<(), BoxError> {
        self.1.lock().unwrap().push(self.0);
        let next = *cx.state.doc() + 1;
        Ok(cx.state.update(next).await?)
    }
}

#[test]
fn document_of_an_older_version_is_upgraded_by_the_next_write() {
    run(async |cluster| {
        let process = cluster.process("a");
        let term = process.lead().await;
        let begun = Steps { taken: 41, ..Steps::new() };
        let instance = process.service.get_or_create("x".into(), begun).await.unwrap().handle;
        instance.persisted().await.unwrap();
        term.end().await.unwrap();

        let read = Arc::new(Mutex::new(Vec::new()));
        let mut builder = RegistryBuilder::new(RegistryConfig::new(&process.env));
        let service = builder.register(Upgraded(Arc::clone(&read))).unwrap();
        let newer = Process { registry: builder.build(), ..process };
        let term = newer.lead().await;
        let instance = service.lookup(&"x".into()).await.unwrap().unwrap();
        assert!(matches!(instance.completed().await, Outcome::Completed));
        assert_eq!(*read.lock().unwrap(), [41]);
        assert_eq!(&cluster.documents().await[0].body[..], b"\x01\x00\x00\x00\x0242");
        term.end().await.unwrap();

        let older = cluster.process("b");
        let term = older.lead().await;
        let lookup = older.service.lookup(&"x".into()).await;
        assert!(matches!(lookup, Err(Unavailable::Quarantined { .. })), "{lookup:?}");
        term.end().await.unwrap();
    });
}
