use super::*;
use futures_util::future::join_all;
use ielections::{
    BeyondDocumentLimits, DocumentLimits, DocumentWriteError, Scan,
    testing::{MockTtlStorage, elections_suite::Process, mock::Logged},
};
use std::sync::Arc;
use testing_time::MockClock;
use vvm_clock::Instant;

const SECOND: Duration = Duration::from_secs(1);

async fn write_behind(documents: &Documents, bench: &Bench, batches: Vec<Vec<DocumentWrite>>) {
    bench.writes([Fault::SlowRequest(SECOND)]);
    let first = documents.write(vec![put("first", "first")]);
    let others = join_all(batches.into_iter().map(|batch| documents.write(batch)));
    let (first, others) = tokio::join!(first, others);
    first.unwrap();
    for other in others {
        other.unwrap();
    }
}

#[test]
fn shared_batch_keeps_the_limits_of_the_storage() {
    led(async |Led { bench, documents, .. }| {
        let DocumentLimits { max_batch, max_batch_bytes, max_body_bytes, .. } = documents.limits();
        let batches =
            |count: usize, body: &str| (0..count).map(|n| vec![put(format!("{n:2}"), body)]).collect();
        write_behind(&documents, &bench, batches(2 * max_batch + 3, "x")).await;
        let sizes = |from: usize| bench.landed()[from..].iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes(0), [1, max_batch, max_batch, 3]);
        let most = max_batch_bytes / (max_body_bytes + 2);
        assert!(most < max_batch);
        write_behind(&documents, &bench, batches(most + 2, &"x".repeat(max_body_bytes))).await;
        assert_eq!(sizes(4), [1, most, 2]);
        // The batch of a caller is never split.
        let large = max_batch / 2 + 1;
        let of = |from: usize| (from..from + large).map(|n| put(format!("{n}"), "x")).collect::<Vec<_>>();
        write_behind(&documents, &bench, vec![of(0), of(large), of(2 * large)]).await;
        assert_eq!(sizes(7), [1, large, large, large]);
    });
}

#[test]
fn two_writes_of_one_document_are_two_batches_in_their_order() {
    led(async |Led { bench, documents, .. }| {
        let batches = vec![vec![put("a", "1")], vec![put("a", "2")], vec![put("b", "3")]];
        write_behind(&documents, &bench, batches).await;
        assert_eq!(bench.landed(), [vec!["first"], vec!["1"], vec!["2", "3"]]);
        assert_eq!(documents.get(&id("a")).await.unwrap().unwrap().body, "2");
    });
}

#[test]
fn batch_beyond_the_limits_is_refused_without_a_call() {
    led(async |Led { bench, documents, .. }| {
        let DocumentLimits { max_batch: most, max_id_bytes, .. } = documents.limits();
        let too_many = (0..=most).map(|n| put(format!("{n}"), "x")).collect();
        let refused = documents.write(too_many).await.unwrap_err();
        let beyond = BeyondDocumentLimits::Batch { writes: most + 1, most };
        assert_eq!(refused, DocumentWriteError::TooLarge(beyond));
        documents.get(&id("x".repeat(max_id_bytes + 1))).await.unwrap_err();
        assert_eq!(bench.asked(), []);
    });
}

#[test]
fn count_is_read_before_the_first_document() {
    for scans in [true, false] {
        led(async |Led { bench, documents, .. }| {
            // Of two concurrent reads, one reads the count for both.
            let read = || async {
                if scans {
                    documents.scan(&Scan { limit: 1, ..Scan::default() }).await.map(drop).unwrap();
                } else {
                    documents.get(&id("a")).await.map(drop).unwrap();
                }
            };
            bench.faulty.fail_next(Verb::FenceState, Fault::SlowAnswer(SECOND));
            tokio::join!(read(), read());
            let read = if scans { Verb::ScanDocuments } else { Verb::Document };
            assert_eq!(bench.asked(), [Verb::FenceState, read, read]);
        });
    }
}

#[test]
fn empty_batch_checks_that_the_leadership_stands() {
    led(async |Led { bench, documents, .. }| {
        documents.write(Vec::new()).await.unwrap();
        bench.faulty.wipe(&KEY).await.unwrap();
        let refused = documents.write(Vec::new()).await.unwrap_err();
        assert_eq!(refused, DocumentWriteError::Deposed { current: None });
    });
}

