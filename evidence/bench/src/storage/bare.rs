//! The least statements of some drivers, sent directly through the same client library: of SQLite, PostgreSQL, etcd and object
//! stores. On the others a count of requests says as much: each verb is one.

mod databases;

use crate::report::Failure;
use async_trait::async_trait;
use rusqlite::{Connection, TransactionBehavior, params};
use tempfile::TempDir;

#[derive(Clone, Copy, Debug)]
pub(super) enum Verb {
    /// Claims a slot that was never led, without reading first.
    Claim,
    /// Replaces the last write, by the one with this number: 1 is the first after the claim.
    Renew(u64),
    /// Makes the slot vacant, after its first renewal.
    Release,
}

use Verb::{Claim, Release, Renew};

/// One conditional write for each verb, with the columns and the durability of the driver's. The caller numbers
/// the slots, and claims and releases each once.
#[async_trait(?Send)]
pub(super) trait BareStatements {
    async fn send(&mut self, slot: u32, verb: Verb) -> Result<(), Failure>;

    /// Returns statements for another writer at once, as the leaders of a handle are; `None` if many are not measured.
    async fn another(&mut self) -> Result<Option<Box<dyn BareStatements>>, Failure> {
        Ok(None)
    }
}

/// Returns the statements of the driver that `url` names; `None` if there are none to hold it against.
pub(super) async fn open(url: &str) -> Result<Option<Box<dyn BareStatements>>, Failure> {
    let bare: Box<dyn BareStatements> = match url.split_once(':') {
        Some(("sqlite", path)) => Box::new(Sqlite::beside(path)?),
        #[cfg(feature = "postgres")]
        Some(("postgres", _)) => Box::new(databases::sql::Postgres::connect(url).await?),
        #[cfg(feature = "etcd")]
        Some(("etcd", _)) => Box::new(databases::keys::Etcd::new(url)?),
        #[cfg(feature = "object-store")]
        Some(("s3", _)) => Box::new(databases::objects::Objects::open(url)?),
        _ => return Ok(None),
    };
    Ok(Some(bare))
}

fn folder_beside(path: &str) -> std::io::Result<TempDir> {
    let path = std::path::absolute(path)?;
    tempfile::Builder::new().prefix("bench-").tempdir_in(path.parent().unwrap_or(&path))
}

const INCARNATION: [u8; 16] = [7; 16];
const TTL_NANOS: i64 = 20_000_000_000;
const HOLDER: &str = "10.0.0.7";

/// A partition's key, as long as the driver's.
fn key(slot: u32) -> Vec<u8> {
    [b"\x01bench-4242-1234567890123".as_slice(), &slot.to_be_bytes()].concat()
}

/// The same for runs that share a table, and each need slots that were never led.
#[cfg(feature = "postgres")]
fn key_of_run(slot: u32) -> Vec<u8> {
    [key(slot).as_slice(), &std::process::id().to_be_bytes()].concat()
}

#[cfg(feature = "etcd")]
fn record(write: u64) -> Vec<u8> {
    let (epoch, ttl) = (1_u64.to_be_bytes(), TTL_NANOS.to_be_bytes());
    [&epoch, INCARNATION.as_slice(), &write.to_be_bytes(), &ttl, HOLDER.as_bytes()].concat()
}

/// A table of the same shape, in a file with the same settings: a transaction that reads and writes the row.
struct Sqlite {
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
    fn beside(path: &str) -> Result<Self, Failure> {
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
}

#[async_trait(?Send)]
impl BareStatements for Sqlite {
    async fn send(&mut self, slot: u32, verb: Verb) -> Result<(), Failure> {
        let key = key(slot);
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        {
            let mut statement = transaction.prepare_cached(READ)?;
            let mut rows = statement.query(params![key])?;
            while let Some(row) = rows.next()? {
                let _: (i64, Option<Vec<u8>>) = (row.get(0)?, row.get(1)?);
            }
        }
        let boot = "00000000-0000-0000-0000-000000000000";
        let incarnation = INCARNATION.as_slice();
        let put = |write: i64| {
            let parameters = params![key, 1, incarnation, write, TTL_NANOS, HOLDER, 1_i64, boot, 1_i64];
            transaction.prepare_cached(PUT)?.execute(parameters)
        };
        match verb {
            Claim => put(0)?,
            Renew(number) => put(i64::try_from(number)?)?,
            Release => transaction.prepare_cached(VACATE)?.execute(params![key, 1])?,
        };
        Ok(transaction.commit()?)
    }
}
