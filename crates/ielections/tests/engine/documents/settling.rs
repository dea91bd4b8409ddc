//! Batches without an answer, or with a refusal: each is applied at most once, in order.

use super::*;
use ielections::DocumentWriteError;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn batch_without_an_answer_is_resolved_and_applied_once() {
    for (fate, sent) in [
        (Fault::LostAnswer, 1),
        (Fault::LostRequest, 2),
        (Fault::NotApplied, 2),
        // Arrives before the second copy, which is then refused.
        (Fault::Late(PAUSE), 2),
        // Arrives after the second copy.
        (Fault::Late(PAUSE * 2), 2),
        (Fault::SlowAnswer(ATTEMPT * 2), 1),
        (Fault::SlowRequest(ATTEMPT + SECOND / 2), 2),
        (Fault::Hang, 2),
    ] {
        led(async |Led { bench, documents, .. }| {
            bench.writes([fate]);
            let first = documents.write(vec![put("a", "1")]).await.unwrap();
            assert_eq!(bench.sent(), sent, "{fate:?}");
            let second = documents.write(vec![put("a", "2")]).await.unwrap();
            assert_eq!(second, first.next(), "{fate:?}");
            bench.faulty.land_late().await;
            assert_eq!(bench.landed(), [["1"], ["2"]], "{fate:?}");
        });
    }
}

#[test]
fn write_dropped_before_its_turn_is_not_sent() {
    led(async |Led { bench, documents, .. }| {
        bench.writes([Fault::SlowRequest(SECOND)]);
        let first = documents.write(vec![put("a", "1")]);
        let second = async {
            let mut dropped = Box::pin(documents.write(vec![put("b", "2")]));
            assert!(waits(&mut dropped).await);
            drop(dropped);
            documents.write(vec![put("c", "3")]).await
        };
        let (first, second) = tokio::join!(first, second);
        first.and(second).unwrap();
        assert_eq!(bench.landed(), [["1"], ["3"]]);
    });
}

#[test]
fn write_dropped_in_flight_does_not_delay_the_next_one() {
    for fate in [Fault::SlowRequest(SECOND), Fault::Late(SECOND), Fault::Hang] {
        led(async |Led { bench, documents, .. }| {
            bench.writes([fate]);
            let mut dropped = Box::pin(documents.write(vec![put("a", "1")]));
            assert!(waits(&mut dropped).await);
            assert_eq!(bench.sent(), 1, "{fate:?}");
            drop(dropped);
            let since = bench.clock.now();
            documents.write(vec![put("a", "2")]).await.unwrap();
            assert_eq!(bench.clock.now(), since, "{fate:?}");
            bench.faulty.land_late().await;
            assert_eq!(bench.landed(), [["1"], ["2"]], "{fate:?}");
        });
    }
}

#[test]
fn batch_that_never_arrived_is_not_written_and_may_be_retried() {
    led(async |Led { bench, documents, .. }| {
        let started = bench.clock.now();
        for (fate, certain) in [(Fault::NotApplied, false), (Fault::Fatal, true)] {
            bench.always(fate);
            let failed = documents.write(vec![put("a", "1")]).await.unwrap_err();
            let right = match failed {
                DocumentWriteError::NotWritten { .. } => !certain,
                DocumentWriteError::Refused { .. } => certain,
                _ => false,
            };
            assert!(right, "{fate:?}: {failed:?}");
            bench.faulty.heal();
            documents.write(Vec::new()).await.unwrap();
        }
        assert_eq!(bench.landed(), [[""; 0], [""; 0]]);
        // Three attempts and their pauses for the first write, and none for the other.
        assert!(bench.clock.now().since(started) <= ATTEMPT * 4 + PAUSE);
    });
}

#[test]
fn failed_condition_affects_only_its_caller() {
    for fate in [None, Some(Fault::LostAnswer), Some(Fault::Late(SECOND / 2))] {
        led(async |Led { bench, documents, .. }| {
            let stored = documents.write(vec![put("a", "1")]).await.unwrap();
            bench.writes([Fault::SlowRequest(SECOND)].into_iter().chain(fate));
            let conditional = |name: &str, body: &str, only_if| vec![put_if(name, body, only_if)];
            let (first, unconditional, exists, is_absent, holds, last) = tokio::join!(
                documents.write(vec![put("first", "first")]),
                documents.write(vec![put("b", "2")]),
                documents.write(conditional("a", "3", OnlyIf::Absent)),
                documents.write(conditional("none", "4", OnlyIf::Version(stored))),
                documents.write(conditional("c", "5", OnlyIf::Absent)),
                documents.write(vec![put("d", "6")]),
            );
            let version_of_rest = first.unwrap().next();
            for written in [unconditional, holds, last] {
                assert_eq!(written.unwrap(), version_of_rest, "{fate:?}");
            }
            let conflict = |name: &str, found| DocumentWriteError::Conflict { id: id(name), found };
            assert_eq!(exists.unwrap_err(), conflict("a", Some(stored)));
            assert_eq!(is_absent.unwrap_err(), conflict("none", None));
            bench.faulty.land_late().await;
            assert_eq!(bench.landed(), [vec!["1"], vec!["first"], vec!["2", "5", "6"]], "{fate:?}");
        });
    }
}
