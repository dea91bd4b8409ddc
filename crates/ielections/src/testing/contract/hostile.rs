//! Keys and values of any bytes and lengths.

use super::{
    StorageUnderTest,
    scene::{Scene, ageless, held, next, vacant, vacant_slot},
};
use crate::{Claim, Delete, Entry, Holder, Limits, Slot, Swap};

/// With every prefix, shorter than [`Limits::LEAST_KEY_BYTES`].
const LONG_NAME: usize = 400;

/// Names that an encoding may confuse: empty, each byte alone, all bytes, prefixes of each other, separators,
/// numbers.
pub(in crate::testing) fn hostile_names() -> Vec<Vec<u8>> {
    let mut names = vec![Vec::new(), (0..=255).collect(), (0..=255).rev().collect()];
    names.extend((0..=255).map(|byte| vec![byte]));
    names.extend(
        ["a", "a\0", "a\0\0", "\0a", "a/b", "a/", "/b", "a:1", "a,1", "a%2Fb", "'; --", "ä", "A"]
            .map(Vec::from),
    );
    names.extend([vec![0, 0, 0, 1], vec![0, 0, 0, 1, 0, 0, 0, 1], vec![0xff; 5], vec![b'x'; LONG_NAME]]);
    names.sort();
    names.dedup();
    names
}

/// No write of one key changes another, for keys of any bytes.
pub async fn keys_of_any_bytes_are_independent(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let keys: Vec<_> = hostile_names().iter().map(|name| storage.key(name)).collect();
    let entries: Vec<_> = (1..=keys.len()).map(|number| scene.entry(number as u8, number as u64)).collect();
    for (key, entry) in keys.iter().zip(&entries) {
        let claim = scene.here.insert_if_not_exist(key, vacant(None), entry).await.unwrap();
        assert_eq!(claim, Claim::Claimed, "{key:?} met a key before it");
    }
    for (key, entry) in keys.iter().zip(&entries) {
        assert_eq!(ageless(scene.there.get(key).await.unwrap()), held(entry), "{key:?}");
        let delete = scene.here.compare_and_delete(key, entry.incarnation(), entry.epoch).await.unwrap();
        assert_eq!(delete, Delete::Deleted, "{key:?}");
    }
    for (key, entry) in keys.iter().zip(&entries) {
        assert_eq!(scene.there.get(key).await.unwrap(), vacant_slot(Some(entry.epoch.get())), "{key:?}");
    }
}

/// Keys of consecutive lengths are independent, although many are the beginning of others. A storage of
/// nested folders may take the name of one for a folder of another.
pub async fn keys_that_begin_alike_are_independent(storage: &impl StorageUnderTest) {
    /// Every name is the end of this one. A key with the number of its slot after the name is then the
    /// beginning of the key whose name has four bytes more.
    const LONGEST: [[u8; 4]; 64] = [[0, 0, 0, 1]; 64];
    /// So many lengths have a multiple of any part that a name of 255 characters has room for.
    const NAMES: usize = 160;
    let scene = Scene::set(storage).await;
    let keys: Vec<_> = (0..NAMES).map(|cut| storage.key(&LONGEST.as_flattened()[cut..])).collect();
    let entries: Vec<_> = (1..=keys.len()).map(|number| scene.entry(number as u8, number as u64)).collect();
    for (key, entry) in keys.iter().zip(&entries) {
        let claim = scene.here.insert_if_not_exist(key, vacant(None), entry).await.unwrap();
        assert_eq!(claim, Claim::Claimed, "{key:?} met a key before it");
    }
    let slots = scene.there.scan(&keys).await.unwrap().into_iter().map(ageless);
    assert!(slots.eq(entries.iter().map(held)));
}

/// Within the limits a key of 64 KiB works as a short one does. Beyond them, every verb refuses for good.
pub async fn a_long_key_is_carried_whole_or_refused_for_good(storage: &impl StorageUnderTest) {
    const LONG: usize = 64 * 1024;
    /// Longer than any prefix.
    const ROOM: usize = 256;
    /// Longer than every limit of a storage.
    const LONGEST: usize = 64 << 20;
    let scene = Scene::set(storage).await;
    let most = scene.here.limits().max_key_bytes;
    assert!(
        most >= Limits::LEAST_KEY_BYTES,
        "keys of {most} bytes are too short: see Limits::LEAST_KEY_BYTES"
    );
    let mut lengths = vec![LONG];
    if most < LONGEST {
        lengths.extend([most - ROOM, most + 1]);
    }
    for bytes in lengths {
        // Equal except for the last byte: a storage that cuts keys would confuse them.
        let names = [b'a', b'b'].map(|last| [vec![b'x'; bytes - 1], vec![last]].concat());
        for (author, name) in (1_u8..).zip(names) {
            let (key, entry) = (storage.key(&name), scene.entry(author, u64::from(author)));
            if bytes + ROOM <= most {
                carries(&scene, &key, &entry).await;
            } else if bytes > most {
                scene.is_refused(&key, &entry).await;
            }
        }
    }
}

async fn carries<K: crate::Key>(scene: &Scene<K>, key: &K, entry: &Entry) {
    assert_eq!(scene.there.get(key).await.unwrap(), vacant_slot(None));
    let claim = scene.here.insert_if_not_exist(key, vacant(None), entry).await.unwrap();
    assert_eq!(claim, Claim::Claimed);
    let renewed = next(entry);
    assert_eq!(scene.here.compare_and_swap(key, entry, &renewed).await.unwrap(), Swap::Swapped);
    assert_eq!(ageless(scene.there.get(key).await.unwrap()), held(&renewed));
}

/// Holders are kept byte for byte: empty, 255 bytes, every character below 256, zero bytes, SQL.
pub async fn holders_of_any_bytes_are_kept(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let below_256: String = ('\0'..='\u{ff}').collect();
    let (low, high) = below_256.split_at(128);
    let holders = [
        String::new(),
        "x".repeat(Holder::MAX_BYTES),
        low.to_owned(),
        high.chars().take(127).collect(),
        "\0".to_owned(),
        "\0after".to_owned(),
        "'; drop table leader; --".to_owned(),
        "host.example:8080 ☃ \u{1F980}".to_owned(),
    ];
    let mut standing = scene.entry(1, 1);
    scene.claim(None, &standing).await;
    for holder in holders {
        let mut renewed = next(&standing);
        renewed.holder = Holder::new(holder).unwrap();
        scene.renew(&standing, &renewed).await;
        assert_eq!(scene.stands().await, held(&renewed));
        standing = renewed;
    }
    assert!(matches!(scene.stands().await, Slot::Held { .. }));
}
