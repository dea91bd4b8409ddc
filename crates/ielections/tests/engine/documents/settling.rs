//! Batches without an answer, or with a refusal: each is applied at most once, in order, and its callers get
//! the outcome.

use super::*;
use futures_util::future::join_all;
use ielections::{DocumentVersion, DocumentWriteError, testing::mock::Odds};
use std::{cell::RefCell, collections::BTreeMap};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn batch_without_an_answer_is_resolved_and_applied_once() {
    // What becomes of the first request, and how many requests are sent in all.
    for (fate, sent) in [
        (Fault::LostAnswer, 1),
        (Fault::LostRequest, 2),
        (Fault::NotApplied, 2),
        // Arrives before the second copy, which is then refused.
        (Fault::Late(PAUSE), 2),
        // Arrives after the second copy.
        (Fault::Late(PAUSE * 2), 2),
        // Takes longer than the timeout of an attempt.
        (Fault::SlowAnswer(ATTEMPT * 2), 1),
        (Fault::SlowRequest(ATTEMPT + SECOND / 2), 2),
        (Fault::Hang, 2),
        (Fault::Panic, 2),
        // The copy is refused.
        (Fault::Doubled(PAUSE), 1),
    ] {
        led(async |Led { bench, documents, .. }| {
            bench.writes([fate]);
            let first = documents.write(vec![put("a", "1")]).await.unwrap();
            assert_eq!(bench.sent(), sent, "{fate:?}");
            let second = documents.write(vec![put("a", "2")]).await.unwrap();
            assert_eq!(second, first.next(), "{fate:?}");
            bench.faulty.land_late().await;
            assert_eq!(bench.landed(), [["1"], ["2"]], "{fate:?}");
            let copies = u64::from(matches!(fate, Fault::Doubled(_)));
            assert_eq!(bench.faulty.counts().doubled, copies, "{fate:?}");
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

const CALLERS: usize = 4;
const WRITES: usize = 12;
const SEEDS: u64 = 300;
const ODDS: Odds = Odds {
    not_applied: 0.05,
    fatal: 0.0,
    lost_request: 0.07,
    lost_answer: 0.08,
    slow_request: 0.1,
    slow_answer: 0.07,
    late: 0.05,
    doubled: 0.03,
    hang: 0.03,
    // Twice the timeout of an attempt.
    longest_delay: Duration::from_secs(4),
};

/// What the caller of one write knows of it.
#[derive(Debug)]
enum Outcome {
    Written(DocumentVersion),
    /// The call was dropped, or answered so.
    Unknown,
    NotWritten(&'static str),
}

fn outcome(answer: Result<DocumentVersion, DocumentWriteError>) -> Outcome {
    match answer {
        Ok(version) => Outcome::Written(version),
        Err(DocumentWriteError::Unknown { .. }) => Outcome::Unknown,
        Err(DocumentWriteError::Conflict { .. }) => Outcome::NotWritten("conflict"),
        Err(DocumentWriteError::NotWritten { .. }) => Outcome::NotWritten("not written"),
        Err(
            other @ (DocumentWriteError::Deposed { .. }
            | DocumentWriteError::Lost(_)
            | DocumentWriteError::Refused { .. }
            | DocumentWriteError::TooLarge(_)),
        ) => panic!("unexpected end of a write: {other:?}"),
    }
}

/// Runs the writes of one seed. Returns the outcome of each by its body.
async fn run(bench: &Bench, documents: &Documents, seed: u64) -> BTreeMap<String, Outcome> {
    bench.faulty.fail_at_random(ODDS, seed);
    // Renewals succeed, so that the leadership lasts.
    Verb::RECORDS.into_iter().for_each(|verb| bench.faulty.pass_always(verb));
    let all = RefCell::new(BTreeMap::new());
    let caller = async |caller: usize| {
        let mut dice = fastrand::Rng::with_seed(seed * 1000 + caller as u64);
        // The version of the shared document, as this caller last saw it.
        let mut shared = OnlyIf::Absent;
        for n in 0..WRITES {
            let body = format!("{caller:02}-{n:03}");
            let mut batch = vec![put(&format!("own {caller}"), &body)];
            if dice.u8(0..3) == 0 {
                batch.push(put_if("shared", &body, shared));
            }
            let timeout = Duration::from_millis(if dice.u8(0..5) == 0 { dice.u64(0..3000) } else { 600_000 });
            let conditional = batch.len() == 2;
            let answer = tokio::select! {
                biased;
                answer = documents.write(batch) => outcome(answer),
                () = bench.clock.sleep(timeout) => Outcome::Unknown,
            };
            match &answer {
                Outcome::Written(version) if conditional => shared = OnlyIf::Version(*version),
                Outcome::NotWritten("conflict") => {
                    assert!(conditional, "{body} has no condition that could fail");
                    if let Ok(found) = documents.get(&id("shared")).await {
                        shared = found.map_or(OnlyIf::Absent, |found| OnlyIf::Version(found.version));
                    }
                }
                Outcome::Written(_) | Outcome::Unknown | Outcome::NotWritten(_) => {}
            }
            all.borrow_mut().insert(body, answer);
            bench.clock.sleep(Duration::from_millis(dice.u64(0..500))).await;
        }
    };
    join_all((0..CALLERS).map(caller)).await;
    bench.faulty.heal();
    all.into_inner()
}

/// Compares what the callers know with the applied batches.
fn check(bench: &Bench, outcomes: &BTreeMap<String, Outcome>, seed: u64) {
    let mut landed: BTreeMap<String, usize> = BTreeMap::new();
    let mut last = vec![String::new(); CALLERS];
    for (number, batch) in bench.landed().into_iter().enumerate() {
        let mut bodies = batch;
        bodies.dedup();
        for body in bodies {
            let caller: usize = body[..2].parse().unwrap();
            assert!(last[caller] < body, "seed {seed}: {body} landed behind {}", last[caller]);
            last[caller].clone_from(&body);
            assert_eq!(landed.insert(body.clone(), number + 1), None, "seed {seed}: {body} landed twice");
        }
    }
    for (body, outcome) in outcomes {
        match (outcome, landed.get(body)) {
            (Outcome::Written(version), Some(number)) => {
                assert_eq!(version.get(), *number as u64, "seed {seed}: {body}")
            }
            (Outcome::Written(_), None) => {
                panic!("seed {seed}: {body} was answered as written, and not applied")
            }
            (Outcome::NotWritten(why), Some(_)) => {
                panic!("seed {seed}: {body} was applied, and its caller got: {why}")
            }
            (Outcome::NotWritten(_), None) | (Outcome::Unknown, _) => {}
        }
    }
}

/// Shows I2.
#[test]
fn every_answer_is_true_under_random_faults() {
    let seen = RefCell::new(BTreeMap::<&str, usize>::new());
    for seed in 0..SEEDS {
        led(async |Led { bench, leadership, documents, .. }| {
            let outcomes = run(&bench, &documents, seed).await;
            // Late requests arrive before the next write settles the unknown outcomes, or after it.
            if seed % 2 == 0 {
                bench.faulty.land_late().await;
            }
            documents.write(Vec::new()).await.unwrap();
            bench.faulty.land_late().await;
            check(&bench, &outcomes, seed);
            let mut seen = seen.borrow_mut();
            for outcome in outcomes.values() {
                let kind = match outcome {
                    Outcome::Written(_) => "written",
                    Outcome::Unknown => "unknown",
                    Outcome::NotWritten(why) => why,
                };
                *seen.entry(kind).or_default() += 1;
            }
            *seen.entry("shared").or_default() +=
                bench.faulty.batches().iter().filter(|batch| batch.len() > 2).count();
            assert!(leadership.standing().loss().is_none(), "seed {seed}");
        });
    }
    // Each kind has to occur, or the test would show nothing about it.
    let seen = seen.into_inner();
    for (kind, least) in [("written", 5000), ("unknown", 200), ("conflict", 200), ("shared", 500)] {
        assert!(seen.get(kind).copied().unwrap_or_default() >= least, "{seen:?}");
    }
}
