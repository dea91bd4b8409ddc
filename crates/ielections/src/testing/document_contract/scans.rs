#![allow(missing_docs, reason = "the name of a case says what it shows")]

use super::{
    StorageUnderTest,
    fences::limits,
    stage::{Stage, delete, document, id, put, read_document, read_state, scan_all, settled},
};
use crate::{BatchOutcome, Document, Key, Scan};
use bytes::Bytes;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ids with prefixes that end in any byte, some of them ids themselves.
const IDS: [&[u8]; 14] = [
    b"\0",
    b"\0\0",
    b"a",
    b"a\0",
    b"a\0b",
    b"a\xff",
    b"a\xff\xff",
    b"a\xff\xffz",
    b"aa",
    b"b",
    b"b\xfe",
    b"ba",
    b"\xff",
    b"\xff\xff",
];

fn scan(prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Scan {
    Scan { prefix: Bytes::copy_from_slice(prefix), after: after.map(id), limit }
}

async fn put_all<K: Key>(stage: &Stage<K>) {
    let (even, odd): (Vec<_>, Vec<_>) = IDS.iter().rev().enumerate().partition(|(place, _)| place % 2 == 0);
    for (number, ids) in (0..).zip([even, odd]) {
        let puts: Vec<_> = ids.iter().map(|(_, id)| put(id, id)).collect();
        stage.written(number, &puts).await;
    }
}

fn ids(shown: &[Document]) -> Vec<&[u8]> {
    shown.iter().map(|document| document.id.as_bytes()).collect()
}

/// The expected ids, from the definition of a prefix and not from the bounds of the scan.
fn expected(prefix: &[u8], after: Option<&[u8]>) -> Vec<&'static [u8]> {
    let mut expected: Vec<&[u8]> = IDS.into_iter().filter(|id| id.starts_with(prefix)).collect();
    expected.retain(|id| after.is_none_or(|after| *id > after));
    expected.sort_unstable();
    expected
}

pub async fn a_scan_keeps_to_its_prefix(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    put_all(&stage).await;
    let prefixes = IDS.iter().flat_map(|id| (0..=id.len()).map(|length| &id[..length]));
    for prefix in prefixes.chain([&b"c"[..], b"a\x01", b"\xff\xff\xff", b"\x01"]) {
        let shown = stage.scanned(scan(prefix, None, usize::MAX)).await;
        assert_eq!(ids(&shown), expected(prefix, None), "{prefix:?}");
        assert!(shown.iter().all(|document| document.body == document.id.as_bytes()));
    }
}

pub async fn a_scan_continues_after_a_document(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    put_all(&stage).await;
    for prefix in [&b""[..], b"a", b"a\xff", b"\xff", b"b"] {
        for after in IDS.into_iter().chain([&b"\x01"[..], b"a\0a", b"a\xff\xff\xff", b"c", b"\xff\xff\xff"]) {
            let shown = stage.scanned(scan(prefix, Some(after), usize::MAX)).await;
            assert_eq!(ids(&shown), expected(prefix, Some(after)), "{prefix:?} behind {after:?}");
        }
        for limit in 0..=4 {
            let shown = stage.scanned(scan(prefix, None, limit)).await;
            assert_eq!(ids(&shown), expected(prefix, None), "{prefix:?} by pages of {limit}");
        }
    }
}

pub async fn a_scan_takes_more_documents_than_a_page(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    let page = limits(&stage).max_page;
    let count = page + 3;
    let name = |number: usize| format!("{number:08}");
    // Backwards, so that the order of ids is not that of the writes.
    let puts: Vec<_> = (0..count).rev().map(|number| put(name(number), number.to_string())).collect();
    let last = stage.all_written(0, &puts).await;
    let check_all = |shown: &[Document], offset: usize| {
        assert_eq!(shown.len(), count);
        for (number, document) in shown.iter().enumerate() {
            assert_eq!(document.id.as_bytes(), name(number).as_bytes());
            assert_eq!(document.body, (number + offset).to_string());
        }
    };
    let shown = stage.shown().await;
    check_all(&shown, 0);
    let smaller_page = page.div_ceil(3) + 1;
    assert_eq!(stage.scanned(scan(b"", None, smaller_page)).await, shown);

    let first = stage.scanned(scan(name(0).as_bytes(), None, usize::MAX)).await;
    assert_eq!(first, shown[..1]);
    let puts: Vec<_> = (0..count).map(|number| put(name(number), (number + 1).to_string())).collect();
    stage.all_written(last, &puts).await;
    check_all(&stage.shown().await, 1);
}

