//! A registry as a service of a VVM.

use crate::rig::{Cluster, Probe, Process, Steps, depose, run};
use futures_util::FutureExt;
use ielections::{Holder, Ttl, TtlStorage};
use primary_only::{Handle, Outcome, RegistryConfig, ServiceState, Unavailable};
use serde_json::json;
use std::time::Duration;
use vvm_clock::Clock;
use vvm_orch::{AcquireTimeout, Problem, RunningVvm, Vvm, VvmConfig, service_fn};
use vvm_storage::ElectionKey;

fn launch(process: &Process) -> RunningVvm<ElectionKey> {
    let registry = process.registry.clone();
    let service = service_fn("primary-only", async move |cx| Ok(registry.lead(cx.standing, cx.stop).await?));
    let config = VvmConfig::new(vec![Cluster::key()], Holder::new("a").unwrap(), &process.env);
    Vvm::provide(config, process.fresh_elections(), vec![service])
        .launch(Ttl::DEFAULT, AcquireTimeout::Forever)
}

/// Shows I6.
#[test]
fn record_is_not_released_before_the_last_instance_has_ended() {
    run(async |cluster| {
        let process = cluster.process("a");
        let clock = cluster.clock.clone();
        process.probe.act("x", move |mut cx, _| {
            let clock = clock.clone();
            async move {
                cx.state.insert().await?;
                cx.stop.cancelled().await;
                vvm_clock::Clock::sleep(&clock, std::time::Duration::from_secs(5)).await;
                Err(primary_only::TermInterrupted.into())
            }
        });
        let vvm = launch(&process);
        vvm.leading().await.unwrap();
        process.created("x").await.persisted().await.unwrap();
        let shutdown = vvm.shutdown();
        let looking = async {
            cluster.sleep(4).await;
            cluster.storage().get(&Cluster::key()).await.unwrap()
        };
        let (ended, slot) = tokio::join!(shutdown, looking);
        ended.unwrap();
        assert!(slot.entry().is_some());
        assert_eq!(process.probe.journal.count("x ends"), 1);
    });
}

#[test]
fn deposed_writer_shuts_the_vvm_down() {
    run(async |cluster| {
        let process = cluster.process("a");
        process.probe.act("x", |mut cx, probe| async move {
            cx.state.insert().await?;
            probe.go.wait("write").await;
            let next = cx.state.doc().next();
            Ok(cx.state.update(next).await?)
        });
        let vvm = launch(&process);
        vvm.leading().await.unwrap();
        process.created("x").await.persisted().await.unwrap();
        depose(&cluster).await;
        process.probe.go.give("write");
        let problem = vvm.problem().await.unwrap();
        assert!(matches!(problem, Problem::Lost(_)), "{problem}");
        vvm.shutdown().await.unwrap_err();
        assert!(matches!(process.service.get_all().await, Err(Unavailable::NotLeader)));
    });
}

/// Leaves a term whose instance ignores `stop`: `lead` is dropped, and doesn't wait for the instance.
async fn leave_a_deaf_instance(process: &Process) -> Handle<Probe> {
    process.probe.act("x", |mut cx, probe| async move {
        cx.state.insert().await?;
        probe.go.wait("end").await;
        Err(primary_only::TermInterrupted.into())
    });
    let term = process.lead().await;
    let instance = process.persisted("x").await;
    term.led.abort();
    assert!(term.led.await.unwrap_err().is_cancelled());
    assert!(matches!(process.service.status().state, ServiceState::NotLeading));
    term.leadership.release().await;
    instance
}

#[test]
fn next_term_waits_for_instances_of_the_last_one() {
    run(async |cluster| {
        let process = cluster.process("a");
        let instance = leave_a_deaf_instance(&process).await;
        let next = process.lead().await;
        cluster.sleep(2).await;
        assert!(matches!(process.service.status().state, ServiceState::Rebuilding));
        assert!(process.service.lookup(&"x".into()).now_or_never().is_none());
        process.probe.go.give("end");
        let again = process.found("x").await.unwrap();
        assert!(!again.is(&instance));
        assert!(matches!(instance.completed().await, Outcome::Interrupted));
        let lines = process.probe.journal.lines();
        assert_eq!(lines[..4], ["prepares", "x runs", "x ends", "prepares"]);
        next.end().await.unwrap();
    });
}

