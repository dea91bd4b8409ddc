use super::*;
use futures_util::future::join_all;
use ielections::{
    DocumentReadError, DocumentStorage as _, DocumentVersion, DocumentWriteError, Entry, Fence, Loss, Scan,
};

fn successor() -> Entry {
    ielections::testing::entry(7, 0, u64::from(u32::MAX) << 16)
}

/// The engine handles a renewal's answer and a report of another record in one round, then moves deadlines. Shows I4.
#[test]
fn deadline_of_a_loss_is_not_moved_by_a_renewal_confirmed_in_the_same_round() {
    led(async |Led { bench, process, leadership, documents }| {
        let armed_until = leadership.standing().kill_at();
        bench.clock.sleep_until(armed_until.before(TTL * 8 / 10).after(TTL * 23 / 100)).await;
        bench.faulty.fail_next(Verb::FenceState, Fault::SlowRequest(ATTEMPT * 9 / 10));
        bench.faulty.fail_next(Verb::CompareAndSwap, Fault::SlowAnswer(PAUSE / 10));
        let read_until = bench.clock.now().after(ATTEMPT * 9 / 10);
        let a = id("a");
        let mut read = Box::pin(documents.get(&a));
        assert!(waits(&mut read).await);
        bench.until(|| bench.faulty.count(Verb::CompareAndSwap) == 1).await;
        bench.faulty.tamper(&KEY, successor()).await.unwrap();
        assert!(bench.clock.now() < read_until);
        bench.clock.advance_to(read_until);
        assert!(waits(&mut read).await, "answered before the engine knows");

        let tightened = bench.clock.now().after(TTL * 15 / 100);
        assert_eq!(leadership.lost().await, Loss::Stolen { by: Box::new(successor()) });
        read.await.unwrap_err();
        let renewed_until = leadership.standing().renewed_at().after(TTL * 8 / 10);
        assert!(renewed_until > armed_until, "the renewal was not confirmed");
        assert_eq!(process.trigger.earliest().map(|(at, _)| at), Some(tightened));
        assert_eq!(leadership.standing().kill_at(), tightened);
    });
}

#[test]
fn leader_without_a_record_is_deposed() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let leadership = lead(&process).await;
        bench.faulty.wipe(&KEY).await.unwrap();
        let documents = documents(&leadership);
        let read = documents.scan(&Scan { limit: 1, ..Scan::default() }).await.unwrap_err();
        assert!(matches!(read, DocumentReadError::Deposed { current: None }), "{read:?}");
        assert_eq!(leadership.standing().loss(), Some(&Loss::Vanished));
        let _ = leadership.release().await;
    });
}

#[test]
fn read_that_is_answered_after_the_release_fails() {
    led(async |Led { bench, leadership, documents, .. }| {
        documents.write(vec![put("a", "1")]).await.unwrap();
        bench.faulty.fail_next(Verb::Document, Fault::SlowAnswer(PAUSE));
        let a = id("a");
        let mut read = Box::pin(documents.get(&a));
        assert!(waits(&mut read).await);
        let _ = leadership.release().await;
        let late = read.await;
        assert!(matches!(late, Err(DocumentReadError::Lost(_))), "{late:?}");
    });
}

/// The next lease has the number of the one that has ended.
#[test]
fn record_that_was_read_for_an_earlier_lease_does_not_end_the_next_one() {
    led(async |Led { bench, process, leadership, documents }| {
        bench.faulty.fail_next(Verb::FenceState, Fault::SlowRequest(PAUSE));
        let a = id("a");
        let mut read = Box::pin(documents.get(&a));
        assert!(waits(&mut read).await);
        let _ = leadership.release().await;
        let next = crate::lead(&process, KEY + 1).await;
        read.await.unwrap_err();
        bench.clock.sleep(PAUSE).await;
        assert_eq!(next.standing().loss(), None);
        let _ = next.release().await;
    });
}

impl Led {
    async fn loses_at_once(self) {
        let Self { bench, process, leadership, documents } = self;
        let lost = documents.write(vec![put("a", "too late")]).await.unwrap_err();
        assert!(matches!(lost, DocumentWriteError::Lost(Loss::StorageReplaced { .. })), "{lost:?}");
        let tightened = bench.clock.now().after(TTL * 15 / 100);
        let loss = leadership.standing().loss();
        assert!(matches!(loss, Some(Loss::StorageReplaced { .. })), "{loss:?}");
        assert_eq!(process.trigger.earliest().map(|(at, _)| at), Some(tightened));
        let _ = leadership.release().await;
    }
}

