//! Ids and bodies of any bytes, up to the limits.

use super::{
    StorageUnderTest,
    limits::limits,
    stage::{Stage, delete, document, id, put},
};
use crate::{
    Document, Key,
    testing::contract::{hostile::hostile_names, scene::held},
};

/// Ids within the limits that an encoding may confuse, in order.
fn hostile_ids(most: usize) -> Vec<Vec<u8>> {
    let mut names = hostile_names();
    for byte in [0, 1, b'x', 0xfe, 0xff] {
        names.extend([most - 1, most].map(|length| vec![byte; length]));
    }
    // Equal except for the last byte: a storage that cuts ids would confuse them.
    names.extend([b'a', b'b'].map(|last| [vec![b'y'; most - 1], vec![last]].concat()));
    // In the middle, at the end, doubled: as separators and terminators are encoded.
    names
        .extend((0..4_u8).flat_map(|end| [vec![b'a', 0, end], vec![b'a', 0xff, end], vec![0xff, 0xff, end]]));
    names.retain(|name| (1..=most).contains(&name.len()));
    names.sort();
    names.dedup();
    names
}

/// Documents of any ids are independent of each other and of the record.
pub async fn documents_of_any_id_are_independent(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    let ids = hostile_ids(limits(&stage).max_id_bytes);
    let body = |name: &Vec<u8>| {
        format!("{} bytes, {}", name.len(), name.iter().take(9).map(u8::to_string).collect::<String>())
    };
    let puts: Vec<_> = ids.iter().map(|name| put(name, body(name))).collect();
    let mut last = stage.all_written(0, &puts).await;
    let shown = stage.shown().await;
    // A scan returns them in byte order.
    assert_eq!(shown.iter().map(|document| document.id.as_bytes()).collect::<Vec<_>>(), ids);
    for (name, shown) in ids.iter().zip(&shown) {
        assert_eq!(shown.body, body(name), "{name:?}");
        assert_eq!(stage.document(&id(name)).await.as_ref(), Some(shown), "{name:?}");
    }
    assert_eq!(stage.scene.stands().await, held(&stage.entry));

    let (kept, gone): (Vec<_>, Vec<_>) = ids.iter().enumerate().partition(|(number, _)| number % 2 == 0);
    let deletes: Vec<_> = gone.iter().map(|(_, name)| delete(name)).collect();
    last = stage.all_written(last, &deletes).await;
    let expected: Vec<&Document> = kept.iter().map(|(number, _)| &shown[*number]).collect();
    assert_eq!(stage.shown().await.iter().collect::<Vec<_>>(), expected);
    for (_, name) in gone {
        assert_eq!(stage.document(&id(name)).await, None, "{name:?}");
    }
    assert_eq!((stage.last().await, stage.scene.stands().await), (last, held(&stage.entry)));
}

/// Bodies are kept byte for byte: empty, all bytes, the longest. A shorter or longer one replaces another as
/// a whole.
pub async fn bodies_of_any_bytes_are_kept(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    let longest = limits(&stage).max_body_bytes;
    let bodies = [
        vec![],
        vec![0],
        vec![0, 0, b'a'],
        vec![0xff],
        (0..=255).collect(),
        (0..=255).rev().collect(),
        vec![0; longest],
        (0..longest).map(|number| (number % 251) as u8).collect(),
    ];
    let mut last = 0;
    // Each document gets each body in turn, first forwards and then backwards.
    for round in 0..3 {
        let body = |number: usize| &bodies[if round == 1 { bodies.len() - 1 - number } else { number }];
        let puts: Vec<_> = (0..bodies.len()).map(|number| put([number as u8], body(number))).collect();
        last = stage.all_written(last, &puts).await;
        let shown = stage.shown().await;
        assert_eq!(shown.len(), bodies.len());
        for (number, shown) in shown.into_iter().enumerate() {
            assert!(shown.body == body(number), "body {number} is not as it was, round {round}");
            assert!(stage.document(&shown.id).await == Some(shown), "body {number}, round {round}");
        }
    }
}

/// Keys that are prefixes of one another, with ids that complete them to the same bytes.
pub async fn documents_of_different_keys_are_independent(storage: &impl StorageUnderTest) {
    let names: [&[u8]; 9] = [b"", b"a", b"aa", b"a\0", b"a\0\0", b"\0a", b"aaa", b"a\xff", b"\xff"];
    let ids: [&[u8]; 7] = [b"a", b"aa", b"\0", b"\0a", b"a\0", b"\xff", b"\x01"];
    let mut stages = Vec::new();
    for name in names {
        stages.push(Stage::led_at(storage, name).await);
    }
    // Another number of batches at each key, so that a shared count would show.
    for (number, stage) in (1_u8..).zip(&stages) {
        for after in 0..number {
            let puts = ids.map(|id| put(id, [number, after]));
            stage.written(after.into(), &puts).await;
        }
    }
    for (number, stage) in (1_u8..).zip(&stages) {
        stands(stage, number, &ids).await;
    }
    for (number, stage) in (1_u8..).zip(&stages).step_by(2) {
        stage.written(number.into(), &ids.map(delete)).await;
        stage.scene.release(&stage.entry).await;
    }
    for (number, stage) in (1_u8..).zip(&stages) {
        if number % 2 == 1 {
            assert_eq!((stage.last().await, stage.shown().await), (u64::from(number) + 1, vec![]));
        } else {
            stands(stage, number, &ids).await;
        }
    }
}

async fn stands<K: Key>(stage: &Stage<K>, number: u8, ids: &[&[u8]]) {
    let mut expected: Vec<_> =
        ids.iter().map(|id| document(id, number.into(), [number, number - 1])).collect();
    expected.sort_by(|one, other| one.id.cmp(&other.id));
    assert_eq!((stage.last().await, stage.shown().await), (number.into(), expected), "{:?}", stage.scene.key);
    assert_eq!(stage.scene.stands().await, held(&stage.entry), "{:?}", stage.scene.key);
}
