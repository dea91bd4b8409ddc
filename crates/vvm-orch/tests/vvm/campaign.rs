//! Campaigns: their limits, and hand-over to a standby.

use crate::{
    probe::{Journal, Probe},
    rig::{Cluster, TTL, run},
};
use ielections::{AcquireError, Terms};
use std::time::Duration;
use vvm_clock::Clock;
use vvm_orch::{Acquisition, Problem, Vvm, VvmConfig};

#[test]
fn campaign_until_a_leader_is_seen_ends_within_a_ttl() {
    run(async |cluster| {
        let leader = cluster.process("leader").launch(vec![]);
        leader.leading().await.unwrap();
        let began = cluster.clock.now();
        let running = cluster.process("other").vvm(vec![]).launch(TTL, Acquisition::UntilLeaderSeen);
        let Some(Problem::NotAcquired(error)) = running.problem().await else { panic!() };
        let AcquireError::LeaderSeen { leader: Some(seen) } = &*error else { panic!("{error:?}") };
        assert_eq!(seen.as_str(), "leader");
        assert!(cluster.clock.now().since(began) <= TTL.get());
        leader.shutdown().await.unwrap();
    });
}

#[test]
fn campaign_with_zero_duration_looks_once() {
    run(async |cluster| {
        let leader = cluster.process("leader").launch(vec![]);
        leader.leading().await.unwrap();
        let began = cluster.clock.now();
        let none = Acquisition::Within(Duration::ZERO);
        let running = cluster.process("other").vvm(vec![]).launch(TTL, none);
        assert!(matches!(running.problem().await, Some(Problem::NotAcquired(_))));
        assert_eq!(cluster.clock.now(), began);
        leader.shutdown().await.unwrap();
    });
}

#[test]
fn standby_without_a_limit_leads_after_the_leader_releases() {
    run(async |cluster| {
        let journal = Journal::default();
        let leader = cluster.process("leader").launch(vec![Probe::new("first", &journal).boxed()]);
        let epoch = leader.leading().await.unwrap().standing.epoch();
        let process = cluster.process("standby");
        let mut config = VvmConfig::new(vec![Cluster::key()], process.holder.clone(), &process.env);
        config.poll = Some(Duration::from_millis(200));
        let services = vec![Probe::new("second", &journal).boxed()];
        let standby =
            Vvm::provide(config, process.elections.clone(), services).launch(TTL, Acquisition::Forever);
        // Longer than the default campaign.
        cluster.sleep(500).await;
        assert!(standby.first_problem().is_none());
        leader.shutdown().await.unwrap();
        let handed_over_at = cluster.clock.now();
        assert!(standby.leading().await.unwrap().standing.epoch() > epoch);
        assert!(cluster.clock.now().since(handed_over_at) <= Duration::from_millis(200));
        // The services' journal shows I1.
        let turns = ["first is cancelled", "first ends", "second starts", "second is ready"];
        assert_eq!(journal.lines()[2..], turns);
        standby.shutdown().await.unwrap();
    });
}

/// Without the hint, the standby's next look is up to a second away.
#[test]
fn standby_with_a_hint_leads_at_once_after_a_release() {
    run(async |cluster| {
        let leader = cluster.process("leader").launch(vec![]);
        leader.leading().await.unwrap();
        let standby = cluster.process("standby").vvm(vec![]).launch(TTL, Acquisition::Forever);
        cluster.sleep(30).await;
        leader.shutdown().await.unwrap();
        let released_at = cluster.clock.now();
        standby.look_now();
        standby.leading().await.unwrap();
        assert!(cluster.clock.now().since(released_at) <= Terms::HINT_GAP);
        standby.shutdown().await.unwrap();
        standby.look_now();
    });
}

#[test]
fn candidacy_without_slots_is_a_problem() {
    run(async |cluster| {
        let process = cluster.process("leader");
        let config = VvmConfig::new(vec![], process.holder.clone(), &process.env);
        let running =
            Vvm::provide(config, process.elections.clone(), vec![]).launch(TTL, Acquisition::Forever);
        let problem = running.problem().await.unwrap();
        assert!(problem.to_string().contains("name at least one"), "{problem}");
    });
}