/// Before any renewal. Where its condition fails, the document is read. Shows I1.
#[test]
fn replaced_storage_ends_the_writer_and_the_leadership() {
    for verb in [Verb::FenceState, Verb::WriteDocuments, Verb::Document] {
        led(async |led| {
            let Led { bench, documents, .. } = &led;
            bench.faulty.fail_next(verb, Fault::Replaced);
            let lost = documents
                .write(vec![put_if("a", "1", OnlyIf::Version(DocumentVersion::from_stored(1)))])
                .await
                .unwrap_err();
            assert!(matches!(lost, DocumentWriteError::Lost(Loss::StorageReplaced { .. })), "{lost:?}");
            assert!(bench.faulty.batches().is_empty());
            led.loses_at_once().await;
        });
    }
    for (verb, scans) in [(Verb::FenceState, false), (Verb::Document, false), (Verb::ScanDocuments, true)] {
        led(async |led| {
            let Led { bench, documents, .. } = &led;
            bench.faulty.fail_next(verb, Fault::Replaced);
            let lost = match scans {
                true => documents.scan(&Scan::default()).await.map(drop).unwrap_err(),
                false => documents.get(&id("a")).await.map(drop).unwrap_err(),
            };
            assert!(matches!(lost, DocumentReadError::Lost(Loss::StorageReplaced { .. })), "{lost:?}");
            led.loses_at_once().await;
        });
    }
}

/// Only this leadership writes under its fence: a linearizable count that it did not cause is that of another storage.
#[test]
fn count_that_is_not_of_this_leadership_ends_it() {
    led(async |led| {
        let Led { bench, leadership, documents, .. } = &led;
        let mut after = documents.write(Vec::new()).await.unwrap();
        for _ in 0..2 {
            let (epoch, incarnation) = (leadership.epoch(), leadership.incarnation());
            let fence = Fence { epoch, incarnation, after };
            bench.faulty.write_documents(&KEY, &fence, &[]).await.unwrap();
            after = after.next();
        }
        documents.write(Vec::new()).await.unwrap_err();
        led.loses_at_once().await;
    });
}

#[test]
fn service_can_write_while_elections_close() {
    led(async |Led { bench, process, leadership, documents }| {
        let work = async {
            assert_eq!(leadership.lost().await, Loss::Closing);
            documents.write(vec![put("a", "stopped here")]).await.unwrap();
            let _ = leadership.release().await;
            documents.write(vec![put("a", "too late")]).await.unwrap_err();
        };
        tokio::join!(process.elections.cleanup(), work);
        assert_eq!(bench.landed(), [["stopped here"]]);
    });
}

#[test]
fn loss_while_elections_close_ends_the_writes() {
    led(async |Led { bench, process, leadership, documents }| {
        let work = async {
            assert_eq!(leadership.lost().await, Loss::Closing);
            bench.faulty.fail_always(Verb::CompareAndSwap, Fault::NotApplied);
            bench.clock.sleep(TTL * 7 / 10).await;
            let lost = documents.write(vec![put("a", "too late")]).await.unwrap_err();
            assert!(matches!(lost, DocumentWriteError::Lost(Loss::StorageUnreachable { .. })), "{lost:?}");
            assert_eq!(Some(leadership.lost().await), leadership.standing().loss().cloned());
            let _ = leadership.release().await;
        };
        tokio::join!(process.elections.cleanup(), work);
        assert!(bench.faulty.batches().is_empty());
    });
}

#[test]
fn every_wait_ends_while_the_storage_hangs() {
    for opened in [false, true] {
        led(async |Led { bench, leadership, documents, .. }| {
            if opened {
                documents.write(Vec::new()).await.unwrap();
            }
            bench.always(Fault::Hang);
            let since = bench.clock.now();
            let writes = join_all((0..30).map(|n| documents.write(vec![put(n.to_string(), "x")])));
            let id = id("a");
            let (answers, read) = tokio::join!(writes, documents.get(&id));
            for answer in answers {
                let failed = answer.unwrap_err();
                assert!(
                    matches!(
                        failed,
                        DocumentWriteError::NotWritten { .. } | DocumentWriteError::Unknown { .. }
                    ),
                    "{failed:?}"
                );
            }
            read.unwrap_err();
            // The timeout begins with the first failure. The call in flight at its end is awaited.
            assert!(bench.clock.now().since(since) <= ATTEMPT * 6 + PAUSE * 2);
            assert!(leadership.standing().loss().is_none());
        });
    }
}

#[test]
fn waits_end_with_the_loss_of_the_leadership() {
    led(async |Led { bench, leadership, documents, .. }| {
        documents.write(Vec::new()).await.unwrap();
        bench.faulty.fail_always(Verb::CompareAndSwap, Fault::Hang);
        bench.faulty.fail_always(Verb::Get, Fault::LostRequest);
        bench.clock.sleep(TTL * 6 / 10).await;
        bench.always(Fault::Hang);
        let writes = join_all((0..30).map(|n| documents.write(vec![put(n.to_string(), "x")])));
        for answer in writes.await {
            let failed = answer.unwrap_err();
            assert!(matches!(failed, DocumentWriteError::Lost(_)), "{failed:?}");
        }
        assert!(bench.clock.now() <= leadership.standing().kill_at());
    });
}
