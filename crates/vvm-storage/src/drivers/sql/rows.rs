use super::{
    answer::Row,
    errors::{DecodeError, DriverError},
    history::{ComparedHistory, Lineage, nanos},
};
use crate::{
    key::{KEY_PREFIX_VVM_LEADER, Partition},
    step::{Columns, RecordColumns},
    sysvvm::MOST_LISTED,
};
use ielections::{
    Document, DocumentId, DocumentVersion, DocumentWrite, Entry, Epoch, Fence, FenceState, Incarnation,
    OnlyIf, Page, Scan, Slot, Ttl, Vacant,
};
use std::{fmt::Display, ops::Bound, time::Duration};

/// The statements of a kind of server. A text has one or several, with `; ` between them.
pub(crate) trait Statements: Sized + 'static {
    type Statement<'a>: Display + Send + Sync;

    const PREFIX: &str;

    /// How many statements [`transaction`](Self::transaction) has before and behind.
    const FRAME: (usize, usize);

    /// The number of the statement in [`locked`](Self::locked) that shows the slot.
    const LOCKED_SLOT_STATEMENT: usize;

    /// The number of the statement in [`write`](Self::write), counted from the first in [`locked`](Self::locked)
    /// before it, whose rows tell whether the batch was written.
    const BATCH_STATEMENT: usize;

    const INSERTS_AGAIN: bool;

    /// The message that carries out `statements`, and then [`history`](Self::history), in one transaction. A wait for
    /// a lock ends after `lock_timeout` or earlier.
    ///
    /// The server has all of it before it begins, and so never waits for us in the middle.
    fn transaction(statements: &str, lock_timeout: Duration) -> String;

    /// Shows the history of the server that answers, as [`Lineage::shown`] decodes it.
    fn history() -> String;

    fn bytes(bytes: &[u8]) -> String;

    /// A column with bytes, as [`Row::bytes`](Row::bytes) decodes it.
    fn shown(column: &str) -> String;

    /// Creates what is missing. `max_ttl` is the first bound of all TTLs.
    fn creation(max_ttl: Ttl) -> Result<String, DriverError>;

    /// Locks a slot and shows it, as [`slot`](slot) decodes it. The end of the transaction waits until what is shown is
    /// kept.
    fn locked(at: &Partition) -> Self::Statement<'_>;

    fn peek(at: &[Partition]) -> Self::Statement<'_>;

    /// Shows how many milliseconds ago records were written by the server's clock, with their keys before that.
    fn ages(at: &[Partition]) -> String;

    /// Replaces exactly the state `from` by `entry`. The number of rows tells whether it did.
    fn claim<'a>(
        at: &'a Partition,
        from: &'a Slot,
        entry: &'a Entry,
        compared: ComparedHistory<'a>,
    ) -> Self::Statement<'a>;

    /// Replaces exactly this record by `entry`.
    fn renew<'a>(
        at: &'a Partition,
        held: &'a Entry,
        entry: &'a Entry,
        compared: ComparedHistory<'a>,
    ) -> Self::Statement<'a>;

    /// Makes the slot vacant if this leadership holds it. The epoch stays.
    fn release<'a>(
        at: &'a Partition,
        incarnation: &'a Incarnation,
        epoch: Epoch,
        compared: ComparedHistory<'a>,
    ) -> Self::Statement<'a>;

    /// Stores a setting unless there is one, and shows the one that stands.
    fn settle(at: &Partition, value: &[u8]) -> String;

    /// Writes a batch behind [`locked`](Self::locked), so that it sees all batches before it. The number of rows of
    /// the statement [`BATCH_STATEMENT`](Self::BATCH_STATEMENT) tells whether it did.
    fn batch(at: &Partition, fence: &Fence, batch: &[DocumentWrite], history: &Lineage) -> String;

    /// Makes the history of the server ours, if no candidate has done so, and shows the slot of `at` at its end.
    ///
    /// Each slot becomes one that is held: a leader whose claim was forgotten may be at work in any of them, held or
    /// vacant. Standbys observe that record for the largest TTL that a claim may have (I1), and its version is new to
    /// all of them, so that no observation goes on across the change. Its epoch is larger than each that was given out
    /// and forgotten (I2). `at` gets such a record if it has no row.
    ///
    /// A server may have forgotten that the largest TTL was raised. The larger of its own and `known` counts. If it
    /// was adopted without this knowledge, it is adopted once more by a handle whose history, `ours`, is another one.
    fn adoption(
        at: Option<&Partition>,
        ours: Option<&Lineage>,
        known: Option<Ttl>,
    ) -> Result<String, DriverError>;
}

