//! [`ObjectCells`]: a bucket as a storage of cells.

mod description;
mod race;

use super::{
    errors::Failure,
    open::{self, Address, OpenError, Requests},
};
use crate::{
    Description, Opened, Partition, Provenance,
    cells::{Cell, CellLimits, CellStorage, CellWrite, Expected},
    drivers::closed::Closed,
};
use async_trait::async_trait;
use bytes::Bytes;
use ielections::{ReadError, WriteError};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use vvm_clock::{Clock, SystemClock};

/// With its slashes, its ending and the longest prefix, the name of its object has at most 1,024 bytes.
pub(super) const MOST_KEY_BYTES: usize = 512;

/// A handle of a bucket, with connections of its own. [`Cells`](crate::cells::Cells) make a storage of it.
#[derive(Debug)]
pub struct ObjectCells {
    /// `None` once closed. A running call keeps the connections until it ends.
    requests: Mutex<Option<Requests>>,
    opened: Opened,
    min_ttl: Duration,
}

impl ObjectCells {
    /// Opens the bucket that `url` names. Refuses a server that ignores the conditions of writes, and a
    /// prefix that [`init_storage`](crate::init_storage) has not tried.
    ///
    /// # Errors
    /// See [`OpenError`].
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing open.
    pub async fn open(url: &str, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let (address, requests) = open::connect(url, clock)?;
        open::look(&address, &requests).await?;
        open::probe(&address, &requests).await?;
        Ok(Self::on(&address, requests))
    }

    /// Opens the bucket as [`open`](Self::open) does, for a user who may have no right to put objects: tries
    /// no write.
    ///
    /// # Errors
    /// See [`OpenError`].
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing open.
    pub async fn open_to_look(url: &str, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let (address, requests) = open::connect(url, clock)?;
        open::look(&address, &requests).await?;
        Ok(Self::on(&address, requests))
    }

    fn on(address: &Address, requests: Requests) -> Self {
        let opened = Opened::at(address.to_string(), Provenance::Existing);
        Self { requests: Mutex::new(Some(requests)), opened, min_ttl: address.min_ttl }
    }

    fn requests(&self) -> Result<Requests, Closed> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or(Closed)
    }
}

/// Races the conditions of the server, and leaves a mark below the prefix. Creates no bucket.
pub(crate) async fn init(url: &str) -> Result<(), OpenError> {
    let clock = Arc::new(SystemClock::start().map_err(OpenError::System)?);
    let (address, requests) = open::connect(url, clock)?;
    let raced = race::race(&requests).await.map_err(|failure| OpenError::of(&address, failure))?;
    if let Some(why) = raced.verdict() {
        return Err(OpenError::Racy { place: address.to_string(), why });
    }
    open::mark(&address, &requests).await?;
    open::look(&address, &requests).await?;
    open::probe(&address, &requests).await
}

#[async_trait]
impl CellStorage for ObjectCells {
    fn limits(&self) -> CellLimits {
        CellLimits {
            min_ttl: self.min_ttl,
            max_key_bytes: MOST_KEY_BYTES,
            // Each renewal sends all of it.
            max_cell_bytes: 1 << 20,
        }
    }

    fn shared_between_processes(&self) -> bool {
        true
    }

    async fn read(&self, key: &Partition) -> Result<Option<Cell>, ReadError> {
        let requests = self.requests()?;
        let got = requests.get(&requests.names.cell(key)).await.map_err(Failure::into_read_error)?;
        Ok(got.cell)
    }

    async fn write(
        &self,
        key: &Partition,
        value: Bytes,
        expected: Expected,
    ) -> Result<CellWrite, WriteError> {
        let requests = self.requests()?;
        let name = requests.names.cell(key);
        requests.put(&name, value, &expected).await.map_err(Failure::into_write_error)
    }

    fn opened(&self) -> Option<Opened> {
        Some(self.opened.clone())
    }

    async fn describe(&self) -> Result<Description, ReadError> {
        description::describe(&self.requests()?).await.map_err(Failure::into_read_error)
    }

    async fn close(&self) {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
