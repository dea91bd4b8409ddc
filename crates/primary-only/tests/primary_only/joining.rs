//! Joining: a leadership is handed back when nothing runs any more, and no term runs beside the one before.

use crate::{
    probe::Steps,
    rig::{Process, Reign, run},
};
use futures_util::FutureExt;
use primary_only::{Outcome, RegistryConfig, ServiceState, Unavailable};
use vvm_clock::Clock;

/// An instance that does not listen, and is at work.
async fn deaf(process: &Process) -> Reign {
    let go = process.probe.go.clone();
    process.probe.act("x", move |mut cx| {
        let go = go.clone();
        async move {
            cx.state.insert().await?;
            go.wait("end").await;
            Err(primary_only::Interrupted.into())
        }
    });
    let reign = process.lead().await;
    let got = process.service.get_or_create("x".into(), Steps::new()).await.unwrap();
    got.handle.persisted().await.unwrap();
    reign
}

#[test]
fn leading_ends_when_the_last_instance_has_ended() {
    run(async |cluster| {
        let process = cluster.process("a");
        let mut reign = deaf(&process).await;
        reign.stop.cancel();
        cluster.sleep(60).await;
        assert!((&mut reign.led).now_or_never().is_none());
        // By then nobody is answered any more.
        assert!(matches!(process.service.get_all().await, Err(Unavailable::NotLeader)));
        assert_eq!(process.tasks.runners(), 1);
        process.probe.go.give("end");
        assert_eq!(reign.led.await.unwrap(), Ok(()));
        assert_eq!(process.tasks.runners(), 0);
        reign.leadership.release().await;
    });
}

#[test]
fn the_next_term_waits_for_what_the_last_one_left() {
    run(async |cluster| {
        let process = cluster.process("a");
        let reign = deaf(&process).await;
        let instance = process.service.lookup(&"x".into()).await.unwrap().unwrap();
        // Whoever led was dropped: nobody has waited for the instance.
        reign.led.abort();
        assert!(reign.led.await.unwrap_err().is_cancelled());
        assert!(matches!(process.service.status().state, ServiceState::Paused));
        reign.leadership.release().await;

        let next = process.lead().await;
        cluster.sleep(2).await;
        assert!(matches!(process.service.status().state, ServiceState::Rebuilding));
        assert!(process.service.lookup(&"x".into()).now_or_never().is_none());
        process.probe.go.give("end");
        let again = process.service.lookup(&"x".into()).await.unwrap().unwrap();
        assert!(!again.is(&instance));
        assert!(matches!(instance.completed().await, Outcome::Interrupted));
        let lines = process.probe.journal.lines();
        assert_eq!(lines[..4], ["prepares", "x runs", "x ends", "prepares"]);
        next.end().await.unwrap();
    });
}

/// Shows I10.
#[test]
fn the_next_term_does_not_wait_for_ever_and_never_runs_beside_it() {
    run(async |cluster| {
        let process = cluster.process("a");
        let reign = deaf(&process).await;
        reign.led.abort();
        assert!(reign.led.await.unwrap_err().is_cancelled());
        reign.leadership.release().await;

        let began = cluster.clock.now();
        let next = process.lead().await;
        let Err(Unavailable::RebuildFailed(failure)) = process.service.get_all().await else { panic!() };
        assert_eq!(failure.to_string(), "instances of an earlier term still run: x of probe");
        assert_eq!(cluster.clock.now().since(began), RegistryConfig::JOIN_TIMEOUT);
        process.probe.go.give("end");
        next.end().await.unwrap();
        assert_eq!(process.probe.journal.count("x runs"), 1);

        // One term later all is well.
        let last = process.lead().await;
        assert!(process.service.lookup(&"x".into()).await.unwrap().is_some());
        last.end().await.unwrap();
    });
}

#[test]
fn a_term_that_ends_while_it_waits_for_the_last_one_still_waits_for_it() {
    run(async |cluster| {
        let process = cluster.process("a");
        let reign = deaf(&process).await;
        reign.led.abort();
        assert!(reign.led.await.unwrap_err().is_cancelled());
        reign.leadership.release().await;

        let mut next = process.lead().await;
        cluster.sleep(1).await;
        next.stop.cancel();
        cluster.sleep(60).await;
        assert!((&mut next.led).now_or_never().is_none());
        process.probe.go.give("end");
        assert_eq!(next.led.await.unwrap(), Ok(()));
        assert_eq!(process.tasks.runners(), 0);
        next.leadership.release().await;
    });
}
