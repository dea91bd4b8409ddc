//! Renewals go before batches, and a renewal never waits long for a batch.

use super::*;
use ielections::testing::mock::{Fault, Verb};
use storage::{Call, Fate};
use vvm_clock::Instant;

impl Bench {
    fn renewals(&self) -> Vec<Instant> {
        let calls = self.storage.calls();
        calls.into_iter().filter(|(call, _)| *call == Call::Renewal).map(|(_, at)| at).collect()
    }
}

#[test]
fn renewal_waits_for_the_batch_in_flight_and_goes_before_the_next() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let leadership = lead(&process).await;
        let documents = documents(&leadership);
        // A batch is in flight at every moment.
        bench.storage.always(Some(Fate::SlowAnswer(PAUSE * 4 / 10)));
        while bench.renewals().len() < 20 {
            documents.write(vec![put("a", "x")]).await.unwrap();
        }
        let within = |renewal: &Instant, (from, to): &(Instant, Instant)| from < renewal && renewal < to;
        for renewal in bench.renewals() {
            assert!(!bench.storage.spans().iter().any(|span| within(&renewal, span)), "{renewal:?}");
        }
        // After a quarter of a TTL and one batch.
        let late = bench.renewals().windows(2).map(|two| two[1].since(two[0])).max().unwrap();
        assert!(late <= TTL / 4 + PAUSE * 4 / 10, "{late:?}");
    });
}

#[test]
fn renewal_waits_for_a_batch_at_most_a_twentieth_of_the_ttl() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let led_at = bench.clock.now();
        let leadership = lead(&process).await;
        let documents = documents(&leadership);
        documents.write(Vec::new()).await.unwrap();
        // Due between 4.75 and 5 s, while a batch is in flight from 4.7 to 6.6 s.
        bench.clock.sleep_until(led_at.after(TTL * 235 / 1000)).await;
        bench.storage.writes([Fate::SlowAnswer(ATTEMPT * 95 / 100)]);
        documents.write(vec![put("a", "x")]).await.unwrap();
        let renewal = bench.renewals()[0].since(led_at);
        assert!(renewal >= TTL * 2375 / 10_000 + PAUSE, "it did not wait: {renewal:?}");
        assert!(renewal <= TTL / 4 + PAUSE, "it waited too long: {renewal:?}");
        // I3: the confirmation counts from before the wait.
        let kill_at = leadership.standing().kill_at().since(led_at);
        assert!(kill_at > TTL * 8 / 10 && kill_at <= TTL / 4 + TTL * 8 / 10, "{kill_at:?}");
    });
}

#[test]
fn no_batch_begins_while_a_renewal_is_in_flight() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let leadership = lead(&process).await;
        let documents = documents(&leadership);
        documents.write(Vec::new()).await.unwrap();
        bench.records.fail_next(Verb::CompareAndSwap, Fault::SlowAnswer(PAUSE));
        bench.until(|| bench.renewals().len() == 1).await;
        documents.write(vec![put("a", "x")]).await.unwrap();
        let began = bench.storage.spans()[1].0.since(bench.renewals()[0]);
        assert_eq!(began, PAUSE);
    });
}

#[test]
fn hanging_renewal_delays_batches_only_until_its_timeout() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let leadership = lead(&process).await;
        let documents = documents(&leadership);
        documents.write(Vec::new()).await.unwrap();
        bench.records.fail_next(Verb::CompareAndSwap, Fault::Hang);
        bench.until(|| bench.renewals().len() == 1).await;
        let since = bench.clock.now();
        documents.write(vec![put("a", "x")]).await.unwrap();
        assert!(bench.clock.now().since(since) <= ATTEMPT);
        bench.until(|| bench.renewals().len() == 3).await;
        assert!(leadership.standing().loss().is_none());
    });
}

#[test]
fn dropped_caller_does_not_delay_a_renewal() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let led_at = bench.clock.now();
        let leadership = lead(&process).await;
        let documents = documents(&leadership);
        bench.storage.writes([Fate::Hang]);
        let mut dropped = Box::pin(documents.write(vec![put("a", "x")]));
        assert!(waits(&mut dropped).await);
        assert_eq!(bench.storage.sent(), 1);
        drop(dropped);
        bench.until(|| !bench.renewals().is_empty()).await;
        assert!(bench.renewals()[0].since(led_at) <= TTL / 4);
    });
}