#[test]
fn storage_without_documents_gives_none() {
    let clock = MockClock::new();
    on(&clock, async {
        let process = Process::start(Arc::new(MockTtlStorage::vacant()), Arc::new(clock.clone()));
        let leadership = lead(&process).await;
        assert!(leadership.standing().documents().is_none());
        let _ = leadership.release().await;
    });
}

#[test]
fn documents_that_outlive_their_elections_keep_nothing_alive() {
    led(async |Led { bench, process, leadership, documents }| {
        documents.write(vec![put("a", "1")]).await.unwrap();
        let _ = leadership.release().await;
        process.elections.cleanup().await;
        drop(process);
        assert_eq!(Arc::strong_count(&bench.faulty), 1);
        documents.write(vec![put("a", "2")]).await.unwrap_err();
        documents.get(&id("a")).await.unwrap_err();
        assert_eq!(bench.landed(), [["1"]]);
    });
}

fn sent_at(leadership: &Leadership) -> Instant {
    leadership.standing().kill_at().before(TTL * 8 / 10)
}

impl Bench {
    fn renewals(&self) -> Vec<Instant> {
        self.faulty.calls_of(Verb::CompareAndSwap).into_iter().map(|call| call.at).collect()
    }
}

#[test]
fn renewal_waits_for_the_batch_in_flight_and_goes_before_the_next() {
    led(async |Led { bench, documents, .. }| {
        bench.always(Fault::SlowAnswer(PAUSE * 4 / 10));
        while bench.renewals().len() < 20 {
            documents.write(vec![put("a", "x")]).await.unwrap();
        }
        let batches = bench.faulty.calls_of(Verb::WriteDocuments);
        for renewal in bench.renewals() {
            let within =
                |batch: &Logged| batch.at < renewal && batch.until.is_none_or(|until| renewal < until);
            assert!(!batches.iter().any(within), "{renewal:?}");
        }
        // After a quarter of a TTL and one batch.
        let late = bench.renewals().windows(2).map(|two| two[1].since(two[0])).max().unwrap();
        assert!(late <= TTL / 4 + PAUSE * 4 / 10, "{late:?}");
    });
}

#[test]
fn renewal_waits_for_a_batch_at_most_a_twentieth_of_the_ttl() {
    led(async |Led { bench, leadership, documents, .. }| {
        let led_at = sent_at(&leadership);
        documents.write(Vec::new()).await.unwrap();
        // Due between 4.75 and 5 s, while a batch is in flight from 4.7 to 6.6 s.
        bench.clock.sleep_until(led_at.after(TTL * 235 / 1000)).await;
        bench.writes([Fault::SlowAnswer(ATTEMPT * 95 / 100)]);
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
    led(async |Led { bench, documents, .. }| {
        documents.write(Vec::new()).await.unwrap();
        bench.faulty.fail_next(Verb::CompareAndSwap, Fault::SlowAnswer(PAUSE));
        bench.until(|| bench.renewals().len() == 1).await;
        documents.write(vec![put("a", "x")]).await.unwrap();
        let began = bench.faulty.calls_of(Verb::WriteDocuments)[1].at.since(bench.renewals()[0]);
        assert_eq!(began, PAUSE);
    });
}

#[test]
fn hanging_renewal_delays_batches_only_until_its_timeout() {
    led(async |Led { bench, leadership, documents, .. }| {
        documents.write(Vec::new()).await.unwrap();
        bench.faulty.fail_next(Verb::CompareAndSwap, Fault::Hang);
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
    led(async |Led { bench, leadership, documents, .. }| {
        let led_at = sent_at(&leadership);
        bench.writes([Fault::Hang]);
        let mut dropped = Box::pin(documents.write(vec![put("a", "x")]));
        assert!(waits(&mut dropped).await);
        assert_eq!(bench.sent(), 1);
        drop(dropped);
        bench.until(|| !bench.renewals().is_empty()).await;
        assert!(bench.renewals()[0].since(led_at) <= TTL / 4);
    });
}
