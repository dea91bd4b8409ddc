//! sled: a look-up, an insertion, and a flush of the log and its file.

use super::{BareError, BareStatements, HOLDER, INCARNATION, TTL_NANOS, folder_beside, key};
use async_trait::async_trait;
use std::fs::File;
use tempfile::TempDir;

pub(super) struct Sled {
    tree: ::sled::Tree,
    database: ::sled::Db,
    data: File,
    _folder: TempDir,
}

impl Sled {
    pub(super) fn beside(path: &str) -> Result<Self, BareError> {
        let folder = folder_beside(path)?;
        let database = ::sled::Config::new().path(folder.path().join("bare")).open()?;
        let data = File::open(folder.path().join("bare").join("db"))?;
        Ok(Self { tree: database.open_tree("leader")?, database, data, _folder: folder })
    }

    fn put(&self, slot: u32, value: &[u8]) -> Result<(), BareError> {
        let key = key(slot);
        let _stands = self.tree.get(&key)?;
        self.tree.insert(&key, value)?;
        self.database.flush()?;
        Ok(self.data.sync_all()?)
    }
}

fn record(write: u64) -> Vec<u8> {
    let parts: [&[u8]; 5] = [
        &1_u64.to_be_bytes(),
        &INCARNATION,
        &write.to_be_bytes(),
        &TTL_NANOS.to_be_bytes(),
        HOLDER.as_bytes(),
    ];
    parts.concat()
}

#[async_trait(?Send)]
impl BareStatements for Sled {
    async fn claim(&mut self, slot: u32) -> Result<(), BareError> {
        self.put(slot, &record(0))
    }

    async fn renew(&mut self, slot: u32) -> Result<(), BareError> {
        self.put(slot, &record(1))
    }

    async fn release(&mut self, slot: u32) -> Result<(), BareError> {
        self.put(slot, &1_u64.to_be_bytes())
    }
}
