//! The end of a leadership, for its documents: deposed, lost, closing, or behind a storage that does not
//! answer.

use super::*;
use futures_util::future::join_all;
use ielections::{
    DocumentReadError, DocumentWriteError, Entry, Epoch, Incarnation, Loss, Scan, Version,
    testing::mock::{Fault, Verb},
};
use storage::{Call, Fate};

fn usurper() -> Entry {
    Entry {
        holder: Holder::new("another").unwrap(),
        version: Version { incarnation: Incarnation::from_bytes([7; 16]), write: 0 },
        ttl: Ttl::DEFAULT,
        epoch: Epoch::new(u64::from(u32::MAX) << 16).unwrap(),
    }
}

#[test]
fn who_is_deposed_learns_it_from_a_write_stops_and_asks_no_more() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let leadership = lead(&process).await;
        let documents = documents(&leadership);
        documents.write(vec![put("a", "1")]).await.unwrap();
        bench.records.tamper(&KEY, usurper()).await.unwrap();
        let current = Some(usurper().epoch);
        let deposed = documents.write(vec![put("a", "2")]).await.unwrap_err();
        assert_eq!(deposed, DocumentWriteError::Deposed { current });
        // The leadership is lost at once, as by a renewal that finds somebody else's record.
        let before = bench.clock.now();
        assert_eq!(leadership.lost().await, Loss::Stolen { by: Box::new(usurper()) });
        assert!(bench.clock.now().since(before) < Duration::from_millis(1));
        let asked = bench.storage.calls().len();
        documents.write(vec![put("a", "3")]).await.unwrap_err();
        let read = documents.get(&id("a")).await.unwrap_err();
        assert!(matches!(read, DocumentReadError::Deposed { .. } | DocumentReadError::Lost(_)), "{read:?}");
        assert_eq!(bench.storage.calls().len(), asked);
        assert_eq!(bench.landed(), [["1"]]);
        // Work has as long to stop as by any other mismatch, and not the rest of the TTL.
        let (deadline, _) = process.trigger.earliest().unwrap();
        assert!(deadline.since(before) <= TTL * 15 / 100);
    });
}

/// The engine takes the renewal's answer and the report of a stranger's record in one round, and tells the
/// deadman of confirmed renewals at the end of it.
/// Shows I4.
#[test]
fn deadline_of_a_loss_is_not_moved_by_a_renewal_confirmed_in_the_same_round() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let leadership = lead(&process).await;
        let documents = documents(&leadership);
        let armed_until = leadership.standing().kill_at();
        // Just before the renewal, which waits a pause for the read and then goes beside it.
        bench.clock.sleep_until(armed_until.before(TTL * 8 / 10).after(TTL * 23 / 100)).await;
        bench.storage.reads([Fate::Slow(ATTEMPT * 9 / 10)]);
        bench.records.fail_next(Verb::CompareAndSwap, Fault::SlowAnswer(PAUSE / 10));
        let read_until = bench.clock.now().after(ATTEMPT * 9 / 10);
        let a = id("a");
        let mut read = Box::pin(documents.get(&a));
        assert!(waits(&mut read).await);
        bench.until(|| bench.storage.count(Call::Renewal) == 1).await;
        bench.records.tamper(&KEY, usurper()).await.unwrap();
        // Nothing yields to the engine from here until both answers wait for it.
        assert!(bench.clock.now() < read_until);
        bench.clock.advance_to(read_until);
        assert!(!waits(&mut read).await, "the stranger's record was not reported");

        let tightened = bench.clock.now().after(TTL * 15 / 100);
        assert_eq!(leadership.lost().await, Loss::Stolen { by: Box::new(usurper()) });
        assert!(leadership.standing().kill_at() > armed_until, "the renewal was not confirmed");
        assert_eq!(process.trigger.earliest().map(|(at, _)| at), Some(tightened));
    });
}

#[test]
fn whose_record_vanished_is_deposed_too() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let leadership = lead(&process).await;
        bench.records.wipe(&KEY).await.unwrap();
        let documents = documents(&leadership);
        // By its first read already, which reads the count.
        let read = documents.scan(&Scan { limit: 1, ..Scan::default() }).await.unwrap_err();
        assert!(matches!(read, DocumentReadError::Deposed { current: None }), "{read:?}");
        assert_eq!(leadership.lost().await, Loss::Vanished);
        let _ = leadership.release().await;
    });
}

