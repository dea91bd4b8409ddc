//! All SQL of the driver.

/// The number of the last batch is no column of `leader`: most slots have no documents, and a row is replaced whole.
pub(super) const SCHEMA: &str = "
    CREATE TABLE leader (
        pk BLOB PRIMARY KEY NOT NULL,
        epoch INTEGER NOT NULL,
        incarnation BLOB,
        write INTEGER,
        ttl_nanos INTEGER,
        holder TEXT,
        issued_at_nanos INTEGER,
        boot_id TEXT,
        time_namespace INTEGER
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE setting (
        pk BLOB PRIMARY KEY NOT NULL,
        value BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE batch (
        pk BLOB PRIMARY KEY NOT NULL,
        last INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE document (
        pk BLOB NOT NULL,
        id BLOB NOT NULL,
        version INTEGER NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (pk, id)
    ) STRICT, WITHOUT ROWID;
";

pub(super) const READ: &str = "
    SELECT epoch, incarnation, write, ttl_nanos, holder, issued_at_nanos, boot_id, time_namespace
    FROM leader WHERE pk = ?1";

pub(super) const PUT: &str = "
    INSERT OR REPLACE INTO leader
        (pk, epoch, incarnation, write, ttl_nanos, holder, issued_at_nanos, boot_id, time_namespace)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";

pub(super) const VACATE: &str = "INSERT OR REPLACE INTO leader (pk, epoch) VALUES (?1, ?2)";

pub(super) const SETTLE: &str = "INSERT INTO setting (pk, value) VALUES (?1, ?2)";

pub(super) const SETTING: &str = "SELECT value FROM setting WHERE pk = ?1";

pub(super) const SETTINGS: &str = "SELECT pk, value FROM setting ORDER BY pk LIMIT ?1";

/// Reads record and batch number in one statement, at one moment. Only a leader writes a batch, so there is a
/// row in `leader` wherever there is one in `batch`.
pub(super) const FENCE: &str = "
    SELECT epoch, incarnation, write, ttl_nanos, holder, issued_at_nanos, boot_id, time_namespace, last
    FROM leader LEFT JOIN batch USING (pk) WHERE pk = ?1";

pub(super) const COUNT_BATCH: &str = "INSERT OR REPLACE INTO batch (pk, last) VALUES (?1, ?2)";

pub(super) const VERSION_OF_DOCUMENT: &str = "SELECT version FROM document WHERE pk = ?1 AND id = ?2";

pub(super) const PUT_DOCUMENT: &str =
    "INSERT OR REPLACE INTO document (pk, id, version, body) VALUES (?1, ?2, ?3, ?4)";

pub(super) const DELETE_DOCUMENT: &str = "DELETE FROM document WHERE pk = ?1 AND id = ?2";

pub(super) const READ_DOCUMENT: &str = "SELECT version, body FROM document WHERE pk = ?1 AND id = ?2";

pub(super) const SCAN_DOCUMENTS: &str =
    "SELECT id, version, body FROM document WHERE pk = ?1 AND id >= ?2 ORDER BY id";

pub(super) const READ_BETWEEN: &str = "
    SELECT epoch, incarnation, write, ttl_nanos, holder, issued_at_nanos, boot_id, time_namespace, pk
    FROM leader WHERE pk BETWEEN ?1 AND ?2 ORDER BY pk";

/// What a standby reads, time and again: its slot and two requests. The last column is the place in the list.
pub(super) const READ_FEW: &str = "
    SELECT epoch, incarnation, write, ttl_nanos, holder, issued_at_nanos, boot_id, time_namespace, 0
    FROM leader WHERE pk = ?1 UNION ALL
    SELECT epoch, incarnation, write, ttl_nanos, holder, issued_at_nanos, boot_id, time_namespace, 1
    FROM leader WHERE pk = ?2 UNION ALL
    SELECT epoch, incarnation, write, ttl_nanos, holder, issued_at_nanos, boot_id, time_namespace, 2
    FROM leader WHERE pk = ?3";
