//! The verbs of cells: each is one request, sent once.

#[cfg(feature = "testing")]
pub mod bare;
mod description;
mod hints;

use super::{
    errors::DriverError,
    open::{Address, Connections, OpenError},
    rows::{self, Lease},
};
use crate::{
    Description, Opened, Partition, Provenance, SysVvmHints,
    cells::{Cell, CellLimits, CellStorage, CellWrite, Expected},
};
use async_trait::async_trait;
use bytes::Bytes;
use hints::Watched;
use ielections::{Entry, ReadError, WriteError};
use std::{fmt, sync, time::Duration};
use tokio::sync::Mutex;
use vvm_clock::{SystemWallClock, WallClock as _};

/// The Leases of a namespace, as cells. [`Cells`](crate::cells::Cells) makes elections of them.
pub struct LeaseStorage {
    connections: Connections,
    watched: Mutex<Watched>,
    /// The label of the stream, which a call that waits keeps locked.
    listens_to: sync::Mutex<Option<String>>,
}

impl LeaseStorage {
    /// Opens the namespace that `url` names. Creates nothing.
    ///
    /// # Errors
    /// See [`OpenError`].
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing open.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        let connections = super::open::open(&Address::parse(url)?).await?;
        Ok(Self { connections, watched: Mutex::default(), listens_to: sync::Mutex::default() })
    }

    async fn cell(&self, key: &Partition, may_be_stale: bool) -> Result<Option<Cell>, ReadError> {
        let lease = self.connections.get(&rows::name(key), may_be_stale).await;
        let cell = lease.and_then(|lease| Ok(lease.map(|lease| lease.cell(key)).transpose()?));
        cell.map_err(DriverError::of_read)
    }

    async fn set(
        &self,
        key: &Partition,
        value: &Bytes,
        record: Option<&Entry>,
        expected: Expected,
    ) -> Result<CellWrite, DriverError> {
        let now = SystemWallClock.since_unix_epoch();
        let written = match expected {
            Expected::Absent => {
                let lease = Lease::new(key, self.connections.namespace()).set(key, value, record, now);
                self.connections.create(&lease).await?
            }
            Expected::Tag(tag) => {
                let seen = Lease::of_tag(&tag)?;
                let written = self.connections.replace(&seen.clone().set(key, value, record, now)).await?;
                if written.is_none() && seen.is_held() {
                    self.is_still_there(&seen).await?;
                }
                written
            }
        };
        Ok(written.map_or(CellWrite::Refused, |lease| CellWrite::Written(Some(lease.into_tag()))))
    }

    /// (I1) A held Lease that was deleted may have had a leader at work beside the one that replaced it.
    async fn is_still_there(&self, seen: &Lease) -> Result<(), DriverError> {
        match self.connections.get(seen.name(), false).await {
            Ok(Some(lease)) if lease.is_same_object(seen) => Ok(()),
            Ok(_) => Err(DriverError::Gone(seen.name().to_owned())),
            // The write was refused all the same, and the caller reads again.
            Err(_) => Ok(()),
        }
    }
}

#[async_trait]
impl CellStorage for LeaseStorage {
    fn limits(&self) -> CellLimits {
        CellLimits {
            // An attempt may take a tenth of it: enough for a write and for a new connection.
            min_ttl: Duration::from_secs(2),
            max_key_bytes: 2048,
            // Annotations may have 256 KiB, of which base64 takes a quarter. Some are for those of others.
            max_cell_bytes: 176 << 10,
        }
    }

    fn shared_between_processes(&self) -> bool {
        true
    }

    async fn read(&self, key: &Partition) -> Result<Option<Cell>, ReadError> {
        self.cell(key, false).await
    }

    async fn peek(&self, key: &Partition) -> Result<Option<Cell>, ReadError> {
        self.cell(key, true).await
    }

    async fn write(
        &self,
        key: &Partition,
        value: Bytes,
        expected: Expected,
    ) -> Result<CellWrite, WriteError> {
        self.write_slot(key, value, None, expected).await
    }

    async fn write_slot(
        &self,
        key: &Partition,
        value: Bytes,
        record: Option<&Entry>,
        expected: Expected,
    ) -> Result<CellWrite, WriteError> {
        self.set(key, &value, record, expected).await.map_err(DriverError::of_write)
    }

    fn hints(&self) -> Option<&dyn SysVvmHints> {
        Some(self)
    }

    fn opened(&self) -> Option<Opened> {
        let Self { connections, .. } = self;
        let location = format!("namespace {} of {}", connections.namespace(), connections.server());
        Some(Opened::at(location, Provenance::Existing))
    }

    async fn describe(&self) -> Result<Description, ReadError> {
        description::describe(&self.connections).await.map_err(DriverError::of_read)
    }

    async fn close(&self) {
        self.connections.close();
        // A call that waits keeps its stream until it is dropped.
        if let Ok(mut watched) = self.watched.try_lock() {
            watched.stream = None;
        }
    }
}

impl fmt::Debug for LeaseStorage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "LeaseStorage({:?})", self.connections)
    }
}
