//! etcd: one transaction on one key for each verb, through the driver's connections.

use super::{BareError, BareStatements, BareWriter, HOLDER, INCARNATION, TTL_NANOS, key};
use async_trait::async_trait;
use bytes::Bytes;
use std::ops::Range;
use vvm_storage::etcd::bare::BareEtcd;

pub(super) struct Etcd {
    url: String,
    connection: BareEtcd,
}

/// A writer with a connection of its own.
struct Writer {
    connection: BareEtcd,
    key: Bytes,
    /// The last one.
    write: u64,
}

impl Etcd {
    pub(super) fn new(url: &str) -> Result<Self, BareError> {
        Ok(Self { url: url.to_owned(), connection: BareEtcd::new(url)? })
    }
}

/// The value of a record: all that the driver keeps in two keys.
fn record(write: u64) -> Bytes {
    let (epoch, ttl) = (1_u64.to_be_bytes(), TTL_NANOS.to_be_bytes());
    [&epoch, INCARNATION.as_slice(), &write.to_be_bytes(), &ttl, HOLDER.as_bytes()].concat().into()
}

fn name(slot: u32) -> Bytes {
    [b"bench-bare/", key(slot).as_slice(), &std::process::id().to_be_bytes()].concat().into()
}

async fn swap(on: &BareEtcd, key: Bytes, from: Option<Bytes>, to: Option<Bytes>) -> Result<(), BareError> {
    match on.swap(key, from, to).await? {
        true => Ok(()),
        false => Err("a write without a competitor was refused".into()),
    }
}

#[async_trait(?Send)]
impl BareStatements for Etcd {
    async fn claim(&mut self, slot: u32) -> Result<(), BareError> {
        swap(&self.connection, name(slot), None, Some(record(0))).await
    }

    async fn renew(&mut self, slot: u32) -> Result<(), BareError> {
        swap(&self.connection, name(slot), Some(record(0)), Some(record(1))).await
    }

    async fn release(&mut self, slot: u32) -> Result<(), BareError> {
        swap(&self.connection, name(slot), Some(record(1)), None).await
    }

    async fn writers(&mut self, slots: Range<u32>) -> Result<Option<Vec<Box<dyn BareWriter>>>, BareError> {
        let mut writers: Vec<Box<dyn BareWriter>> = Vec::new();
        for slot in slots {
            let connection = BareEtcd::new(&self.url)?;
            swap(&connection, name(slot), None, Some(record(0))).await?;
            writers.push(Box::new(Writer { connection, key: name(slot), write: 0 }));
        }
        Ok(Some(writers))
    }
}

#[async_trait(?Send)]
impl BareWriter for Writer {
    async fn renew(&mut self) -> Result<(), BareError> {
        let (from, to) = (record(self.write), record(self.write + 1));
        swap(&self.connection, self.key.clone(), Some(from), Some(to)).await?;
        self.write += 1;
        Ok(())
    }
}