/// Whether a forgotten leader may be at work in this slot after a fail-over. Requests and pauses are records as well, but no
/// work depends on their TTL.
pub(crate) fn is_led(at: &Partition) -> bool {
    at.as_bytes().first() == Some(&KEY_PREFIX_VVM_LEADER)
}

pub(crate) fn raise_max_ttl<S: Statements>(max_ttl: Ttl) -> String {
    let (prefix, nanos) = (S::PREFIX, nanos(max_ttl));
    format!("UPDATE {prefix}history SET max_ttl_nanos = {nanos} WHERE max_ttl_nanos < {nanos}")
}

/// A setting that is not on disk yet may be shown. A claim that relies on it is on disk after it.
pub(crate) fn setting<S: Statements>(at: &Partition) -> String {
    let (value, pk) = (S::shown("value"), S::bytes(at.as_bytes()));
    format!("SELECT {value} FROM {}setting WHERE pk = {pk}", S::PREFIX)
}

pub(crate) fn settings<S: Statements>() -> String {
    let (pk, value, prefix) = (S::shown("pk"), S::shown("value"), S::PREFIX);
    format!("SELECT {pk}, {value} FROM {prefix}setting ORDER BY pk LIMIT {MOST_LISTED}")
}

/// That the condition of a write holds, to be appended to others. `pk`: the partition, as it stands in statements.
pub(crate) fn condition<S: Statements>(pk: &str, write: &DocumentWrite) -> Option<String> {
    let (prefix, id) = (S::PREFIX, S::bytes(write.id().as_bytes()));
    let stands = format!("EXISTS (SELECT 1 FROM {prefix}document d WHERE d.pk = {pk} AND d.id = {id}");
    match write.only_if() {
        OnlyIf::Always => None,
        OnlyIf::Absent => Some(format!(" AND NOT {stands})")),
        // Versions count from 1, far within 63 bits.
        OnlyIf::Version(expected) => Some(format!(" AND {stands} AND d.version = {})", expected.get())),
    }
}

pub(crate) fn document<S: Statements>(at: &Partition, id: &DocumentId) -> String {
    format!(
        "SELECT {}, version, {} FROM {}document WHERE pk = {} AND id = {}",
        S::shown("id"),
        S::shown("body"),
        S::PREFIX,
        S::bytes(at.as_bytes()),
        S::bytes(id.as_bytes())
    )
}

/// A page ends behind the document with which it has so many bytes.
const PAGE_BYTES: usize = 1 << 20;

/// Shows one page. Lengths are known without reading the bodies.
pub(crate) fn page<S: Statements>(at: &Partition, scan: &Scan) -> String {
    let start = match scan.start() {
        Bound::Excluded(after) => format!(" AND id > {}", S::bytes(after)),
        Bound::Included(start) => format!(" AND id >= {}", S::bytes(start)),
        Bound::Unbounded => String::new(),
    };
    let end = scan.end().map_or(String::new(), |end| format!(" AND id < {}", S::bytes(&end)));
    // Bodies are joined to the ids of the page, and never sorted.
    format!(
        "SELECT {id}, d.version, {body}, page.found FROM (\
            SELECT id, COUNT(*) OVER () AS found, ROW_NUMBER() OVER (ORDER BY id) AS place, \
                SUM(bytes) OVER (ORDER BY id) - bytes AS preceding FROM (\
                    SELECT id, LENGTH(body) AS bytes FROM {prefix}document WHERE pk = {pk}{start}{end} \
                    ORDER BY id LIMIT {}) each_one) page \
         JOIN {prefix}document d ON d.pk = {pk} AND d.id = page.id \
         WHERE page.preceding < {PAGE_BYTES} AND page.place <= {} ORDER BY d.id",
        scan.limit + 1,
        scan.limit,
        id = S::shown("d.id"),
        body = S::shown("d.body"),
        prefix = S::PREFIX,
        pk = S::bytes(at.as_bytes()),
    )
}

