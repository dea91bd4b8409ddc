//! Many callers, some of them dropped, on a storage with every fault, for many seeds: every answer is true,
//! and no batch is applied twice.

use super::*;
use futures_util::future::join_all;
use ielections::{DocumentVersion, DocumentWriteError};
use std::{cell::RefCell, collections::BTreeMap};

const CALLERS: usize = 4;
const WRITES: usize = 12;
const SEEDS: u64 = 300;

/// The answer to one write.
#[derive(Debug)]
enum Outcome {
    Written(DocumentVersion),
    /// The call was dropped, or its outcome is unknown.
    Nothing,
    Never(&'static str),
}

fn outcome(answer: Result<DocumentVersion, DocumentWriteError>) -> Outcome {
    match answer {
        Ok(version) => Outcome::Written(version),
        Err(DocumentWriteError::Unknown { .. }) => Outcome::Nothing,
        Err(DocumentWriteError::Conflict { .. }) => Outcome::Never("conflict"),
        Err(DocumentWriteError::NotWritten { .. }) => Outcome::Never("not written"),
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
    bench.storage.at_random(Some(seed));
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
                () = bench.clock.sleep(timeout) => Outcome::Nothing,
            };
            match &answer {
                Outcome::Written(version) if conditional => shared = OnlyIf::Version(*version),
                Outcome::Never("conflict") => {
                    assert!(conditional, "{body} has no condition that could fail");
                    if let Ok(found) = documents.get(&id("shared")).await {
                        shared = found.map_or(OnlyIf::Absent, |found| OnlyIf::Version(found.version));
                    }
                }
                Outcome::Written(_) | Outcome::Nothing | Outcome::Never(_) => {}
            }
            all.borrow_mut().insert(body, answer);
            bench.clock.sleep(Duration::from_millis(dice.u64(0..500))).await;
        }
    };
    join_all((0..CALLERS).map(caller)).await;
    bench.storage.at_random(None);
    all.into_inner()
}

/// Compares the answers with the applied batches.
fn check(bench: &Bench, heard: &BTreeMap<String, Outcome>, seed: u64) {
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
    for (body, heard) in heard {
        match (heard, landed.get(body)) {
            (Outcome::Written(version), Some(number)) => {
                assert_eq!(version.get(), *number as u64, "seed {seed}: {body}")
            }
            (Outcome::Written(_), None) => {
                panic!("seed {seed}: {body} was answered as written, and not applied")
            }
            (Outcome::Never(why), Some(_)) => {
                panic!("seed {seed}: {body} was applied, and its caller got: {why}")
            }
            (Outcome::Never(_), None) | (Outcome::Nothing, _) => {}
        }
    }
}

/// Shows I2.
#[test]
fn every_answer_is_true_under_random_faults() {
    let seen = RefCell::new(BTreeMap::<&str, usize>::new());
    for seed in 0..SEEDS {
        let bench = Bench::new();
        on(&bench.clock, async {
            let process = bench.process();
            let leadership = lead(&process).await;
            let documents = documents(&leadership);
            let heard = run(&bench, &documents, seed).await;
            // Calls in flight arrive, before and after unknown outcomes are settled.
            if seed % 2 == 0 {
                bench.storage.land_late();
            }
            documents.write(Vec::new()).await.unwrap();
            bench.storage.land_late();
            check(&bench, &heard, seed);
            let mut seen = seen.borrow_mut();
            for heard in heard.values() {
                let kind = match heard {
                    Outcome::Written(_) => "written",
                    Outcome::Nothing => "nothing",
                    Outcome::Never(why) => why,
                };
                *seen.entry(kind).or_default() += 1;
            }
            *seen.entry("shared").or_default() +=
                bench.storage.landed().iter().filter(|batch| batch.len() > 2).count();
            assert!(leadership.standing().loss().is_none(), "seed {seed}");
        });
    }
    // Without faults the test would show nothing.
    let seen = seen.into_inner();
    for (kind, least) in [("written", 5000), ("nothing", 200), ("conflict", 200), ("shared", 500)] {
        assert!(seen.get(kind).copied().unwrap_or_default() >= least, "{seen:?}");
    }
}
