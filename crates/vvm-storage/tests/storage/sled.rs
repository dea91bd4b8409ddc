use crate::{
    driver::{described, opened},
    processes::{STORAGE, run_alone, threads},
};
use bytes::Bytes;
use harness::eventually;
use std::{fs, future::poll_fn, path::Path, task::Poll};
use tempfile::TempDir;
use vvm_storage::{
    OpenError, Partition,
    cells::{CellCondition, CellStorage as _, CellWrite},
    sled::SledCells,
};

#[tokio::test]
async fn description_has_its_library() {
    let folder = TempDir::new().unwrap();
    let described = described(&format!("sled:{}", folder.path().join("elections").display())).await;
    assert!(described.software.as_ref().unwrap().starts_with("sled 0."), "{described:?}");
}

/// sled syncs no file but its log.
#[tokio::test]
async fn no_cell_leaves_the_log() {
    let folder = TempDir::new().unwrap();
    let cells = SledCells::open(folder.path()).await.unwrap();
    let most = cells.limits();
    // Twice as many as fit into one page, each written so often that the page is written anew.
    for round in 0..20_u8 {
        for number in 0..34_u8 {
            let key = Partition::from_bytes(vec![number + 1; most.max_key_bytes]);
            let stands = cells.read(&key).await.unwrap().map(|cell| cell.tag);
            let expected = stands.map_or(CellCondition::Absent, CellCondition::Tag);
            let value = Bytes::from(vec![round; most.max_cell_bytes]);
            let written = cells.write(&key, value, expected).await.unwrap();
            assert_ne!(written, CellWrite::Refused);
        }
    }
    assert_eq!(fs::read_dir(folder.path().join("blobs")).unwrap().count(), 0);
    cells.close().await;
}

async fn refused(path: &Path) -> OpenError {
    SledCells::open(path).await.expect_err("opened")
}

#[tokio::test]
async fn each_obstacle_is_named() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    let says = async |name: &str, part: &str| {
        let refusal = refused(&at(name)).await.to_string();
        assert!(refusal.contains(part), "{name}: {refusal}");
    };
    fs::write(at("file"), "text").unwrap();
    says("missing/elections", "create it (mkdir -p)").await;
    says("file", "is not a folder").await;
    says("", "has files of another program").await;
    assert!(!at("db").exists(), "a folder of another program was changed");
    // With sled's own settings, and with ours.
    for (name, segment) in [("theirs", 512 << 10), ("with-our-settings", 16 << 20)] {
        let theirs = sled::Config::new().path(at(name)).segment_size(segment).open().unwrap();
        theirs.insert("a", "b").unwrap();
        drop(theirs);
        says(name, "has files of another program").await;
    }
    let newer = sled::Config::new().path(at("newer")).segment_size(16 << 20).open().unwrap();
    newer.insert("\0vvm format", "2").unwrap();
    drop(newer);
    says("newer", "has format 2, and this version knows format 1").await;
}

#[tokio::test]
async fn folder_of_another_process_is_refused_by_name() {
    let folder = TempDir::new().unwrap();
    // sled's own lock stands for another process: the handles of this driver do not share it.
    let theirs = sled::Config::new().path(folder.path()).segment_size(16 << 20).open().unwrap();
    let error = refused(folder.path()).await;
    assert!(error.is_passing() && error.to_string().contains("another process uses"), "{error}");
    drop(theirs);
    SledCells::open(folder.path()).await.unwrap();
}

/// They share the thread, which ends with the last of them (I9).
#[tokio::test]
async fn handles_of_one_folder_share_a_thread_that_ends_with_the_last() {
    if std::env::var_os(STORAGE).is_none() {
        // Other tests have threads, too.
        return run_alone("sled::handles_of_one_folder_share_a_thread_that_ends_with_the_last", "");
    }
    let folder = TempDir::new().unwrap();
    let (real, name) = (folder.path().join("real"), folder.path().join("name"));
    std::os::unix::fs::symlink(&real, &name).unwrap();
    let threads = || threads("vvm-sled");
    fs::create_dir(&real).unwrap();
    let (first, second) =
        (SledCells::open(&real).await.unwrap(), opened(&format!("sled:{}", name.display())).await.unwrap());
    // A thread of sled has the name of the thread that starts it until it takes its own.
    while threads() != 1 {
        tokio::task::yield_now().await;
    }
    first.close().await;
    let key = Partition::from_bytes(*b"key");
    assert!(first.read(&key).await.is_err());
    second.read(key).await.unwrap();
    tokio::join!(biased; second.close(), first.close());
    assert_eq!(threads(), 0, "after the last close");

    drop(SledCells::open(&real).await.unwrap());
    assert_eq!(threads(), 0, "after a drop");
    refused(folder.path()).await;
    // A quick thread has opened the folder before the first poll looks. Then the drop is that of a handle.
    loop {
        let mut opening = Box::pin(SledCells::open(&real));
        let was_pending = poll_fn(|context| Poll::Ready(opening.as_mut().poll(context).is_pending())).await;
        drop(opening);
        eventually("no thread after a dropped opening", || threads() == 0);
        if was_pending {
            break;
        }
    }
}
