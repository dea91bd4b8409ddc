//! Values and keys of the layout.

use super::*;
use ielections::DocumentId;
use proptest::prelude::*;

fn pair(value: &[u8]) -> KeyValue {
    KeyValue { key: Bytes::new(), value: Bytes::copy_from_slice(value) }
}

fn entry(write: u64) -> Entry {
    Entry {
        holder: Holder::new("a").unwrap(),
        version: Version { incarnation: Incarnation::from_bytes([7; 16]), write },
        ttl: Ttl::new(Duration::from_secs(1)).unwrap(),
        epoch: Epoch::new(5).unwrap(),
    }
}

#[test]
fn entry_survives_its_values() {
    let entry = entry(u64::MAX);
    let (leader, write) = (pair(&leadership(&entry)), pair(&last_write(&entry)));
    let held = slot(Some(&leader), Some(&write)).unwrap();
    assert_eq!(held.entry(), Some(&entry));
    let vacant = slot(Some(&pair(&vacancy(entry.epoch))), Some(&write)).unwrap();
    assert_eq!(vacant, Slot::Vacant(Vacant { last_epoch: Some(entry.epoch) }));
    assert_eq!(slot(None, None).unwrap(), Slot::Vacant(Vacant { last_epoch: None }));
}

#[test]
fn damaged_slot_is_not_a_vacancy() {
    let (leader, write) = (leadership(&entry(1)), last_write(&entry(1)));
    let damaged = |leader: &[u8], write: Option<&[u8]>| {
        assert!(slot(Some(&pair(leader)), write.map(pair).as_ref()).is_err(), "{leader:?} {write:?}");
    };
    damaged(&leader[..7], Some(&write));
    damaged(&leader[..9], Some(&write));
    damaged(&[0; 8], Some(&write));
    damaged(&leader, None);
    damaged(&leader, Some(&write[..15]));
    damaged(&leader, Some(&[&write[..8], &[0; 8]].concat()));
    damaged(&leader, Some(&[&write, &[0xff][..]].concat()));
}

#[test]
fn range_of_a_prefix_ends_behind_all_keys_with_it() {
    assert_eq!(*end_of(b"a/"), *b"a0");
    assert_eq!(*end_of(b"a\xff\xff"), *b"b");
}

#[test]
fn storage_that_is_not_ours_is_replaced() {
    let keyspace = Keyspace::new("vvm").known_by("ours".into());
    let answer = |own: &[&str]| {
        let kvs = own.iter().map(|own| pair(own.as_bytes())).collect();
        let range = Some(RangeResponse { kvs, more: false });
        TxnResponse { responses: vec![super::messages::ResponseOp { range }], ..Default::default() }
    };
    assert!(keyspace.ranges(answer(&["ours"])).is_ok());
    for own in [&["theirs"][..], &[]] {
        let refused = keyspace.ranges(answer(own));
        assert!(matches!(refused, Err(DriverError::Replaced(_))), "{refused:?}");
    }
}

proptest! {
    /// Partitions and ids of any bytes share no key.
    #[test]
    fn documents_of_different_partitions_have_different_keys(
        one: Vec<u8>, id: Vec<u8>, other: Vec<u8>, other_id: Vec<u8>
    ) {
        let keyspace = Keyspace::new("vvm");
        let of = |at: &[u8], id: &[u8]| {
            let id = DocumentId::new([id, b"x"].concat()).unwrap();
            keyspace.document(&Partition::from_bytes(at), &id)
        };
        let is_same = one == other && id == other_id;
        prop_assert_eq!(of(&one, &id) == of(&other, &other_id), is_same);
    }
}