/// Shows I10.
#[test]
fn next_term_fails_to_rebuild_if_an_instance_of_the_last_one_does_not_end() {
    run(async |cluster| {
        let process = cluster.process("a");
        leave_a_deaf_instance(&process).await;
        let began = cluster.clock.now();
        let next = process.lead().await;
        let Err(Unavailable::RebuildFailed(failure)) = process.service.get_all().await else { panic!() };
        assert_eq!(failure.to_string(), "instances of an earlier term still run: x of probe");
        assert_eq!(cluster.clock.now().since(began), RegistryConfig::JOIN_TIMEOUT);
        process.probe.go.give("end");
        next.end().await.unwrap();
        assert_eq!(process.probe.journal.count("x runs"), 1);

        let last = process.lead().await;
        assert!(process.found("x").await.is_some());
        last.end().await.unwrap();
    });
}

#[test]
fn term_that_ends_during_the_wait_for_an_earlier_instance_still_joins_it() {
    run(async |cluster| {
        let process = cluster.process("a");
        leave_a_deaf_instance(&process).await;
        let mut next = process.lead().await;
        cluster.sleep(1).await;
        next.stop.cancel();
        cluster.sleep(60).await;
        assert!((&mut next.led).now_or_never().is_none());
        process.probe.go.give("end");
        assert_eq!(next.led.await.unwrap(), Ok(()));
        assert_eq!(process.runners(), 0);
        next.leadership.release().await;
    });
}

#[test]
fn report_service_status() {
    run(async |cluster| {
        let process = cluster.process("a");
        let status = || serde_json::to_value(process.registry.status()).unwrap();
        let paused = json!([{
            "service": "probe", "state": "not-leading", "instances": 0, "running": 0, "waiting": 0,
            "rebuilt_in_seconds": null, "quarantined": [],
        }]);
        assert_eq!(status(), paused);
        let clock = cluster.clock.clone();
        process.probe.prepare_by(move |_| {
            let rebuilt = clock.sleep(Duration::from_secs(30));
            async move {
                rebuilt.await;
                Ok(())
            }
        });
        let term = process.lead().await;
        process.service.get_all().await.unwrap();
        for id in ["x", "y"] {
            process.persisted(id).await;
        }
        let running = json!([{
            "service": "probe", "state": "running", "instances": 2, "running": 2, "waiting": 0,
            "rebuilt_in_seconds": 30.0, "quarantined": [],
        }]);
        assert_eq!(status(), running);
        term.end().await.unwrap();
        let mut paused = paused;
        paused[0]["rebuilt_in_seconds"] = json!(30.0);
        assert_eq!(status(), paused);

        process.probe.prepare_by(|_| async { Err("no index".into()) });
        let term = process.lead().await;
        drop(process.service.get_all().await);
        assert_eq!(status()[0]["state"], "rebuild-failed");
        assert_eq!(status()[0]["failure"], "preparing it failed: no index");
        term.end().await.unwrap();
    });
}

#[test]
fn report_of_each_instance() {
    run(async |cluster| {
        let process = cluster.process("a");
        process.probe.act("b", |_, _| async { Ok(()) });
        process.probe.act("c", |mut cx, _| async move {
            cx.state.insert().await?;
            Err("no luck".into())
        });
        let term = process.lead().await;
        let mut handles = Vec::new();
        for (id, doc) in [
            ("a", Steps { taken: 3, ..Steps::new() }),
            ("b", Steps::new()),
            ("c", Steps::new()),
            ("d", Steps::requesting("to panic when asked")),
        ] {
            handles.push(process.service.get_or_create(id.into(), doc).await.unwrap().handle);
        }
        handles[0].persisted().await.unwrap();
        handles[2].completed().await;
        handles[3].persisted().await.unwrap();
        let reports = serde_json::to_value(process.registry.instances()).unwrap();
        assert_eq!(
            reports,
            json!([
                {
                    "service": "probe", "id": "a", "state": "running", "persisted": true,
                    "report": { "began_with": 3 },
                },
                {
                    "service": "probe", "id": "c", "state": "ended", "outcome": "failed: no luck",
                    "persisted": true, "report": { "began_with": 0 },
                },
                {
                    "service": "probe", "id": "d", "state": "running", "persisted": true,
                    "report": reports[2]["report"],
                },
            ])
        );
        let first = process.registry.first_instances(2);
        assert_eq!(first.iter().map(|instance| instance.id.as_str()).collect::<Vec<_>>(), ["a", "c"]);
        assert!(reports[2]["report"].as_str().unwrap().starts_with("it panicked: "));
        term.end().await.unwrap();
        assert!(process.registry.instances().is_empty());
    });
}
