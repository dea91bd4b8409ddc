//! The keys that are watched for hints.

use super::{
    Keyspace, end_of, is_vacancy,
    messages::{Event, WatchCreateRequest},
};
use crate::{
    Partition,
    key::{KEY_PREFIX_PAUSE, KEY_PREFIX_SLOT_COUNT, KEY_PREFIX_STEP_DOWN, KEY_PREFIX_VVM_LEADER},
};
use bytes::Bytes;

impl Keyspace {
    /// The keys that change by releases and requests of the name whose slot count `topic` is; empty for any
    /// other topic. Those of claims are among them, and those of longer names.
    pub(in super::super) fn watched(&self, topic: &Partition) -> Vec<WatchCreateRequest> {
        let Some(name) = topic.as_bytes().strip_prefix(&[KEY_PREFIX_SLOT_COUNT]) else { return Vec::new() };
        let key = |kind: u8| self.leader(&Partition::from_bytes([&[kind], name].concat()));
        let slots = key(KEY_PREFIX_VVM_LEADER);
        let slots = WatchCreateRequest { range_end: end_of(&slots), key: slots, start_revision: 0 };
        let requests = [KEY_PREFIX_PAUSE, KEY_PREFIX_STEP_DOWN].map(key);
        let requests =
            requests.map(|key| WatchCreateRequest { key, range_end: Bytes::new(), start_revision: 0 });
        std::iter::once(slots).chain(requests).collect()
    }

    /// Whether a change of a watched key is a release or a request.
    pub(in super::super) fn is_hint(&self, topic: &Partition, event: &Event) -> bool {
        let Some(changed) = &event.kv else { return false };
        let name = topic.as_bytes().len() - 1;
        let of_slot = self.leader(&Partition::from_bytes([KEY_PREFIX_VVM_LEADER]));
        if !changed.key.starts_with(&of_slot) {
            return true;
        }
        // Of this name, and not of a longer one: behind it stands the slot alone.
        changed.key.len() == of_slot.len() + name + size_of::<u32>() && is_vacancy(&changed.value)
    }
}