/// Columns: epoch, incarnation, number of the write, TTL, holder, count of batches.
pub(crate) fn fence(row: Option<&Row>) -> Result<FenceState, DecodeError> {
    let Some(row) = row else {
        let slot = Slot::Vacant(Vacant { last_epoch: None });
        return Ok(FenceState { slot, last: DocumentVersion::NONE });
    };
    let (epoch, last) = (row.number(0)?, DocumentVersion::from_stored(row.number(5)?));
    if row.is_null(1) {
        let slot = Columns { epoch, record: None }.slot().map_err(DecodeError::of)?;
        return Ok(FenceState { slot, last });
    }
    let (incarnation, holder) = (row.bytes(1)?, row.bytes(4)?);
    let (write, ttl_nanos) = (row.number(2)?, row.number(3)?);
    let record = RecordColumns { incarnation: &incarnation, write, ttl_nanos, holder: &holder };
    Ok(FenceState { slot: Columns { epoch, record: Some(record) }.slot().map_err(DecodeError::of)?, last })
}

pub(crate) fn slot(row: Option<&Row>) -> Result<Slot, DecodeError> {
    Ok(fence(row)?.slot)
}

pub(crate) fn peeked(row: &Row) -> Result<(Vec<u8>, Slot), DecodeError> {
    Ok((row.bytes(6)?, slot(Some(row))?))
}

pub(crate) fn age(row: &Row) -> Result<(Vec<u8>, Duration), DecodeError> {
    Ok((row.bytes(0)?, Duration::from_millis(row.number(1)?)))
}

pub(crate) fn shown(row: &Row) -> Result<Document, DecodeError> {
    let id = DocumentId::new(row.bytes(0)?).map_err(DecodeError::of)?;
    let version = DocumentVersion::from_stored(row.number(1)?);
    Ok(Document { id, version, body: row.bytes(2)?.into() })
}

pub(crate) fn shown_page(rows: &[Row]) -> Result<Page, DecodeError> {
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
        let hex = |columns: [Option<&str>; 6]| {
            super::slot(Some(&Row::hex(columns.map(|column| column.map(str::to_owned)))))
        };
        let plain = |columns: [Option<&[u8]>; 6]| {
            super::slot(Some(&Row::plain(columns.map(|column| column.map(<[u8]>::to_vec)))))
        };
        let held = [
            Some("5"),
            Some("07070707070707070707070707070707"),
            Some("-1"),
            Some("1000000000"),
            Some("61"),
            Some("0"),
        ];
        let Ok(Slot::Held { entry, proven_age: None }) = hex(held) else { panic!("not held") };
        assert_eq!((entry.epoch.get(), entry.version.write), (5, u64::MAX));
        let bytes = [
            Some(&b"5"[..]),
            Some(&[7; 16]),
            Some(b"18446744073709551615"),
            Some(b"1000000000"),
            Some(b"a"),
            Some(b"0"),
        ];
        assert_eq!(plain(bytes), hex(held));
        let vacant = Slot::Vacant(Vacant { last_epoch: Some(entry.epoch) });
        assert_eq!(hex([held[0], None, None, None, None, held[5]]), Ok(vacant));
        for (column, value) in [
            (0, Some("0")),
            (0, None),
            (1, Some("07")),
            (2, None),
            (3, None),
            (3, Some("-1")),
            (4, Some("ff")),
            (5, None),
        ] {
            let mut damaged = held;
            damaged[column] = value;
            assert!(hex(damaged).is_err(), "column {column}: {value:?}");
        }
    }
}
