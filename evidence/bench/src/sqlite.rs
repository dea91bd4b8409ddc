//! Acquire, renew and release on `sqlite`, beside the same statements made directly with rusqlite, by turns in one run.
//!
//! Ours goes through [`TtlStorage`], to a thread that owns the connection and back. Direct is a transaction on this
//! thread with the statements that the verb makes: a read of the row and a write of it.

use crate::figure::{Figure, Unit};
use clock::{Clock, SystemClock};
use ielections::{
    Claim, Delete, Entry, Epoch, Holder, Incarnation, ReadError, Swap, Ttl, TtlStorage, Vacant, Version,
    WriteError,
    record::{EpochOutOfRange, HolderTooLong},
};
use rusqlite::{Connection, TransactionBehavior, params};
use std::{io, num::NonZeroU32, path::Path, sync::Arc};
use vvm_storage::{ElectionKey, ElectionsTtlStorage, OpenError, SlotNumber};

/// No figure.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SqliteError {
    #[error("no folder, clock or runtime: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("rusqlite: {0}")]
    Direct(#[from] rusqlite::Error),
    #[error(transparent)]
    Epoch(#[from] EpochOutOfRange),
    #[error(transparent)]
    Holder(#[from] HolderTooLong),
    #[error("a write that nobody stands in the way of was refused")]
    Refused,
}

/// Microseconds of one acquisition, one renewal and one release.
type Sample = [f64; 3];

pub(crate) fn measure(quick: bool) -> Result<Vec<Figure>, SqliteError> {
    let rounds = if quick { 20 } else { 400 };
    let folder = tempfile::tempdir()?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let mut direct = Direct::open(&folder.path().join("direct.db"))?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start()?);
    let url = format!("sqlite:{}", folder.path().join("ours.db").display());
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    runtime.block_on(async {
        let storage = ElectionsTtlStorage::new(vvm_storage::open(&url, clock).await?);
        let mut vacant = Vacant::default();
        for round in 0..=rounds {
            let sample = (once(&storage, &mut vacant).await?, direct.once()?);
            // The first round fills caches and creates rows.
            if round > 0 {
                ours.push(sample.0);
                theirs.push(sample.1);
            }
        }
        storage.close().await;
        Ok::<_, SqliteError>(())
    })?;
    Ok(figures(&ours, &theirs))
}

fn figures(ours: &[Sample], theirs: &[Sample]) -> Vec<Figure> {
    const NAMES: [[&str; 3]; 3] = [
        ["acquire on sqlite", "the same statements directly", "ratio of each acquisition"],
        ["renew on sqlite", "the same statements directly", "ratio of each renewal"],
        ["release on sqlite", "the same statements directly", "ratio of each release"],
    ];
    let mut figures = Vec::new();
    for (verb, [our_name, their_name, ratio_name]) in NAMES.into_iter().enumerate() {
        let of = |samples: &[Sample]| samples.iter().map(|sample| sample[verb]).collect::<Vec<f64>>();
        let (our, their) = (of(ours), of(theirs));
        let ratios = our.iter().zip(&their).map(|(our, their)| our / their).collect();
        figures.push(Figure::new(our_name, Unit::Microseconds, our));
        figures.push(Figure::new(their_name, Unit::Microseconds, their));
        figures.push(Figure::new(ratio_name, Unit::Ratio, ratios));
    }
    figures
}

async fn once(storage: &ElectionsTtlStorage, vacant: &mut Vacant) -> Result<Sample, SqliteError> {
    let key = ElectionKey { cluster: "bench".into(), slot: SlotNumber::new(NonZeroU32::MIN) };
    let epoch = Epoch::new(vacant.last_epoch.map_or(1, |last| last.get() + 1))?;
    let version = Version { incarnation: Incarnation::from_bytes([7; 16]), write: 0 };
    let entry = Entry { holder: Holder::new("10.0.0.7")?, version, ttl: Ttl::DEFAULT, epoch };
    let began = SystemClock::read();
    storage.get(&key).await?;
    let claim = storage.insert_if_not_exist(&key, *vacant, &entry).await?;
    let acquired = SystemClock::read();
    let renewed = entry.renewed(version.next());
    let swap = storage.compare_and_swap(&key, &entry, &renewed).await?;
    let renewed_at = SystemClock::read();
    let delete = storage.compare_and_delete(&key, version.incarnation, epoch).await?;
    let released = SystemClock::read();
    if (claim, swap, delete) != (Claim::Claimed, Swap::Swapped, Delete::Deleted) {
        return Err(SqliteError::Refused);
    }
    vacant.last_epoch = Some(epoch);
    Ok(spans([began, acquired, renewed_at, released]))
}

/// The three spans between four readings.
fn spans(readings: [clock::Instant; 4]) -> Sample {
    let [began, acquired, renewed, released] = readings;
    [(began, acquired), (acquired, renewed), (renewed, released)]
        .map(|(from, to)| from.until(to).as_secs_f64() * 1e6)
}

/// A table of the same shape, in a file with the same settings.
struct Direct(Connection);

const READ: &str =
    "SELECT epoch, incarnation, write, ttl_nanos, holder, issued_at_nanos, boot_id, time_namespace
    FROM leader WHERE pk = ?1";
const PUT: &str = "INSERT OR REPLACE INTO leader
    (pk, epoch, incarnation, write, ttl_nanos, holder, issued_at_nanos, boot_id, time_namespace)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
const VACATE: &str = "INSERT OR REPLACE INTO leader (pk, epoch) VALUES (?1, ?2)";
const KEY: &[u8] = b"\x01bench\0\0\0\x01";

impl Direct {
    fn open(path: &Path) -> Result<Self, SqliteError> {
        let connection = Connection::open(path)?;
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.execute_batch(
            "CREATE TABLE leader (pk BLOB PRIMARY KEY NOT NULL, epoch INTEGER NOT NULL, incarnation BLOB,
             write INTEGER, ttl_nanos INTEGER, holder TEXT, issued_at_nanos INTEGER, boot_id TEXT,
             time_namespace INTEGER) STRICT, WITHOUT ROWID",
        )?;
        Ok(Self(connection))
    }

    fn once(&mut self) -> Result<Sample, SqliteError> {
        let began = SystemClock::read();
        self.read()?;
        self.write(|connection| put(connection, 0))?;
        let acquired = SystemClock::read();
        self.write(|connection| put(connection, 1))?;
        let renewed = SystemClock::read();
        self.write(|connection| {
            connection.prepare_cached(VACATE)?.execute(params![KEY, 1])?;
            Ok(())
        })?;
        let released = SystemClock::read();
        Ok(spans([began, acquired, renewed, released]))
    }

    fn read(&self) -> rusqlite::Result<()> {
        read(&self.0)
    }

    fn write(&mut self, write: impl FnOnce(&Connection) -> rusqlite::Result<()>) -> rusqlite::Result<()> {
        let transaction = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        read(&transaction)?;
        write(&transaction)?;
        transaction.commit()
    }
}

fn read(connection: &Connection) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(READ)?;
    let mut rows = statement.query(params![KEY])?;
    while let Some(row) = rows.next()? {
        let _: (i64, Option<Vec<u8>>) = (row.get(0)?, row.get(1)?);
    }
    Ok(())
}

fn put(connection: &Connection, write: i64) -> rusqlite::Result<()> {
    let boot = "00000000-0000-0000-0000-000000000000";
    connection.prepare_cached(PUT)?.execute(params![
        KEY,
        1,
        [7_u8; 16].as_slice(),
        write,
        20_000_000_000_i64,
        "10.0.0.7",
        1_i64,
        boot,
        1_i64
    ])?;
    Ok(())
}
