//! Many callers, some of whom give up half-way, on a storage that fails in every way, by many seeds: whatever
//! was answered is what happened, once.

use super::*;
use futures_util::future::join_all;
use ielections::{DocumentVersion, DocumentWriteError};
use std::{cell::RefCell, collections::BTreeMap};

const CALLERS: usize = 4;
const WRITES: usize = 12;
const SEEDS: u64 = 300;

/// What a caller was told of one of its writes.
#[derive(Debug)]
enum Heard {
    Written(DocumentVersion),
    /// It was dropped, or nobody knows.
    Nothing,
    Never(&'static str),
}

fn heard(answer: Result<DocumentVersion, DocumentWriteError>) -> Heard {
    match answer {
        Ok(version) => Heard::Written(version),
        Err(DocumentWriteError::Unknown { .. }) => Heard::Nothing,
        Err(DocumentWriteError::Conflict { .. }) => Heard::Never("conflict"),
        Err(DocumentWriteError::NotWritten { .. }) => Heard::Never("not written"),
        Err(
            other @ (DocumentWriteError::Deposed { .. }
            | DocumentWriteError::Lost(_)
            | DocumentWriteError::Refused { .. }
            | DocumentWriteError::TooLarge(_)),
        ) => panic!("nothing here makes a write end so: {other:?}"),
    }
}

/// What came of all writes of one seed, by what each wrote.
async fn run(bench: &Bench, documents: &Documents, seed: u64) -> BTreeMap<String, Heard> {
    bench.storage.at_random(Some(seed));
    let all = RefCell::new(BTreeMap::new());
    let caller = async |caller: usize| {
        let mut dice = fastrand::Rng::with_seed(seed * 1000 + caller as u64);
        // What it believes to stand of the document that all share.
        let mut shared = OnlyIf::Absent;
        for n in 0..WRITES {
            let body = format!("{caller:02}-{n:03}");
            let mut batch = vec![put(&format!("own {caller}"), &body)];
            if dice.u8(0..3) == 0 {
                batch.push(put_if("shared", &body, shared));
            }
            let patience =
                Duration::from_millis(if dice.u8(0..5) == 0 { dice.u64(0..3000) } else { 600_000 });
            let conditional = batch.len() == 2;
            let answer = tokio::select! {
                biased;
                answer = documents.write(batch) => heard(answer),
                () = bench.clock.sleep(patience) => Heard::Nothing,
            };
            match &answer {
                Heard::Written(version) if conditional => shared = OnlyIf::Version(*version),
                Heard::Never("conflict") => {
                    assert!(conditional, "{body} has no condition that could fail");
                    if let Ok(found) = documents.get(&id("shared")).await {
                        shared = found.map_or(OnlyIf::Absent, |found| OnlyIf::Version(found.version));
                    }
                }
                Heard::Written(_) | Heard::Nothing | Heard::Never(_) => {}
            }
            all.borrow_mut().insert(body, answer);
            bench.clock.sleep(Duration::from_millis(dice.u64(0..500))).await;
        }
    };
    join_all((0..CALLERS).map(caller)).await;
    bench.storage.at_random(None);
    all.into_inner()
}

/// Holds what was answered against what landed.
fn check(bench: &Bench, heard: &BTreeMap<String, Heard>, seed: u64) {
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
            (Heard::Written(version), Some(number)) => {
                assert_eq!(version.get(), *number as u64, "seed {seed}: {body}")
            }
            (Heard::Written(_), None) => panic!("seed {seed}: {body} was written, and never landed"),
            (Heard::Never(why), Some(_)) => panic!("seed {seed}: {body} landed, and its caller heard: {why}"),
            (Heard::Never(_), None) | (Heard::Nothing, _) => {}
        }
    }
}

/// Shows I2.
#[test]
fn whatever_is_answered_is_what_happened() {
    let seen = RefCell::new(BTreeMap::<&str, usize>::new());
    for seed in 0..SEEDS {
        let bench = Bench::new();
        on(&bench.clock, async {
            let process = bench.process();
            let leadership = lead(&process).await;
            let documents = documents(&leadership);
            let heard = run(&bench, &documents, seed).await;
            // What is still under way arrives, before and after whatever was in doubt is settled.
            if seed % 2 == 0 {
                bench.storage.land_late();
            }
            documents.write(Vec::new()).await.unwrap();
            bench.storage.land_late();
            check(&bench, &heard, seed);
            let mut seen = seen.borrow_mut();
            for heard in heard.values() {
                let kind = match heard {
                    Heard::Written(_) => "written",
                    Heard::Nothing => "nothing",
                    Heard::Never(why) => why,
                };
                *seen.entry(kind).or_default() += 1;
            }
            *seen.entry("shared").or_default() +=
                bench.storage.landed().iter().filter(|batch| batch.len() > 2).count();
            assert!(leadership.standing().loss().is_none(), "seed {seed}");
        });
    }
    // A run in which nothing went wrong would show nothing.
    let seen = seen.into_inner();
    for (kind, least) in [("written", 5000), ("nothing", 200), ("conflict", 200), ("shared", 500)] {
        assert!(seen.get(kind).copied().unwrap_or_default() >= least, "{seen:?}");
    }
}
