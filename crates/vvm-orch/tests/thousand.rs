//! A thousand VVMs on a thousand slots in one process, in real time (I11).
#![allow(clippy::unwrap_used, reason = "clippy exempts tests, but not their helpers")]

use ::timed::{Late, timed};
use futures_util::future::join_all;
use ielections::{Elections, Env, Holder, OsEntropy, TokioSpawn, Ttl};
use std::{collections::BTreeSet, num::NonZeroU32, sync::Arc, time::Duration};
use vvm_clock::{Clock, Instant, SystemClock, SystemWallClock};
use vvm_deadman::{Deadman, recording::RecordingTrigger};
use vvm_orch::{Acquisition, Vvm, VvmConfig, service_fn};
use vvm_storage::{ElectionKey, ElectionsTtlStorage, SlotNumber, SysVvmStorage};

const MANY: u32 = 1000;

/// Launches all VVMs on one storage, each with its own elections. When all of them lead, calls `lead` with
/// the time of the launch.
async fn all_lead(
    storage: Arc<dyn SysVvmStorage>,
    clock: Arc<dyn Clock>,
    lead: impl FnOnce(Instant) -> Result<(), Late>,
) -> Result<(), Late> {
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
            Vvm::provide(config, Elections::new(storage.clone(), env.clone()), vec![service])
                .launch(Ttl::DEFAULT, Acquisition::DEFAULT)
        })
        .collect();
    let leading = join_all(running.iter().map(|vvm| vvm.leading())).await;
    lead(began)?;

    let led: BTreeSet<_> = leading.into_iter().map(|leading| leading.unwrap().slot).collect();
    assert_eq!(led.len(), MANY as usize, "two VVMs lead the same slot");
    for outcome in join_all(running.iter().map(|vvm| vvm.shutdown())).await {
        outcome.unwrap();
    }
    assert!(!killer.check() && killer.fired().is_empty());
    assert_eq!(env.deadman.armed(), 0);
    Ok(())
}

fn lead_within(url: &str, bound: Duration) {
    timed(url, |attempt| {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let clock = Arc::new(SystemClock::start().unwrap());
            // A new file for each attempt, because a used storage has more in it.
            let folder = tempfile::tempdir().unwrap();
            let url = url.replace("FOLDER", &folder.path().display().to_string());
            let storage = vvm_storage::open(&url, clock.clone()).await.unwrap();
            let lead = |began| attempt.took("a thousand leaderships", bound, began).map(|_| ());
            let result = all_lead(Arc::clone(&storage), clock, lead).await;
            storage.close().await;
            result
        })
    });
}

mod timed {
    use super::*;

    /// Shows I11.
    #[test]
    fn a_thousand_lead_within_two_seconds_on_mem_and_ten_on_sqlite() {
        lead_within("mem:", Duration::from_secs(2));
        lead_within("sqlite:FOLDER/many.db?allow=overlay", Duration::from_secs(10));
    }
}
