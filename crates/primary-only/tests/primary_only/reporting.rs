//! The status of services and instances.

use crate::{
    probe::{Probe, Steps},
    rig::run,
};
use serde_json::json;
use std::time::Duration;

#[test]
fn report_service_status() {
    run(async |cluster| {
        let process = cluster.process_with("a", Probe::at_most(1));
        let status = || serde_json::to_value(process.registry.status()).unwrap();
        let paused = json!([{
            "service": "probe", "state": "not-leading", "instances": 0, "running": 0, "waiting": 0,
            "rebuilt_in_seconds": null, "quarantined": [],
        }]);
        assert_eq!(status(), paused);
        let term = process.lead().await;
        for id in ["x", "y"] {
            process.service.get_or_create(id.into(), Steps::new()).await.unwrap();
        }
        process.probe.journal.shows("x runs", 1).await;
        let running = json!([{
            "service": "probe", "state": "running", "instances": 2, "running": 1, "waiting": 1,
            "rebuilt_in_seconds": 0.0, "quarantined": [],
        }]);
        assert_eq!(status(), running);
        term.end().await.unwrap();
        let mut paused = paused;
        paused[0]["rebuilt_in_seconds"] = json!(0.0);
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
        let process = cluster.process_with("a", Probe::at_most(2));
        process.probe.act("b", |_| async { Ok(()) });
        process.probe.act("c", |mut cx| async move {
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
            ("e", Steps::new()),
        ] {
            handles.push(process.service.get_or_create(id.into(), doc).await.unwrap().handle);
        }
        handles[2].completed().await;
        handles[3].persisted().await.unwrap();
        let reports = serde_json::to_value(process.registry.instances()).unwrap();
        // `b` has ended without a document, so it is not listed.
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
                {
                    "service": "probe", "id": "e", "state": "waiting", "persisted": false,
                    "report": { "began_with": 0 },
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

#[test]
fn duration_of_a_rebuild_is_reported() {
    run(async |cluster| {
        let process = cluster.process("a");
        let clock = cluster.clock.clone();
        process.probe.prepare_by(move |_| {
            let clock = clock.clone();
            async move {
                vvm_clock::Clock::sleep(&clock, Duration::from_secs(30)).await;
                Ok(())
            }
        });
        let term = process.lead().await;
        process.service.get_all().await.unwrap();
        assert_eq!(process.service.status().rebuilt_in, Some(Duration::from_secs(30)));
        term.end().await.unwrap();
    });
}