pub async fn a_scan_does_not_show_deleted_documents(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    let name = |number: usize| vec![number as u8];
    let count = 30;
    let puts: Vec<_> = (0..count).map(|number| put(name(number), "x")).collect();
    let mut last = stage.all_written(0, &puts).await;
    let mut standing: Vec<_> = (0..count).collect();
    for gone in [vec![0], vec![count - 1], (4..25).collect(), vec![1, 3], (0..count).collect()] {
        let deletes: Vec<_> = gone.iter().map(|number| delete(name(*number))).collect();
        last = stage.all_written(last, &deletes).await;
        standing.retain(|number| !gone.contains(number));
        let names: Vec<_> = standing.iter().map(|number| name(*number)).collect();
        for limit in [1, 4, usize::MAX] {
            assert_eq!(ids(&stage.scanned(scan(b"", None, limit)).await), names, "by pages of {limit}");
        }
    }
    stage.written(last, &[put(name(3), "again")]).await;
    assert_eq!(stage.shown().await, [document(name(3), last + 1, "again")]);
}

pub async fn a_scan_during_writes_shows_each_lasting_document_once(storage: &impl StorageUnderTest) {
    const STANDING: usize = 40;
    const SCANS: usize = 20;
    let stage = Stage::led(storage).await;
    let name = |number: usize| format!("{number:04}");
    let puts: Vec<_> = (0..STANDING).map(|number| put(name(2 * number), "stands")).collect();
    let last = stage.all_written(0, &puts).await;
    let (scene, done) = (&stage.scene, AtomicBool::new(false));
    let writes = async {
        let mut random = fastrand::Rng::with_seed(7);
        let mut number = last;
        while !done.load(Ordering::SeqCst) {
            let other = name(2 * random.usize(0..STANDING) + 1);
            let body = (number + 1).to_string();
            let write = if random.bool() { put(other, body) } else { delete(other) };
            let fence = stage.fence(number);
            assert_eq!(settled(&*scene.here, &scene.key, &fence, &[write]).await, BatchOutcome::Written);
            number += 1;
            tokio::task::yield_now().await;
        }
    };
    let scans = async {
        for round in 0..SCANS {
            let shown = scan_all(&*scene.there, &scene.key, scan(b"", None, 1 + round % 9)).await;
            let standing: Vec<_> = shown.iter().filter(|document| document.body == "stands").collect();
            assert_eq!(standing.len(), STANDING);
            for (number, document) in standing.into_iter().enumerate() {
                assert_eq!(document.id.as_bytes(), name(2 * number).as_bytes());
            }
            let others = shown.iter().filter(|document| document.body != "stands");
            for document in others {
                assert_eq!(document.body, document.version.to_string(), "{document:?} was never written so");
            }
            tokio::task::yield_now().await;
        }
        done.store(true, Ordering::SeqCst);
    };
    futures_util::future::join(writes, scans).await;
}

pub async fn scans_show_every_counted_batch(storage: &impl StorageUnderTest) {
    const BATCHES: u64 = 60;
    let stage = Stage::led(storage).await;
    let (scene, names) = (&stage.scene, ["a", "b", "c", "d"]);
    let writes = async {
        for number in 0..BATCHES {
            let batch = names.map(|name| put(name, (number + 1).to_string()));
            let fence = stage.fence(number);
            assert_eq!(settled(&*scene.here, &scene.key, &fence, &batch).await, BatchOutcome::Written);
            tokio::task::yield_now().await;
        }
    };
    let reads = async {
        loop {
            let counted = read_state(&*scene.there, &scene.key).await.last;
            if counted.get() > 0 {
                let mut shown = scan_all(&*scene.there, &scene.key, scan(b"", None, 3)).await;
                assert_eq!(shown.len(), names.len());
                for name in names {
                    shown.extend(read_document(&*scene.there, &scene.key, &id(name)).await);
                }
                assert_eq!(shown.len(), 2 * names.len());
                for document in shown {
                    assert!(document.version >= counted, "{document:?} after {counted:?}");
                    assert_eq!(document.body, document.version.to_string());
                }
            }
            if counted.get() == BATCHES {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    futures_util::future::join(writes, reads).await;
}
