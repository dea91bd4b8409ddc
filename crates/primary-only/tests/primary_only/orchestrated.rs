//! A registry as a service of a VVM.

use crate::rig::{Cluster, Process, depose, run};
use ielections::{Holder, Slot, Ttl, TtlStorage};
use primary_only::{Outcome, Unavailable};
use vvm_orch::{Acquisition, Problem, RunningVvm, Vvm, VvmConfig, service_fn};
use vvm_storage::ElectionKey;

/// Launches a VVM that runs the process's registry.
fn launch(process: &Process) -> RunningVvm<ElectionKey> {
    let registry = process.registry.clone();
    let service = service_fn("primary-only", async move |cx| Ok(registry.lead(cx.standing, cx.stop).await?));
    let config = VvmConfig::new(vec![Cluster::key(1)], Holder::new("a").unwrap(), &process.env);
    Vvm::provide(config, process.fresh_elections(), vec![service]).launch(Ttl::DEFAULT, Acquisition::DEFAULT)
}

#[test]
fn services_run_while_the_vvm_leads() {
    run(async |cluster| {
        let process = cluster.process("a");
        let vvm = launch(&process);
        vvm.leading().await.unwrap();
        let instance = process.created("x").await;
        instance.persisted().await.unwrap();
        vvm.shutdown().await.unwrap();
        assert!(matches!(instance.completed().await, Outcome::Interrupted));
        // The record was released.
        assert!(matches!(cluster.storage().get(&Cluster::key(1)).await.unwrap(), Slot::Vacant(_)));
        process.elections.cleanup().await;
        process.tasks.all_end().await;
    });
}

/// Shows I6.
#[test]
fn record_is_not_released_before_the_last_instance_has_ended() {
    run(async |cluster| {
        let process = cluster.process("a");
        let clock = cluster.clock.clone();
        process.probe.act("x", move |mut cx| {
            let clock = clock.clone();
            async move {
                cx.state.insert().await?;
                cx.stop.cancelled().await;
                vvm_clock::Clock::sleep(&clock, std::time::Duration::from_secs(5)).await;
                Err(primary_only::Interrupted.into())
            }
        });
        let vvm = launch(&process);
        vvm.leading().await.unwrap();
        process.created("x").await.persisted().await.unwrap();
        let shutdown = vvm.shutdown();
        let looking = async {
            cluster.sleep(4).await;
            cluster.storage().get(&Cluster::key(1)).await.unwrap()
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
        let go = process.probe.go.clone();
        process.probe.act("x", move |mut cx| {
            let go = go.clone();
            async move {
                cx.state.insert().await?;
                go.wait("write").await;
                let next = cx.state.doc().next();
                Ok(cx.state.update(next).await?)
            }
        });
        let vvm = launch(&process);
        vvm.leading().await.unwrap();
        process.created("x").await.persisted().await.unwrap();
        depose(&cluster).await;
        process.probe.go.give("write");
        // The service and the renewal race to notice it.
        let problem = vvm.problem().await.unwrap();
        assert!(matches!(problem, Problem::Ended { .. } | Problem::Lost(_)), "{problem}");
        vvm.shutdown().await.unwrap_err();
        assert!(matches!(process.service.get_all().await, Err(Unavailable::NotLeader)));
    });
}

#[test]
fn shutdown_during_step_up() {
    run(async |cluster| {
        let process = cluster.process("a");
        process.documents.hold_scans(true);
        let vvm = launch(&process);
        process.documents.wait_for_scans(1).await;
        let x = "x".to_owned();
        let (found, ended) = tokio::join!(process.service.lookup(&x), vvm.shutdown());
        assert!(matches!(found, Err(Unavailable::NotLeader)));
        ended.unwrap();
        process.elections.cleanup().await;
        process.tasks.all_end().await;
    });
}

#[test]
fn lookup_and_get_all_after_shutdown() {
    run(async |cluster| {
        let process = cluster.process("a");
        let vvm = launch(&process);
        vvm.leading().await.unwrap();
        process.created("x").await;
        vvm.shutdown().await.unwrap();
        assert!(matches!(process.service.lookup(&"x".into()).await, Err(Unavailable::NotLeader)));
        assert!(matches!(process.service.get_all().await, Err(Unavailable::NotLeader)));
    });
}

#[test]
fn later_vvm_continues_with_the_same_registry() {
    run(async |cluster| {
        let process = cluster.process("a");
        for _ in 0..3 {
            let vvm = launch(&process);
            vvm.leading().await.unwrap();
            process.created("x").await.persisted().await.unwrap();
            vvm.shutdown().await.unwrap();
        }
        assert_eq!(process.probe.journal.count("x runs"), 3);
        assert_eq!(process.probe.journal.count("x ends"), 3);
    });
}
