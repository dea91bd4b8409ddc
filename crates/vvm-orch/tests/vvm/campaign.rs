//! How long a VVM campaigns, and how it takes its turn.

use crate::{
    probe::{Journal, Probe},
    rig::{Cluster, TTL, run},
};
use ielections::{AcquireError, Terms};
use std::time::Duration;
use vvm_clock::Clock;
use vvm_orch::{Acquisition, Problem, Vvm, VvmConfig};

#[test]
fn one_that_waits_until_a_leader_is_seen_gives_up_within_a_ttl() {
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
fn one_with_no_time_at_all_looks_once() {
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
fn a_standby_that_waits_for_ever_leads_when_the_leader_hands_over() {
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
        // Longer than the default patience.
        cluster.sleep(500).await;
        assert!(standby.first_problem().is_none());
        leader.shutdown().await.unwrap();
        let handed_over_at = cluster.clock.now();
        assert!(standby.leading().await.unwrap().standing.epoch() > epoch);
        assert!(cluster.clock.now().since(handed_over_at) <= Duration::from_millis(200));
        // I1, as the services saw it.
        let turns = ["first is told to stop", "first ends", "second starts", "second is ready"];
        assert_eq!(journal.lines()[2..], turns);
        standby.shutdown().await.unwrap();
    });
}

/// The standby's own next look would be up to a second away.
#[test]
fn a_standby_that_is_told_of_a_release_leads_at_once() {
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
fn a_candidacy_without_slots_is_a_problem_that_says_so() {
    run(async |cluster| {
        let process = cluster.process("leader");
        let config = VvmConfig::new(vec![], process.holder.clone(), &process.env);
        let running =
            Vvm::provide(config, process.elections.clone(), vec![]).launch(TTL, Acquisition::Forever);
        let problem = running.problem().await.unwrap();
        assert!(problem.to_string().contains("name at least one"), "{problem}");
    });
}
