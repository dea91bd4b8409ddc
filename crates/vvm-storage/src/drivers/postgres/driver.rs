//! [`PostgresStorage`]: the verbs are those of all SQL servers. Notifications are its own.

use super::{connections::Postgres, session::Session};
use crate::{
    drivers::sql::{
        answer::Answer,
        connections::Connections,
        driver::{Driver, SqlStorage},
        errors::DriverError,
        history::History,
    },
    key::Partition,
    opening::OpenError,
    sysvvm::SysVvmHints,
};
use async_trait::async_trait;
use std::time::Duration;

/// A handle on a database: connections of its own.
pub type PostgresStorage = SqlStorage<Postgres, Session>;

impl PostgresStorage {
    /// Connects to the database that `url` names, as the module's documentation says, and checks server and
    /// schema. Creates nothing: [`init_storage`](crate::init_storage) does.
    ///
    /// # Errors
    /// See [`OpenError`]: each says what to do.
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing open.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        Self::opened(url).await
    }
}

impl Driver for Postgres {
    const READS_ALONE: bool = true;
    const ADOPTS_BEFORE_WRITES: bool = false;

    async fn alone(
        connections: &Connections<Self, Session>,
        statement: &Self::Statement<'_>,
        history: &History,
        lock_timeout: Duration,
    ) -> Result<Option<Answer>, DriverError> {
        connections.execute(statement, history, lock_timeout).await
    }

    fn hints(storage: &PostgresStorage) -> Option<&dyn SysVvmHints> {
        Some(storage)
    }
}

#[async_trait]
impl SysVvmHints for PostgresStorage {
    async fn announce(&self, topic: &Partition) {
        self.connections().announce(&channel(topic)).await;
    }

    async fn hinted(&self, topic: &Partition) {
        self.connections().notified(&channel(topic)).await;
    }

    fn listens(&self, topic: &Partition) -> bool {
        self.connections().listens(&channel(topic))
    }
}

/// The channel of a topic: a name of at most 63 letters, so a digest (FNV-1a, 64 bits). A channel that two
/// topics share costs looks.
fn channel(topic: &Partition) -> String {
    let digest = topic.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |digest, byte| {
        (digest ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("vvm_{digest:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channel_is_the_same_in_every_release() {
        assert_eq!(channel(&Partition::from_bytes(*b"a")), "vvm_af63dc4c8601ec8c");
        assert_eq!(channel(&Partition::from_bytes(*b"foobar")), "vvm_85944171f73967e8");
    }
}
