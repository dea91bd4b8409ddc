//! [`MySqlStorage`]: the verbs are those of all SQL servers.

use super::{
    address::Place,
    connections::{MySql, Session},
};
use crate::{
    drivers::sql::{
        answer::Answer,
        connections::Connections,
        driver::{Driver, SqlStorage},
        errors::DriverError,
        history::History,
        open,
    },
    opening::OpenError,
};
use std::time::Duration;

/// A handle on a database: connections of its own.
pub type MySqlStorage = SqlStorage<MySql, Session>;

impl MySqlStorage {
    /// Connects to the database that `url` names, as the module's documentation says, and checks server and tables. Creates
    /// nothing: [`init_storage`](crate::init_storage) does.
    ///
    /// # Errors
    /// See [`OpenError`]: each says what to do.
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing open.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        Self::connected(MySql { place: Place::parse(url)? }).await
    }
}

/// Creates what is missing. May be run again, and by many at once.
///
/// # Errors
/// See [`OpenError`]: also if tables with these names belong to another program.
pub(crate) async fn init(url: &str) -> Result<(), OpenError> {
    open::init(MySql { place: Place::parse(url)? }).await
}

impl Driver for MySql {
    const READS_ALONE: bool = false;
    const ADOPTS_BEFORE_WRITES: bool = true;

    async fn alone(
        connections: &Connections<Self, Session>,
        statement: &Self::Statement<'_>,
        _history: &History,
        _lock_timeout: Duration,
    ) -> Result<Option<Answer>, DriverError> {
        connections.ask(statement).await.map(Some)
    }
}
