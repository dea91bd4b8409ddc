//! SQLite: a transaction on this thread that reads and writes the row.

use super::{BareError, BareStatements, HOLDER, INCARNATION, TTL_NANOS, folder_beside, key};
use async_trait::async_trait;
use rusqlite::{Connection, TransactionBehavior, params};
use tempfile::TempDir;

/// A table of the same shape, in a file with the same settings.
pub(super) struct Sqlite {
    connection: Connection,
    _folder: TempDir,
}

const READ: &str =
    "SELECT epoch, incarnation, write, ttl_nanos, holder, issued_at_nanos, boot_id, time_namespace
    FROM leader WHERE pk = ?1";
const PUT: &str = "INSERT OR REPLACE INTO leader
    (pk, epoch, incarnation, write, ttl_nanos, holder, issued_at_nanos, boot_id, time_namespace)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
const VACATE: &str = "INSERT OR REPLACE INTO leader (pk, epoch) VALUES (?1, ?2)";

impl Sqlite {
    pub(super) fn beside(path: &str) -> Result<Self, BareError> {
        let folder = folder_beside(path)?;
        let connection = Connection::open(folder.path().join("bare.db"))?;
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.execute_batch(
            "CREATE TABLE leader (pk BLOB PRIMARY KEY NOT NULL, epoch INTEGER NOT NULL, incarnation BLOB,
             write INTEGER, ttl_nanos INTEGER, holder TEXT, issued_at_nanos INTEGER, boot_id TEXT,
             time_namespace INTEGER) STRICT, WITHOUT ROWID",
        )?;
        Ok(Self { connection, _folder: folder })
    }

    fn transaction(
        &mut self,
        slot: u32,
        write: impl FnOnce(&Connection, &[u8]) -> rusqlite::Result<usize>,
    ) -> Result<(), BareError> {
        let key = key(slot);
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        {
            let mut statement = transaction.prepare_cached(READ)?;
            let mut rows = statement.query(params![key])?;
            while let Some(row) = rows.next()? {
                let _: (i64, Option<Vec<u8>>) = (row.get(0)?, row.get(1)?);
            }
        }
        write(&transaction, &key)?;
        Ok(transaction.commit()?)
    }
}

fn put(connection: &Connection, key: &[u8], write: i64) -> rusqlite::Result<usize> {
    let boot = "00000000-0000-0000-0000-000000000000";
    let incarnation = INCARNATION.as_slice();
    connection.prepare_cached(PUT)?.execute(params![
        key,
        1,
        incarnation,
        write,
        TTL_NANOS,
        HOLDER,
        1_i64,
        boot,
        1_i64
    ])
}

#[async_trait(?Send)]
impl BareStatements for Sqlite {
    async fn claim(&mut self, slot: u32) -> Result<(), BareError> {
        self.transaction(slot, |connection, key| put(connection, key, 0))
    }

    async fn renew(&mut self, slot: u32) -> Result<(), BareError> {
        self.transaction(slot, |connection, key| put(connection, key, 1))
    }

    async fn release(&mut self, slot: u32) -> Result<(), BareError> {
        self.transaction(slot, |connection, key| connection.prepare_cached(VACATE)?.execute(params![key, 1]))
    }
}
