//! A thousand VVMs on a thousand slots, as tasks of one process, on the machine's own clock (I11).
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

use clock::{Clock, SystemClock, SystemWallClock};
use deadman::{Deadman, recording::RecordingTrigger};
use futures_util::future::join_all;
use ielections::{Env, Holder, OsEntropy, TokioSpawn, Ttl, elections};
use std::{collections::BTreeSet, num::NonZeroU32, sync::Arc, time::Duration};
use vvm_orch::{Acquisition, Vvm, VvmConfig, service_fn};
use vvm_storage::{ElectionKey, ElectionsTtlStorage, SlotNumber, SysVvmStorage};

const MANY: u32 = 1000;

/// How long it takes until all lead. Each has elections of its own; they share a handle on the storage.
async fn all_lead(storage: Arc<dyn SysVvmStorage>, clock: Arc<dyn Clock>) -> Duration {
    let storage = Arc::new(ElectionsTtlStorage::new(storage));
    let killer = RecordingTrigger::on(Arc::clone(&clock));
    let env = Env {
        clock: Arc::clone(&clock),
        wall: Arc::new(SystemWallClock),
        deadman: Deadman::with_trigger(killer.clone()),
        entropy: Arc::new(OsEntropy::default()),
        spawn: Arc::new(TokioSpawn::on(tokio::runtime::Handle::current())),
    };
    let slots: Vec<ElectionKey> = SlotNumber::all(NonZeroU32::new(MANY).unwrap())
        .map(|slot| ElectionKey { cluster: "many".into(), slot })
        .collect();
    let began = clock.now();
    let running: Vec<_> = (0..MANY)
        .map(|number| {
            let holder = Holder::new(format!("vvm {number}")).unwrap();
            let service = service_fn("idle", async |cx| {
                cx.stop.cancelled().await;
                Ok(())
            });
            let config = VvmConfig::new(slots.clone(), holder, &env);
            Vvm::provide(config, elections(storage.clone(), env.clone()), vec![service])
                .launch(Ttl::DEFAULT, Acquisition::DEFAULT)
        })
        .collect();
    let leading = join_all(running.iter().map(|vvm| vvm.leading())).await;
    let took = clock.now().since(began);

    let led: BTreeSet<_> = leading.into_iter().map(|leading| leading.unwrap().slot).collect();
    assert_eq!(led.len(), MANY as usize, "two lead the same slot");
    for outcome in join_all(running.iter().map(|vvm| vvm.shutdown())).await {
        outcome.unwrap();
    }
    assert!(!killer.check() && killer.fired().is_empty());
    assert_eq!(env.deadman.armed(), 0);
    took
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_mem_within_two_seconds() {
    let clock = Arc::new(SystemClock::start().unwrap());
    let storage = vvm_storage::open("mem:", clock.clone()).await.unwrap();
    let took = all_lead(storage, clock).await;
    println!("a thousand lead on mem after {took:?}");
    assert!(took <= Duration::from_secs(2), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite_within_ten_seconds() {
    let clock = Arc::new(SystemClock::start().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("many.db").display());
    let storage = vvm_storage::open(&url, clock.clone()).await.unwrap();
    let took = all_lead(Arc::clone(&storage), clock).await;
    storage.close().await;
    println!("a thousand lead on sqlite after {took:?}");
    assert!(took <= Duration::from_secs(10), "{took:?}");
}
