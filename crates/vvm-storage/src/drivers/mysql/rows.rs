//! How slots, settings and documents are laid out, the statement of each step, and how their answers are decoded.
//!
//! A step is one statement, or several in one message. Values stand in the text: bytes in hexadecimal digits, everything else
//! as numbers, so that nothing has to be quoted.
//!
//! The conditions are those of [`decide`](crate::decide), stated in SQL: an `UPDATE` compares them with the row that it locks,
//! and changes it or nothing.

use super::{
    connections::{FIT, HERE},
    errors::{Answer, Damaged, Hex, Row, nanos, ttl},
};
use crate::{
    drivers::fail_over::EPOCHS_OF_A_FAIL_OVER,
    key::{KEY_PREFIX_VVM_LEADER, Partition},
    step::{Columns, RecordColumns},
};
use ielections::{
    Document, DocumentId, DocumentVersion, DocumentWrite, Entry, Epoch, Fence, FenceState, Incarnation,
    OnlyIf, Page, Scan, Slot, Ttl, Vacant,
};
use std::{ops::Bound, time::Duration};

/// The comment of our tables, by which they are known. A change that an older version would misread raises the number.
pub(super) const FORMAT: &str = "vvm elections, format 1";

/// Our tables. The last one has a row once all are complete.
pub(super) const TABLES: [(&str, &str); 4] = [
    (
        "sysvvm_leader",
        "pk VARBINARY(1536) PRIMARY KEY, epoch BIGINT UNSIGNED NOT NULL, incarnation VARBINARY(16), \
         write_number BIGINT UNSIGNED, ttl_nanos BIGINT UNSIGNED, holder VARBINARY(255), \
         last_batch BIGINT UNSIGNED NOT NULL DEFAULT 0, shown BIGINT UNSIGNED NOT NULL DEFAULT 0, \
         written_at DATETIME(6)",
    ),
    ("sysvvm_setting", "pk VARBINARY(1536) PRIMARY KEY, value MEDIUMBLOB NOT NULL"),
    (
        "sysvvm_document",
        "pk VARBINARY(1536), id VARBINARY(1024), version BIGINT UNSIGNED NOT NULL, body MEDIUMBLOB NOT NULL, \
         PRIMARY KEY (pk, id)",
    ),
    (
        "sysvvm_history",
        "only_row TINYINT PRIMARY KEY, server VARBINARY(512) NOT NULL, witness VARBINARY(16) NOT NULL, \
         generation BIGINT UNSIGNED NOT NULL, max_ttl_nanos BIGINT UNSIGNED NOT NULL, adopted TINYINT NOT NULL",
    ),
];

/// Creates what is missing. `max_ttl` is the first bound of all TTLs.
pub(super) fn creation(max_ttl: Ttl, witness: &[u8]) -> String {
    let tables: String = TABLES
        .iter()
        .map(|(name, columns)| {
            format!(
                "CREATE TABLE IF NOT EXISTS {name} ({columns}) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, \
                 COMMENT = '{FORMAT}'; "
            )
        })
        .collect();
    format!(
        "{tables}INSERT IGNORE INTO sysvvm_history (only_row, server, witness, generation, max_ttl_nanos, adopted) \
         VALUES (1, {HERE}, {}, 1, {}, 0)",
        Hex(witness),
        nanos(max_ttl)
    )
}

/// Raises the bound of all TTLs.
pub(super) fn raise_max_ttl(max_ttl: Ttl) -> String {
    let nanos = nanos(max_ttl);
    format!("UPDATE sysvvm_history SET max_ttl_nanos = {nanos} WHERE max_ttl_nanos < {nanos}")
}

/// The history that the writes of a handle belong to: that of one server, from one fail-over to the next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct History {
    witness: Vec<u8>,
    /// Counts the fail-overs.
    generation: u64,
    /// No claim may have a larger TTL.
    pub(super) max_ttl: Ttl,
}

/// What [`HISTORY`] shows.
#[derive(Debug)]
pub(super) struct Shown {
    /// `None` if the server that answers is another one than the history names.
    pub(super) adopted: Option<History>,
    /// Whether the server accepts writes and keeps them.
    pub(super) is_fit: bool,
    /// The server's wall clock, since the Unix epoch.
    pub(super) server_time: Duration,
}

/// The server's wall clock, in milliseconds.
const SERVER_MILLIS: &str = "CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS UNSIGNED)";

/// Shows the history of the server that answers, its fitness and its clock.
pub(super) fn history() -> String {
    format!(
        "SELECT witness, generation, max_ttl_nanos, server = {HERE}, {FIT}, {SERVER_MILLIS} FROM sysvvm_history"
    )
}

