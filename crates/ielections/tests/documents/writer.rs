//! Writes and reads without faults: which writes share a batch, in which order, within which limits.

use super::*;
use futures_util::future::join_all;
use ielections::{
    BeyondDocumentLimits, DocumentWriteError, Layer as _, Scan,
    testing::mock::{Fault, Verb},
};
use storage::{Call, Fate, LIMITS};
use vvm_clock::Instant;

const SECOND: Duration = Duration::from_secs(1);

/// Writes each batch while the first write is in flight.
async fn write_behind(documents: &Documents, bench: &Bench, batches: Vec<Vec<DocumentWrite>>) {
    bench.storage.writes([Fate::Slow(SECOND)]);
    let first = documents.write(vec![put("first", "first")]);
    let others = join_all(batches.into_iter().map(|batch| documents.write(batch)));
    let (first, others) = tokio::join!(first, others);
    first.unwrap();
    for other in others {
        other.unwrap();
    }
}

#[test]
fn reads_show_writes_and_versions_rise() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let leadership = lead(&process).await;
        let documents = documents(&leadership);
        let first = documents.write(vec![put("a", "1"), put("b", "1")]).await.unwrap();
        let second = documents.write(vec![put("b", "2")]).await.unwrap();
        assert_eq!(second, first.next());
        let read = documents.get(&id("b")).await.unwrap().unwrap();
        assert_eq!((read.version, &read.body[..]), (second, b"2".as_slice()));
        let page = documents.scan(&Scan { limit: 10, ..Scan::default() }).await.unwrap();
        let versions: Vec<_> = page.documents.iter().map(|document| document.version).collect();
        assert_eq!(versions, [first, second]);
        // The count is read once.
        assert_eq!(bench.storage.count(Call::FenceState), 1);
        let _ = leadership.release().await;
    });
}

#[test]
fn count_continues_over_leaderships() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let mut last = None;
        for _ in 0..3 {
            let leadership = lead(&process).await;
            let version = documents(&leadership).write(vec![put("a", "x")]).await.unwrap();
            assert!(Some(version) > last);
            last = Some(version);
            let _ = leadership.release().await;
        }
    });
}

#[test]
fn waiting_writes_share_one_batch_in_their_order() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let leadership = lead(&process).await;
        let batches = (0..5).map(|n| vec![put(&format!("{n}"), &format!("{n}"))]).collect();
        write_behind(&documents(&leadership), &bench, batches).await;
        assert_eq!(bench.landed(), [vec!["first"], vec!["0", "1", "2", "3", "4"]]);
    });
}

#[test]
fn shared_batch_keeps_the_limits_of_the_storage() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let leadership = lead(&process).await;
        let documents = documents(&leadership);
        // By number: 8 and 8 and 3.
        let batches = (0..19).map(|n| vec![put(&format!("{n}"), "x")]).collect();
        write_behind(&documents, &bench, batches).await;
        let sizes = |from: usize| bench.landed()[from..].iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes(0), [1, 8, 8, 3]);
        // By bytes: three bodies of 1024 and their ids fit into 4096, and a fourth does not.
        let body = "x".repeat(LIMITS.max_body_bytes);
        let batches = (0..5).map(|n| vec![put(&format!("{n}"), &body)]).collect();
        write_behind(&documents, &bench, batches).await;
        assert_eq!(sizes(4), [1, 3, 2]);
        // The batch of a caller is never split.
        let five = |from: usize| (from..from + 5).map(|n| put(&format!("{n}"), "x")).collect::<Vec<_>>();
        write_behind(&documents, &bench, vec![five(0), five(5), five(10)]).await;
        assert_eq!(sizes(7), [1, 5, 5, 5]);
    });
}

#[test]
fn two_writes_of_one_document_are_two_batches_in_their_order() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let leadership = lead(&process).await;
        let batches = vec![vec![put("a", "1")], vec![put("a", "2")], vec![put("b", "3")]];
        write_behind(&documents(&leadership), &bench, batches).await;
        assert_eq!(bench.landed(), [vec!["first"], vec!["1"], vec!["2", "3"]]);
        assert_eq!(bench.storage.body(&id("a")).unwrap(), "2");
    });
}

#[test]
fn batch_beyond_the_limits_is_refused_without_a_call() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let leadership = lead(&process).await;
        let documents = documents(&leadership);
        let too_many = (0..9).map(|n| put(&format!("{n}"), "x")).collect();
        let refused = documents.write(too_many).await.unwrap_err();
        let beyond = BeyondDocumentLimits::Batch { writes: 9, most: LIMITS.max_batch };
        assert_eq!(refused, DocumentWriteError::TooLarge(beyond));
        documents.get(&id(&"x".repeat(65))).await.unwrap_err();
        assert_eq!(bench.storage.calls(), []);
    });
}

#[test]
fn count_is_read_before_the_first_document() {
    for scans in [true, false] {
        let bench = Bench::new();
        on(&bench.clock, async {
            let process = bench.process();
            let leadership = lead(&process).await;
            let documents = documents(&leadership);
            // Of two concurrent reads, one reads the count for both.
            let read = || async {
                if scans {
                    documents.scan(&Scan { limit: 1, ..Scan::default() }).await.map(drop).unwrap();
                } else {
                    documents.get(&id("a")).await.map(drop).unwrap();
                }
            };
            bench.storage.reads([Fate::SlowAnswer(SECOND)]);
            tokio::join!(read(), read());
            let calls: Vec<Call> = bench.storage.calls().into_iter().map(|(call, _)| call).collect();
            let read = if scans { Call::Scan } else { Call::Document };
            assert_eq!(calls, [Call::FenceState, read, read]);
        });
    }
}

#[test]
fn empty_batch_checks_that_the_leadership_stands() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let leadership = lead(&process).await;
        let documents = documents(&leadership);
        documents.write(Vec::new()).await.unwrap();
        bench.records.wipe(&KEY).await.unwrap();
        let refused = documents.write(Vec::new()).await.unwrap_err();
        assert_eq!(refused, DocumentWriteError::Deposed { current: None });
    });
}

#[test]
fn storage_without_documents_gives_none() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let clock: Arc<dyn Clock> = Arc::new(bench.clock.clone());
        let storage = Storage::without_documents(Arc::clone(&bench.records) as _, Arc::clone(&clock));
        let process = Process::start(Arc::new(storage).into_storage(), clock);
        let leadership = lead(&process).await;
        assert!(leadership.standing().documents().is_none());
        let _ = leadership.release().await;
    });
}

#[test]
fn documents_that_outlive_their_elections_keep_nothing_alive() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let leadership = lead(&process).await;
        let documents = documents(&leadership);
        documents.write(vec![put("a", "1")]).await.unwrap();
        let _ = leadership.release().await;
        process.elections.cleanup().await;
        drop(process);
        assert_eq!(Arc::strong_count(&bench.storage), 1);
        documents.write(vec![put("a", "2")]).await.unwrap_err();
        documents.get(&id("a")).await.unwrap_err();
        assert_eq!(bench.landed(), [["1"]]);
    });
}

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
