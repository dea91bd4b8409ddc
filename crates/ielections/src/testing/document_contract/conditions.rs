//! Conditions of single writes: one that does not hold refuses the whole batch.

use super::{
    StorageUnderTest,
    stage::{Stage, delete, delete_if, document, id, put, put_if, version},
};
use crate::{DocumentWrite, Key, OnlyIf};

/// The state of a document when a condition is evaluated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    /// Put by the first batch.
    Here,
    /// Put by the first batch, deleted by the second.
    Deleted,
    Never,
}

/// Each condition, and whether it holds if the document has version 1, and if it does not exist.
const CONDITIONS: [(OnlyIf, bool, bool); 6] = [
    (OnlyIf::Always, true, true),
    (OnlyIf::Absent, false, true),
    (OnlyIf::Version(version(1)), true, false),
    // The version of another batch, of none, of a later one.
    (OnlyIf::Version(version(2)), false, false),
    (OnlyIf::Version(version(0)), false, false),
    (OnlyIf::Version(version(3)), false, false),
];

/// A put is applied exactly if its condition holds.
pub async fn a_put_applies_exactly_if_its_condition_holds(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    every_condition(&stage, |name, only_if| put_if(name, "put", only_if)).await;
}

/// A delete is applied exactly if its condition holds.
pub async fn a_delete_applies_exactly_if_its_condition_holds(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    every_condition(&stage, delete_if).await;
}

async fn every_condition<K: Key>(stage: &Stage<K>, write: impl Fn(String, OnlyIf) -> DocumentWrite) {
    let name = |standing: Standing, number: usize| format!("{standing:?} {number}");
    let names = |standing| (0..CONDITIONS.len()).map(move |number| name(standing, number));
    let puts: Vec<_> =
        names(Standing::Here).chain(names(Standing::Deleted)).map(|name| put(name, "before")).collect();
    let deletes: Vec<_> = names(Standing::Deleted).map(delete).collect();
    stage.written(0, &puts).await;
    stage.written(1, &deletes).await;
    let mut last = 2;
    for standing in [Standing::Here, Standing::Deleted, Standing::Never] {
        for (number, (only_if, if_here, if_not)) in CONDITIONS.into_iter().enumerate() {
            let name = name(standing, number);
            let write = write(name.clone(), only_if);
            let what = format!("{standing:?}, {write:?}");
            if if standing == Standing::Here { if_here } else { if_not } {
                stage.written(last, std::slice::from_ref(&write)).await;
                last += 1;
                let expected = match write {
                    DocumentWrite::Put { .. } => Some(document(&name, last, "put")),
                    DocumentWrite::Delete { .. } => None,
                };
                assert_eq!(stage.document(&id(&name)).await, expected, "{what}");
            } else {
                stage.refuses(&what, &stage.fence(last), &[write]).await;
            }
        }
    }
    assert_eq!(stage.last().await, last);
}

/// A condition that fails, at any place in the batch, refuses the batch, which is not counted.
pub async fn one_failing_condition_refuses_the_batch(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    stage.written(0, &[put("a", "1"), put("b", "1")]).await;
    let failing = [
        put_if("a", "2", OnlyIf::Absent),
        put_if("a", "2", OnlyIf::Version(version(2))),
        put_if("x", "2", OnlyIf::Version(version(1))),
        delete_if("a", OnlyIf::Absent),
        delete_if("a", OnlyIf::Version(version(2))),
        delete_if("x", OnlyIf::Version(version(1))),
    ];
    for failing in failing {
        let holding =
            [put("c", "2"), put_if("b", "2", OnlyIf::Version(version(1))), put_if("d", "2", OnlyIf::Absent)];
        for position in 0..=holding.len() {
            let mut batch = holding.to_vec();
            batch.insert(position, failing.clone());
            stage.refuses(&format!("{failing:?} at {position}"), &stage.fence(1), &batch).await;
        }
    }
    assert_eq!(stage.shown().await, [document("a", 1, "1"), document("b", 1, "1")]);
    let all_hold = [
        put_if("a", "2", OnlyIf::Version(version(1))),
        delete_if("b", OnlyIf::Version(version(1))),
        put_if("c", "2", OnlyIf::Absent),
        delete_if("d", OnlyIf::Absent),
    ];
    stage.written(1, &all_hold).await;
    assert_eq!(stage.shown().await, [document("a", 2, "2"), document("c", 2, "2")]);
}