impl History {
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.witness == other.witness
    }

    /// What [`history`] shows.
    pub(super) fn shown(row: Option<&Row>) -> Result<Shown, Damaged> {
        let row = row.ok_or_else(|| Damaged::of("table sysvvm_history is empty"))?;
        let history = Self {
            witness: row.bytes(0)?.to_vec(),
            generation: row.number(1)?,
            max_ttl: ttl(row.number(2)?)?,
        };
        Ok(Shown {
            adopted: row.is_true(3)?.then_some(history),
            is_fit: row.is_true(4)?,
            server_time: Duration::from_millis(row.number(5)?),
        })
    }

    /// That the database has this history, and `condition` with it.
    fn holds(&self, condition: &str) -> String {
        format!(
            "EXISTS (SELECT 1 FROM sysvvm_history h WHERE h.witness = {} AND h.server = {HERE} AND {FIT} \
             AND {condition})",
            Hex(&self.witness)
        )
    }
}

/// The statements as one transaction, with the history at its end.
pub(super) fn transaction(statements: &str) -> String {
    format!("START TRANSACTION; {statements}; {}; COMMIT", history())
}

/// The number of the statement in a [`transaction`] that shows the history.
pub(super) fn history_of(answer: &Answer) -> Option<&Row> {
    answer.row(answer.len().checked_sub(2)?)
}

/// The columns of a slot, as [`slot`] decodes them.
const SLOT: &str = "epoch, incarnation, write_number, ttl_nanos, holder, last_batch";

/// Locks a slot and shows it: two statements. The count makes it a write: InnoDB shows a commit to others before it is on disk,
/// and the end of this transaction waits until all is that was committed before.
pub(super) fn locked(at: &Partition) -> String {
    let pk = Hex(at.as_bytes());
    format!(
        "UPDATE sysvvm_leader SET shown = shown + 1 WHERE pk = {pk}; SELECT {SLOT} FROM sysvvm_leader WHERE pk = {pk}"
    )
}

/// Shows slots, with their keys behind them.
pub(super) fn peek(at: &[Partition]) -> String {
    format!("SELECT {SLOT}, pk FROM sysvvm_leader WHERE pk IN ({})", keys(at))
}

/// Shows how many milliseconds ago records were written by the server's clock, with their keys before that.
pub(super) fn ages(at: &[Partition]) -> String {
    format!(
        "SELECT pk, GREATEST(0, TIMESTAMPDIFF(MICROSECOND, written_at, SYSDATE(6)) DIV 1000) FROM sysvvm_leader \
         WHERE pk IN ({}) AND incarnation IS NOT NULL AND written_at IS NOT NULL",
        keys(at)
    )
}

fn keys(at: &[Partition]) -> String {
    at.iter().map(|at| Hex(at.as_bytes()).to_string()).collect::<Vec<_>>().join(", ")
}

/// Whether a forgotten leader may be at work in this slot after a fail-over. Requests and pauses are records as well, but no
/// work depends on their TTL.
pub(super) fn is_led(at: &Partition) -> bool {
    at.as_bytes().first() == Some(&KEY_PREFIX_VVM_LEADER)
}

