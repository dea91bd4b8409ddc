//! [`LateEnd`]: how a leadership ended, recorded by its process when another one may lead already. Only for people. A
//! leader can write documents no more once its record is gone (I2). So the end has a partition of its own, whose record
//! any process may replace, like a request. Its text is `v1 EPOCH ENDED_MS REASON`.

use super::ElectionsTtlStorage;
use crate::{key::ElectionKey, operator_requests::Ask, step::Step, sysvvm::unsent};
use ielections::{Entry, Epoch, Holder, ReadError, Slot, Ttl, Version, WriteError};

/// How a leadership ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LateEnd {
    /// The leadership's fencing token.
    pub epoch: u64,
    /// Milliseconds since 1970, on the leader's wall clock.
    pub ended_ms: u64,
    /// How it ended, in at most 200 bytes.
    pub reason: String,
}

impl LateEnd {
    fn text(&self) -> Result<Holder, WriteError> {
        let Self { epoch, ended_ms, reason } = self;
        Holder::new(format!("v1 {epoch} {ended_ms} {reason}")).map_err(|e| WriteError::Fatal(e.into()))
    }

    fn of(slot: &Slot) -> Option<Self> {
        let mut parts = slot.entry()?.holder.as_str().strip_prefix("v1 ")?.splitn(3, ' ');
        let (epoch, ended_ms) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { epoch, ended_ms, reason: parts.next()?.to_owned() })
    }
}

impl ElectionsTtlStorage {
    /// Returns the last late end of the slot; linearizable.
    pub async fn late_end(&self, key: &ElectionKey) -> Result<Option<LateEnd>, ReadError> {
        let at = self.check_partition(key.late_end_partition()).map_err(|e| ReadError::Fatal(e.into()))?;
        Ok(LateEnd::of(&self.sysvvm.read(at).await?))
    }

    /// Records a late end, unless that of the same or of a later leadership is recorded.
    pub async fn record_late_end(
        &self,
        key: &ElectionKey,
        end: &LateEnd,
        ask: Ask,
    ) -> Result<(), WriteError> {
        let holder = end.text()?;
        let at = self.checked(key.late_end_partition(), &holder)?;
        let found = self.sysvvm.read(at.clone()).await.map_err(unsent)?;
        if LateEnd::of(&found).is_some_and(|known| known.epoch >= end.epoch) {
            return Ok(());
        }
        let epoch = Epoch::following(found.last_epoch(), ask.since_unix_epoch);
        let epoch = epoch.map_err(|e| WriteError::Fatal(e.into()))?;
        let version = Version { incarnation: ask.incarnation, write: 0 };
        let entry = Entry { holder, version, ttl: Ttl::DEFAULT, epoch };
        match self.sysvvm.commit(at, Step::claim(&found, &entry)).await?.refusal()? {
            None => Ok(()),
            Some(_) => {
                Err(WriteError::NotApplied("another process recorded an end at the same moment".into()))
            }
        }
    }
}
