//! Joining: a leadership is released when no instance runs, and terms do not overlap.

use crate::{
    probe::Steps,
    rig::{LedTerm, Process, run},
};
use futures_util::FutureExt;
use primary_only::{Outcome, RegistryConfig, ServiceState, Unavailable};
use vvm_clock::Clock;

/// Starts a term with an instance that ignores `stop`.
async fn with_deaf_instance(process: &Process) -> LedTerm {
    let go = process.probe.go.clone();
    process.probe.act("x", move |mut cx| {
        let go = go.clone();
        async move {
            cx.state.insert().await?;
            go.wait("end").await;
            Err(primary_only::Interrupted.into())
        }
    });
    let term = process.lead().await;
    let got = process.service.get_or_create("x".into(), Steps::new()).await.unwrap();
    got.handle.persisted().await.unwrap();
    term
}

#[test]
fn lead_returns_after_the_last_instance_has_ended() {
    run(async |cluster| {
        let process = cluster.process("a");
        let mut term = with_deaf_instance(&process).await;
        term.stop.cancel();
        cluster.sleep(60).await;
        assert!((&mut term.led).now_or_never().is_none());
        // The service refuses calls meanwhile.
        assert!(matches!(process.service.get_all().await, Err(Unavailable::NotLeader)));
        assert_eq!(process.tasks.runners(), 1);
        process.probe.go.give("end");
        assert_eq!(term.led.await.unwrap(), Ok(()));
        assert_eq!(process.tasks.runners(), 0);
        term.leadership.release().await;
    });
}

#[test]
fn next_term_waits_for_instances_of_the_last_one() {
    run(async |cluster| {
        let process = cluster.process("a");
        let term = with_deaf_instance(&process).await;
        let instance = process.service.lookup(&"x".into()).await.unwrap().unwrap();
        // `lead` was dropped, and did not wait for the instance.
        term.led.abort();
        assert!(term.led.await.unwrap_err().is_cancelled());
        assert!(matches!(process.service.status().state, ServiceState::NotLeading));
        term.leadership.release().await;

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
fn next_term_fails_to_rebuild_if_an_instance_of_the_last_one_does_not_end() {
    run(async |cluster| {
        let process = cluster.process("a");
        let term = with_deaf_instance(&process).await;
        term.led.abort();
        assert!(term.led.await.unwrap_err().is_cancelled());
        term.leadership.release().await;

        let began = cluster.clock.now();
        let next = process.lead().await;
        let Err(Unavailable::RebuildFailed(failure)) = process.service.get_all().await else { panic!() };
        assert_eq!(failure.to_string(), "instances of an earlier term still run: x of probe");
        assert_eq!(cluster.clock.now().since(began), RegistryConfig::JOIN_TIMEOUT);
        process.probe.go.give("end");
        next.end().await.unwrap();
        assert_eq!(process.probe.journal.count("x runs"), 1);

        // The term after that rebuilds.
        let last = process.lead().await;
        assert!(process.service.lookup(&"x".into()).await.unwrap().is_some());
        last.end().await.unwrap();
    });
}

#[test]
fn term_that_ends_during_the_wait_for_an_earlier_instance_still_joins_it() {
    run(async |cluster| {
        let process = cluster.process("a");
        let term = with_deaf_instance(&process).await;
        term.led.abort();
        assert!(term.led.await.unwrap_err().is_cancelled());
        term.leadership.release().await;

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