/// The columns that a record has, with their values.
fn record(entry: &Entry) -> [(&'static str, String); 5] {
    let RecordColumns { incarnation, write, ttl_nanos, holder } = RecordColumns::of(entry);
    [
        ("epoch", entry.epoch.to_string()),
        ("incarnation", Hex(incarnation).to_string()),
        ("write_number", write.to_string()),
        ("ttl_nanos", ttl_nanos.to_string()),
        ("holder", Hex(holder).to_string()),
    ]
}

/// Replaces exactly the state `from` by `entry`. The number of rows that met the condition tells whether it did.
pub(super) fn swap(at: &Partition, from: &Slot, entry: &Entry, history: &History) -> String {
    match from {
        Slot::Vacant(Vacant { last_epoch: None }) => {
            let (columns, values): (Vec<_>, Vec<_>) = record(entry).into_iter().unzip();
            // After a fail-over, a slot without a row may have been claimed on the server that is lost.
            let fresh = if is_led(at) { "h.adopted = 0" } else { "TRUE" };
            format!(
                "INSERT IGNORE INTO sysvvm_leader (pk, {}, written_at) SELECT {}, {}, SYSDATE(6) FROM DUAL WHERE {}",
                columns.join(", "),
                Hex(at.as_bytes()),
                values.join(", "),
                history.holds(fresh)
            )
        }
        Slot::Vacant(Vacant { last_epoch: Some(epoch) }) => {
            replacement(at, &format!("epoch = {epoch} AND incarnation IS NULL"), entry, history)
        }
        Slot::Held { entry: held, .. } => renewal(at, held, entry, history),
    }
}

/// Replaces exactly this record by `entry`.
pub(super) fn renewal(at: &Partition, held: &Entry, entry: &Entry, history: &History) -> String {
    let stands = format!("{} AND write_number = {}", of(held.epoch, &held.incarnation()), held.version.write);
    replacement(at, &stands, entry, history)
}

fn of(epoch: Epoch, incarnation: &Incarnation) -> String {
    format!("epoch = {epoch} AND incarnation = {}", Hex(incarnation.as_bytes()))
}

fn replacement(at: &Partition, stands: &str, entry: &Entry, history: &History) -> String {
    // An assignment sees those before it, and a condition sees none.
    let assignments: String =
        record(entry).iter().map(|(column, value)| format!("{column} = {value}, ")).collect();
    format!(
        "UPDATE sysvvm_leader SET {assignments}written_at = SYSDATE(6) WHERE pk = {} AND {stands} AND {}",
        Hex(at.as_bytes()),
        history.holds("TRUE")
    )
}

/// Makes the slot vacant if this leadership holds it. The epoch stays.
pub(super) fn release(at: &Partition, incarnation: &Incarnation, epoch: Epoch, history: &History) -> String {
    format!(
        "UPDATE sysvvm_leader SET incarnation = NULL, write_number = NULL, ttl_nanos = NULL, holder = NULL \
         WHERE pk = {} AND {} AND {}",
        Hex(at.as_bytes()),
        of(epoch, incarnation),
        history.holds("TRUE")
    )
}

pub(super) fn settle(at: &Partition, value: &[u8]) -> String {
    format!(
        "INSERT IGNORE INTO sysvvm_setting (pk, value) SELECT {}, {} FROM DUAL WHERE {FIT}; {}",
        Hex(at.as_bytes()),
        Hex(value),
        setting(at)
    )
}

/// The keys of all settings.
pub(super) const SETTING_KEYS: &str = "SELECT pk FROM sysvvm_setting";

/// A setting that is not on disk yet may be shown. A claim that relies on it is on disk after it.
pub(super) fn setting(at: &Partition) -> String {
    format!("SELECT value FROM sysvvm_setting WHERE pk = {}", Hex(at.as_bytes()))
}

/// The slot that [`locked`] shows, and the count of its batches.
pub(super) fn fence(row: Option<&Row>) -> Result<FenceState, Damaged> {
    let Some(row) = row else {
        let slot = Slot::Vacant(Vacant { last_epoch: None });
        return Ok(FenceState { slot, last: DocumentVersion::NONE });
    };
    let last = DocumentVersion::from_stored(row.number(5)?);
    let epoch = row.number(0)?;
    if row.is_null(1) {
        let slot = Columns { epoch, record: None }.slot().map_err(Damaged::of)?;
        return Ok(FenceState { slot, last });
    }
    let record = RecordColumns {
        incarnation: row.bytes(1)?,
        write: row.number(2)?,
        ttl_nanos: row.number(3)?,
        holder: row.bytes(4)?,
    };
    Ok(FenceState { slot: Columns { epoch, record: Some(record) }.slot().map_err(Damaged::of)?, last })
}

/// The slot that [`locked`] shows.
pub(super) fn slot(row: Option<&Row>) -> Result<Slot, Damaged> {
    Ok(fence(row)?.slot)
}

/// Key and slot that [`peek`] shows.
pub(super) fn peeked(row: &Row) -> Result<(Vec<u8>, Slot), Damaged> {
    Ok((row.bytes(6)?.to_vec(), slot(Some(row))?))
}

/// Key and age that [`ages`] shows.
pub(super) fn age(row: &Row) -> Result<(Vec<u8>, Duration), Damaged> {
    Ok((row.bytes(0)?.to_vec(), Duration::from_millis(row.number(1)?)))
}

/// What holders of adopted slots are called. Nothing leads under this name.
const ADOPTED: &str = "none: waiting after a fail-over of the database";

/// Makes the history of this server ours, if no candidate has done so, and shows the slot of `at`.
///
/// Each slot becomes one that is held: a leader whose claim was forgotten may be at work in any of them, held or vacant.
/// Standbys observe that record for the largest TTL that a claim may have (I1), and its version is new to all of them, so that
/// no observation goes on across the change. Its epoch is larger than each that was given out and forgotten (I2). `at` gets
/// such a record if it has no row.
///
/// The history is changed if the server is another one than it names. It is changed as well if a handle knows a later one, or
/// another one of as many fail-overs: the server has forgotten that, and an older one is in use again. And if it knows a larger
/// bound of TTLs. `random`: 16 bytes, the new witness.
pub(super) fn adoption(
    at: Option<&Partition>,
    ours: Option<&History>,
    known: Option<Ttl>,
    random: &[u8],
) -> String {
    let (witness, generation) = ours.map_or((&[][..], 0), |ours| (&ours.witness, ours.generation));
    let (random, witness, known, holder) =
        (Hex(random), Hex(witness), known.map_or(0, nanos), Hex(ADOPTED.as_bytes()));
    let led = KEY_PREFIX_VVM_LEADER;
    // The lock lets one candidate adopt at a time.
    let adopt = format!(
        "SELECT only_row FROM sysvvm_history FOR UPDATE; \
         SET @vvm_changed = {FIT} AND (SELECT server <> {HERE} OR (witness <> {witness} \
            AND (generation <= {generation} OR max_ttl_nanos < {known})) FROM sysvvm_history); \
         UPDATE sysvvm_history SET server = {HERE}, witness = {random}, \
            generation = GREATEST(generation, {generation}) + 1, \
            max_ttl_nanos = GREATEST(max_ttl_nanos, {known}), adopted = 1 WHERE @vvm_changed; \
         UPDATE sysvvm_leader l JOIN sysvvm_history h SET \
            l.epoch = GREATEST(l.epoch + 1, {SERVER_MILLIS} + h.generation * {EPOCHS_OF_A_FAIL_OVER}), \
            l.incarnation = {random}, l.write_number = 0, l.ttl_nanos = h.max_ttl_nanos, l.holder = {holder} \
            WHERE @vvm_changed AND l.pk >= {} AND l.pk < {}",
        Hex(&[led]),
        Hex(&[led + 1]),
    );
    let Some(at) = at else { return adopt };
    let (pk, insertion) = (Hex(at.as_bytes()), if is_led(at) { "h.adopted = 1" } else { "FALSE" });
    format!(
        "{adopt}; INSERT IGNORE INTO sysvvm_leader (pk, epoch, incarnation, write_number, ttl_nanos, holder) \
            SELECT {pk}, {SERVER_MILLIS} + h.generation * {EPOCHS_OF_A_FAIL_OVER}, {random}, 0, h.max_ttl_nanos, \
            {holder} FROM sysvvm_history h WHERE {insertion} AND {FIT}; {}",
        locked(at),
    )
}

/// The number of the statement that shows the slot, in the [`transaction`] of an [`adoption`].
pub(super) const ADOPTED_SLOT: usize = 7;

/// A page ends behind the document with which it has so many bytes.
const PAGE_BYTES: usize = 1 << 20;

/// Writes a batch: statements of a [`transaction`], of which the one numbered [`COUNTED`] tells whether it did.
///
/// The slot is locked first: the next statements then see all that came before. The server does not wait for us in between.
///
/// Whether the conditions hold is decided once, before anything is written. `ROW_COUNT()` behind the update would not tell it: if
/// the client has gone, the update's answer can't be sent, the count becomes -1, and the server goes on with the next statement.
/// It would then write the number of the batch without its documents.
pub(super) fn write(at: &Partition, fence: &Fence, batch: &[DocumentWrite], history: &History) -> String {
    let pk = Hex(at.as_bytes());
    let number = fence.after.next().get();
    let conditions: String = batch.iter().filter_map(|write| condition(&pk, write)).collect();
    let mut text = format!(
        "{}; SET @vvm_holds = (SELECT COUNT(*) FROM sysvvm_leader WHERE pk = {pk} AND {} AND last_batch = {}{conditions} \
         AND {}); UPDATE sysvvm_leader SET last_batch = {number} WHERE pk = {pk} AND @vvm_holds = 1",
        locked(at),
        of(fence.epoch, &fence.incarnation),
        fence.after.get(),
        history.holds("TRUE"),
    );
    for write in batch {
        let id = Hex(write.id().as_bytes());
        text += &match write {
            DocumentWrite::Put { body, .. } => format!(
                "; REPLACE INTO sysvvm_document (pk, id, version, body) SELECT {pk}, {id}, {number}, {} FROM DUAL \
                 WHERE @vvm_holds = 1",
                Hex(body)
            ),
            DocumentWrite::Delete { .. } => {
                format!("; DELETE FROM sysvvm_document WHERE pk = {pk} AND id = {id} AND @vvm_holds = 1")
            }
        };
    }
    text
}

/// See [`write`].
pub(super) const COUNTED: usize = 4;

fn condition(pk: &Hex<'_>, write: &DocumentWrite) -> Option<String> {
    let id = Hex(write.id().as_bytes());
    let stands = format!("EXISTS (SELECT 1 FROM sysvvm_document d WHERE d.pk = {pk} AND d.id = {id}");
    match write.only_if() {
        OnlyIf::Always => None,
        OnlyIf::Absent => Some(format!(" AND NOT {stands})")),
        OnlyIf::Version(expected) => Some(format!(" AND {stands} AND d.version = {})", expected.get())),
    }
}

pub(super) fn document(at: &Partition, id: &DocumentId) -> String {
    format!(
        "SELECT id, version, body FROM sysvvm_document WHERE pk = {} AND id = {}",
        Hex(at.as_bytes()),
        Hex(id.as_bytes())
    )
}

/// Shows one page. Lengths are known without reading the bodies.
pub(super) fn page(at: &Partition, scan: &Scan) -> String {
    let start = match scan.start() {
        Bound::Excluded(after) => format!(" AND id > {}", Hex(after)),
        Bound::Included(start) => format!(" AND id >= {}", Hex(start)),
        Bound::Unbounded => String::new(),
    };
    let end = scan.end().map_or(String::new(), |end| format!(" AND id < {}", Hex(&end)));
    let pk = Hex(at.as_bytes());
    // Bodies are joined to the ids of the page, and never sorted.
    format!(
        "SELECT d.id, d.version, d.body, page.found FROM (\
            SELECT id, COUNT(*) OVER () AS found, ROW_NUMBER() OVER (ORDER BY id) AS place, \
                SUM(bytes) OVER (ORDER BY id) - bytes AS preceding FROM (\
                    SELECT id, LENGTH(body) AS bytes FROM sysvvm_document WHERE pk = {pk}{start}{end} \
                    ORDER BY id LIMIT {}) each_one) page \
         JOIN sysvvm_document d ON d.pk = {pk} AND d.id = page.id \
         WHERE page.preceding < {PAGE_BYTES} AND page.place <= {} ORDER BY d.id",
        scan.limit + 1,
        scan.limit,
    )
}

/// The document that [`document`] and [`page`] show.
pub(super) fn shown(row: &Row) -> Result<Document, Damaged> {
    let id = DocumentId::new(row.bytes(0)?.to_vec()).map_err(Damaged::of)?;
    let version = DocumentVersion::from_stored(row.number(1)?);
    Ok(Document { id, version, body: row.bytes(2)?.to_vec().into() })
}

/// The page that these rows are.
pub(super) fn shown_page(rows: &[Row]) -> Result<Page, Damaged> {
    let documents = rows.iter().map(shown).collect::<Result<Vec<_>, _>>()?;
    let found = rows.first().map_or(Ok(0), |row| row.number(3))?;
    let is_whole = usize::try_from(found).is_ok_and(|found| found <= documents.len());
    let next = documents.last().filter(|_| !is_whole).map(|last| last.id.clone());
    Ok(Page { documents, next })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_slot_is_not_a_vacancy() {
        let slot = |columns: [Option<&[u8]>; 6]| {
            super::slot(Some(&Row(columns.map(|cell| cell.map(<[u8]>::to_vec)).into())))
        };
        let held = [
            Some(&b"5"[..]),
            Some(&[7; 16]),
            Some(b"18446744073709551615"),
            Some(b"1000000000"),
            Some(b"a"),
            Some(b"0"),
        ];
        let Ok(Slot::Held { entry, proven_age: None }) = slot(held) else { panic!("not held") };
        assert_eq!((entry.epoch.get(), entry.version.write), (5, u64::MAX));
        let vacant = Slot::Vacant(Vacant { last_epoch: Some(entry.epoch) });
        assert_eq!(slot([held[0], None, None, None, None, held[5]]), Ok(vacant));
        for (column, value) in [
            (0, Some(&b"0"[..])),
            (0, None),
            (1, Some(b"7")),
            (2, None),
            (3, None),
            (3, Some(b"-1")),
            (4, Some(&[0xff])),
            (5, None),
        ] {
            let mut damaged = held;
            damaged[column] = value;
            assert!(slot(damaged).is_err(), "column {column}: {value:?}");
        }
    }
}