#[test]
fn a_storage_that_was_replaced_ends_it() {
    for reads in [false, true] {
        let bench = Bench::new();
        on(&bench.clock, async {
            let process = bench.process();
            let leadership = lead(&process).await;
            let documents = documents(&leadership);
            if reads {
                bench.storage.reads([Fate::Replaced])
            } else {
                bench.storage.writes([Fate::Replaced])
            }
            for _ in 0..2 {
                let lost = documents.write(vec![put("a", "1")]).await.unwrap_err();
                assert!(matches!(lost, DocumentWriteError::Lost(Loss::StorageReplaced { .. })), "{lost:?}");
            }
            assert!(bench.storage.landed().is_empty());
            let _ = leadership.release().await;
        });
    }
}

#[test]
fn everybody_who_waits_hears_of_the_deposition() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let leadership = lead(&process).await;
        let documents = documents(&leadership);
        bench.storage.writes([Fate::Slow(PAUSE)]);
        let writes = join_all((0..20).map(|n| documents.write(vec![put(&n.to_string(), "x")])));
        let depose = async {
            bench.until(|| bench.storage.sent() == 1).await;
            bench.records.tamper(&KEY, usurper()).await.unwrap();
        };
        let (answers, ()) = tokio::join!(writes, depose);
        for answer in answers {
            let refused = answer.unwrap_err();
            assert!(
                matches!(refused, DocumentWriteError::Deposed { .. } | DocumentWriteError::Lost(_)),
                "{refused:?}"
            );
        }
        assert_eq!(bench.storage.landed().len(), 0);
    });
}

/// Shows I2.
#[test]
fn a_write_of_a_paused_leader_is_refused_once_another_has_taken_over() {
    for wrote in [false, true] {
        let bench = Bench::new();
        on(&bench.clock, async {
            let (paused, next) = (bench.process(), bench.process());
            let leadership = lead(&paused).await;
            let documents_of_paused = documents(&leadership);
            documents_of_paused.write(vec![put("a", "1")]).await.unwrap();
            // On the wire when the process stops to run.
            bench.storage.writes([Fate::Slow(TTL * 3)]);
            let mut on_the_wire = Box::pin(documents_of_paused.write(vec![put("a", "late")]));
            assert!(waits(&mut on_the_wire).await);
            paused.crash();
            let successor = lead(&next).await;
            let documents = documents(&successor);
            if wrote {
                documents.write(vec![put("a", "2")]).await.unwrap();
            }
            bench.storage.land_late();
            on_the_wire.await.unwrap_err();
            let body = documents.get(&id("a")).await.unwrap().unwrap().body;
            assert_eq!(body, if wrote { "2" } else { "1" });
            let _ = successor.release().await;
        });
    }
}

#[test]
fn while_elections_close_a_service_can_still_write_where_it_stopped() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let leadership = lead(&process).await;
        let documents = documents(&leadership);
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
fn a_leadership_that_was_handed_back_writes_nothing() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let leadership = lead(&process).await;
        let documents = documents(&leadership);
        let _ = leadership.release().await;
        let refused = documents.write(vec![put("a", "1")]).await.unwrap_err();
        assert_eq!(refused, DocumentWriteError::Lost(Loss::HandedBack));
        assert_eq!(bench.storage.calls(), []);
    });
}

#[test]
fn every_wait_ends_though_the_storage_hangs() {
    for opened in [false, true] {
        let bench = Bench::new();
        on(&bench.clock, async {
            let process = bench.process();
            let leadership = lead(&process).await;
            let documents = documents(&leadership);
            if opened {
                documents.write(Vec::new()).await.unwrap();
            }
            bench.storage.always(Some(Fate::Hang));
            let since = bench.clock.now();
            let writes = join_all((0..30).map(|n| documents.write(vec![put(&n.to_string(), "x")])));
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
            // Patience begins with the first failure, and what is under way at its end is waited for.
            assert!(bench.clock.now().since(since) <= ATTEMPT * 6 + PAUSE * 2);
            // Renewals went on meanwhile.
            assert!(leadership.standing().loss().is_none());
        });
    }
}

#[test]
fn nobody_waits_beyond_the_loss_of_the_leadership() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let leadership = lead(&process).await;
        let documents = documents(&leadership);
        documents.write(Vec::new()).await.unwrap();
        bench.records.fail_always(Verb::CompareAndSwap, Fault::Hang);
        bench.records.fail_always(Verb::Get, Fault::LostRequest);
        bench.clock.sleep(TTL * 6 / 10).await;
        bench.storage.always(Some(Fate::Hang));
        let writes = join_all((0..30).map(|n| documents.write(vec![put(&n.to_string(), "x")])));
        for answer in writes.await {
            let failed = answer.unwrap_err();
            assert!(matches!(failed, DocumentWriteError::Lost(_)), "{failed:?}");
        }
        assert!(bench.clock.now() <= leadership.standing().kill_at());
    });
}
