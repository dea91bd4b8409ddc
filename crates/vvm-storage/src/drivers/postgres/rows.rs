//! How slots and settings are laid out, the statement of each step, and how their answers are decoded.
//!
//! A step is one prepared statement, or several statements in one message of PostgreSQL's simple protocol,
//! which the server carries out as one transaction. There, values stand in the text: bytes in hexadecimal
//! digits, everything else as numbers, so that nothing has to be quoted.
//!
//! A document is a row of its own. The count of a partition's batches is a column of its leader record, whose row
//! survives every release.
//!
//! The conditions are those of [`decide`](crate::decide), stated in SQL: an `UPDATE` compares them with the row
//! that it locks, and changes it or nothing.

use super::{
    errors::{Damaged, Hex, Row, Statement, Value, nanos},
    history::{self, Compared, History, NAMES_THIS_SERVER, RANDOM, SERVER_MILLIS, TIMELINE, holds},
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

/// The comment of our schema, by which it is known. A change that an older version would misread raises the
/// number.
pub(super) const FORMAT: &str = "vvm elections, format 1";

/// Creates schema and tables, as one message. `max_ttl` is the first bound of all TTLs.
pub(super) fn creation(max_ttl: Ttl) -> String {
    format!(
        "CREATE SCHEMA sysvvm; COMMENT ON SCHEMA sysvvm IS '{FORMAT}'; \
         CREATE TABLE sysvvm.leader (pk bytea PRIMARY KEY, epoch bigint NOT NULL, incarnation bytea, \
            write bigint, ttl_nanos bigint, holder bytea, last_batch bigint NOT NULL DEFAULT 0, \
            written_at timestamptz) WITH (fillfactor = 50); \
         CREATE FUNCTION sysvvm.written() RETURNS trigger LANGUAGE plpgsql AS \
            $$ BEGIN NEW.written_at := clock_timestamp(); RETURN NEW; END $$; \
         CREATE TRIGGER written BEFORE INSERT OR UPDATE OF write ON sysvvm.leader \
            FOR EACH ROW EXECUTE FUNCTION sysvvm.written(); \
         CREATE TABLE sysvvm.setting (pk bytea PRIMARY KEY, value bytea NOT NULL); \
         CREATE TABLE sysvvm.document (pk bytea, id bytea, version bigint NOT NULL, body bytea NOT NULL, \
            PRIMARY KEY (pk, id)); \
         CREATE TABLE sysvvm.history (only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row), \
            system bigint NOT NULL, timeline bigint NOT NULL, witness bytea NOT NULL, \
            adopted boolean NOT NULL DEFAULT false, max_ttl_nanos bigint NOT NULL); \
         INSERT INTO sysvvm.history (system, timeline, witness, max_ttl_nanos) \
            SELECT system_identifier, {timeline}, {witness}, {max_ttl} FROM pg_control_system()",
        timeline = TIMELINE,
        witness = RANDOM,
        max_ttl = nanos(max_ttl),
    )
}

/// Raises the bound of all TTLs.
pub(super) fn raise_max_ttl(max_ttl: Ttl) -> String {
    let nanos = nanos(max_ttl);
    format!("UPDATE sysvvm.history SET max_ttl_nanos = {nanos} WHERE max_ttl_nanos < {nanos}")
}

/// How many statements [`settings`] are.
pub(super) const SETTINGS: usize = 2;

/// Makes commits wait for the disk and for synchronous standbys, whatever the server's settings are, and ends
/// waits for a lock after `lock_timeout`; the one for a standby can't be bounded. For one transaction
/// (`LOCAL`) or as long as the connection lasts (`SESSION`).
pub(super) fn settings(extent: &str, lock_timeout: Duration) -> String {
    format!(
        "SET {extent} synchronous_commit = on; SET {extent} lock_timeout = {}",
        lock_timeout.as_millis().max(1)
    )
}

/// The columns of a slot, as [`slot`] decodes them: text, by whichever protocol it comes.
const SLOT: &str = "epoch::text, encode(incarnation, 'hex'), write::text, ttl_nanos::text, \
    encode(holder, 'hex'), last_batch::text";

/// Shows a slot and locks it. The lock makes the transaction wait, at its end, until what is shown is
/// replicated: without it a reader sees what no synchronous standby has.
pub(super) fn locked(at: &Partition) -> Statement<'_> {
    let text = format!("SELECT {SLOT} FROM sysvvm.leader WHERE pk = $1 FOR NO KEY UPDATE");
    Statement::new(text, [Value::Bytes(Some(at.as_bytes()))])
}

/// Shows slots, with their keys before them.
pub(super) fn peek(at: &[Partition]) -> Statement<'_> {
    let text = format!("SELECT encode(pk, 'hex'), {SLOT} FROM sysvvm.leader WHERE pk = ANY ($1)");
    Statement::new(text, [Value::Keys(at.iter().map(Partition::as_bytes).collect())])
}

/// Shows how many milliseconds ago records were written by the server's clock, with their keys before that.
/// Null in a schema that was created before it had these times.
pub(super) fn ages(at: &[Partition]) -> Statement<'_> {
    let text = "SELECT encode(pk, 'hex'), GREATEST(0, extract(epoch FROM \
            clock_timestamp() - (to_jsonb(l) ->> 'written_at')::timestamptz) * 1000)::bigint::text \
         FROM sysvvm.leader l WHERE pk = ANY ($1) AND incarnation IS NOT NULL \
            AND to_jsonb(l) ->> 'written_at' IS NOT NULL";
    Statement::new(text.into(), [Value::Keys(at.iter().map(Partition::as_bytes).collect())])
}

/// Whether a forgotten leader may be at work in this slot after a fail-over. Requests and pauses are records
/// as well, but no work depends on their TTL.
pub(super) fn is_led(at: &Partition) -> bool {
    at.as_bytes().first() == Some(&KEY_PREFIX_VVM_LEADER)
}

/// Replaces exactly the state `from` by `entry`. The number of rows that it changes tells whether it did.
pub(super) fn swap<'a>(
    at: &'a Partition,
    from: &'a Slot,
    entry: &'a Entry,
    history: &'a History,
    compared: Compared,
) -> Statement<'a> {
    match from {
        Slot::Vacant(Vacant { last_epoch: None }) => {
            let witness = Value::Bytes(Some(history.witness()));
            let [epoch, incarnation, write, ttl_nanos, holder] = record(entry);
            let pk = Value::Bytes(Some(at.as_bytes()));
            // After a fail-over, a slot without a row may have been claimed on the server that is lost.
            let fresh = if is_led(at) { "NOT h.adopted" } else { "true" };
            let text = format!(
                "INSERT INTO sysvvm.leader (pk, epoch, incarnation, write, ttl_nanos, holder) \
                 SELECT $1::bytea, $2::bigint, $3::bytea, $4::bigint, $5::bigint, $6::bytea WHERE {} \
                 ON CONFLICT DO NOTHING",
                history::holds(compared, "$7", fresh)
            );
            Statement::new(text, [pk, epoch, incarnation, write, ttl_nanos, holder, witness])
        }
        Slot::Vacant(Vacant { last_epoch: Some(epoch) }) => {
            let vacant = [number(*epoch), Value::Bytes(None), Value::Number(None)];
            replacement(at, vacant, entry, history, compared)
        }
        Slot::Held { entry: held, .. } => renewal(at, held, entry, history, compared),
    }
}

/// Replaces exactly this record by `entry`.
pub(super) fn renewal<'a>(
    at: &'a Partition,
    held: &'a Entry,
    entry: &'a Entry,
    history: &'a History,
    compared: Compared,
) -> Statement<'a> {
    let [epoch, incarnation, write, ..] = record(held);
    replacement(at, [epoch, incarnation, write], entry, history, compared)
}

fn replacement<'a>(
    at: &'a Partition,
    [old_epoch, old_incarnation, old_write]: [Value<'a>; 3],
    entry: &'a Entry,
    history: &'a History,
    compared: Compared,
) -> Statement<'a> {
    let witness = Value::Bytes(Some(history.witness()));
    let [epoch, incarnation, write, ttl_nanos, holder] = record(entry);
    let pk = Value::Bytes(Some(at.as_bytes()));
    let text = format!(
        "UPDATE sysvvm.leader SET epoch = $2, incarnation = $3, write = $4, ttl_nanos = $5, holder = $6 \
         WHERE pk = $1 AND epoch = $7 AND incarnation IS NOT DISTINCT FROM $8 \
            AND write IS NOT DISTINCT FROM $9 AND {}",
        history::holds(compared, "$10", "true")
    );
    let old = [old_epoch, old_incarnation, old_write, witness];
    Statement::new(text, [pk, epoch, incarnation, write, ttl_nanos, holder].into_iter().chain(old))
}

/// Makes the slot vacant if this leadership holds it. The epoch stays.
pub(super) fn release<'a>(
    at: &'a Partition,
    incarnation: &'a Incarnation,
    epoch: Epoch,
    history: &'a History,
    compared: Compared,
) -> Statement<'a> {
    let text = format!(
        "UPDATE sysvvm.leader SET incarnation = NULL, write = NULL, ttl_nanos = NULL, holder = NULL \
         WHERE pk = $1 AND epoch = $2 AND incarnation = $3 AND {}",
        history::holds(compared, "$4", "true")
    );
    let [pk, incarnation, witness] =
        [at.as_bytes(), incarnation.as_bytes(), history.witness()].map(|bytes| Value::Bytes(Some(bytes)));
    Statement::new(text, [pk, number(epoch), incarnation, witness])
}

pub(super) fn settle(at: &Partition, value: &[u8]) -> String {
    let (pk, value) = (Hex(at.as_bytes()), Hex(value));
    format!(
        "INSERT INTO sysvvm.setting (pk, value) VALUES ({pk}, {value}) ON CONFLICT DO NOTHING; \
         SELECT encode(value, 'hex') FROM sysvvm.setting WHERE pk = {pk} FOR NO KEY UPDATE"
    )
}

/// The keys of all settings.
pub(super) const SETTING_KEYS: &str = "SELECT encode(pk, 'hex') FROM sysvvm.setting";

pub(super) fn setting(at: &Partition) -> String {
    format!("SELECT encode(value, 'hex') FROM sysvvm.setting WHERE pk = {}", Hex(at.as_bytes()))
}

/// The slot that [`locked`] shows, and the count of its batches.
pub(super) fn fence(row: Option<&Row>) -> Result<FenceState, Damaged> {
    let Some(row) = row else {
        let slot = Slot::Vacant(Vacant { last_epoch: None });
        return Ok(FenceState { slot, last: DocumentVersion::NONE });
    };
    Ok(FenceState { slot: slot_at(row, 0)?, last: version(row.number(5)?) })
}

/// The slot that [`locked`] shows.
pub(super) fn slot(row: Option<&Row>) -> Result<Slot, Damaged> {
    Ok(fence(row)?.slot)
}

/// Key and age that [`ages`] shows.
pub(super) fn age(row: &Row) -> Result<(Vec<u8>, Duration), Damaged> {
    Ok((row.bytes(0)?, Duration::from_millis(row.number(1)?.cast_unsigned())))
}

/// Key and slot that [`peek`] shows.
pub(super) fn peeked(row: &Row) -> Result<(Vec<u8>, Slot), Damaged> {
    Ok((row.bytes(0)?, slot_at(row, 1)?))
}

fn slot_at(row: &Row, first: usize) -> Result<Slot, Damaged> {
    let epoch = row.number(first)?.cast_unsigned();
    if row.is_null(first + 1) {
        return Columns { epoch, record: None }.slot().map_err(Damaged::of);
    }
    let (incarnation, holder) = (row.bytes(first + 1)?, row.bytes(first + 4)?);
    let record = RecordColumns {
        incarnation: &incarnation,
        write: row.number(first + 2)?.cast_unsigned(),
        ttl_nanos: row.number(first + 3)?.cast_unsigned(),
        holder: &holder,
    };
    Columns { epoch, record: Some(record) }.slot().map_err(Damaged::of)
}

pub(super) fn version(stored: i64) -> DocumentVersion {
    DocumentVersion::from_stored(stored.cast_unsigned())
}

/// The columns of a leader record: epoch, incarnation, write, TTL and holder.
fn record(entry: &Entry) -> [Value<'_>; 5] {
    let RecordColumns { incarnation, write, ttl_nanos, holder } = RecordColumns::of(entry);
    [
        number(entry.epoch),
        Value::Bytes(Some(incarnation)),
        Value::Number(Some(write.cast_signed())),
        Value::Number(Some(ttl_nanos.cast_signed())),
        Value::Bytes(Some(holder)),
    ]
}

fn number(epoch: Epoch) -> Value<'static> {
    Value::Number(Some(epoch.get().cast_signed()))
}

/// What holders of adopted slots are called. Nothing leads under this name.
const ADOPTED: &str = "none: waiting after a fail-over of PostgreSQL";

/// Makes the history of this server ours, if no candidate has done so, and shows the slot of `at`.
///
/// Each slot becomes one that is held: a leader whose claim was forgotten may be at work in any of them, held
/// or vacant. Standbys observe that record for the largest TTL that a claim may have (I1), and its version is
/// new to all of them, so that no observation goes on across the change. Its epoch is larger than each that
/// was given out and forgotten (I2). `at` gets such a record if it has no row.
///
/// A promoted server may have forgotten that the largest TTL was raised. The larger of its own and `known`
/// counts. If it was adopted without this knowledge, it is adopted once more by a handle whose history,
/// `ours`, is another one.
pub(super) fn adoption(at: Option<&Partition>, ours: Option<&History>, known: Option<Ttl>) -> String {
    let led = KEY_PREFIX_VVM_LEADER;
    let (known, ours) = (known.map_or(0, nanos), Hex(ours.map_or(&[], History::witness)));
    let changed = format!(
        "EXISTS (SELECT FROM sysvvm.history h, pg_control_system() c \
         WHERE NOT ({NAMES_THIS_SERVER}{TIMELINE}) \
            OR (h.max_ttl_nanos < {known} AND h.witness <> {ours}))"
    );
    let epoch = format!("{SERVER_MILLIS} + {TIMELINE} * {EPOCHS_OF_A_FAIL_OVER}");
    let holder = Hex(ADOPTED.as_bytes());
    // The first statement lets one candidate adopt at a time.
    let adopt = format!(
        "SELECT FROM sysvvm.history FOR UPDATE; \
         UPDATE sysvvm.leader SET epoch = GREATEST(epoch + 1, {epoch}), incarnation = {RANDOM}, write = 0, \
            ttl_nanos = (SELECT GREATEST(max_ttl_nanos, {known}) FROM sysvvm.history), holder = {holder} \
            WHERE substr(pk, 1, 1) = {led} AND {changed}; \
         UPDATE sysvvm.history SET system = c.system_identifier, timeline = {TIMELINE}, witness = {RANDOM}, \
            max_ttl_nanos = GREATEST(max_ttl_nanos, {known}), adopted = true \
            FROM pg_control_system() c WHERE {changed}",
        led = Hex(&[led]),
    );
    match at {
        None => adopt,
        Some(at) => {
            let insertion = if is_led(at) { "h.adopted" } else { "false" };
            format!(
                "{adopt}; INSERT INTO sysvvm.leader (pk, epoch, incarnation, write, ttl_nanos, holder) \
                    SELECT {pk}, {epoch}, {RANDOM}, 0, h.max_ttl_nanos, {holder} \
                    FROM sysvvm.history h WHERE {insertion} ON CONFLICT DO NOTHING; {}",
                locked(at),
                pk = Hex(at.as_bytes()),
            )
        }
    }
}

/// A page ends behind the document with which it has so many bytes.
const PAGE_BYTES: usize = 1 << 20;

/// Writes a batch, and returns one row if it did. The leader record has to be locked before, in the same
/// transaction: every batch locks it, so this statement sees all that came before.
pub(super) fn write(at: &Partition, fence: &Fence, batch: &[DocumentWrite], history: &History) -> String {
    let pk = Hex(at.as_bytes());
    let number = fence.after.next().get().cast_signed();
    let conditions: String = batch.iter().filter_map(|write| condition(&pk, write)).collect();
    let (mut puts, mut deletions) = (Vec::new(), Vec::new());
    for write in batch {
        match write {
            DocumentWrite::Put { id, body, .. } => {
                puts.push(format!("({}, {})", Hex(id.as_bytes()), Hex(body)));
            }
            DocumentWrite::Delete { id, .. } => deletions.push(Hex(id.as_bytes()).to_string()),
        }
    }
    let mut text = format!(
        "WITH counted AS (UPDATE sysvvm.leader SET last_batch = {number} \
            WHERE pk = {pk} AND epoch = {} AND incarnation = {} AND last_batch = {}{conditions} AND {} \
            RETURNING true)",
        fence.epoch,
        Hex(fence.incarnation.as_bytes()),
        fence.after.get().cast_signed(),
        holds(Compared::Server, &Hex(history.witness()).to_string(), "true"),
    );
    if !puts.is_empty() {
        text += &format!(
            ", put AS (INSERT INTO sysvvm.document (pk, id, version, body) \
                SELECT {pk}, v.id, {number}, v.body FROM counted, (VALUES {}) v (id, body) \
                ON CONFLICT (pk, id) DO UPDATE SET version = excluded.version, body = excluded.body)",
            puts.join(", ")
        );
    }
    if !deletions.is_empty() {
        text += &format!(
            ", deleted AS (DELETE FROM sysvvm.document d USING counted WHERE d.pk = {pk} AND d.id IN ({}))",
            deletions.join(", ")
        );
    }
    text + " SELECT FROM counted"
}

fn condition(pk: &Hex<'_>, write: &DocumentWrite) -> Option<String> {
    let id = Hex(write.id().as_bytes());
    let stands = format!("EXISTS (SELECT FROM sysvvm.document WHERE pk = {pk} AND id = {id}");
    match write.only_if() {
        OnlyIf::Always => None,
        OnlyIf::Absent => Some(format!(" AND NOT {stands})")),
        OnlyIf::Version(expected) => {
            Some(format!(" AND {stands} AND version = {})", expected.get().cast_signed()))
        }
    }
}

pub(super) fn document(at: &Partition, id: &DocumentId) -> String {
    format!(
        "SELECT encode(id, 'hex'), version, encode(body, 'hex') FROM sysvvm.document \
         WHERE pk = {} AND id = {}",
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
    format!(
        "SELECT encode(id, 'hex'), version, encode(body, 'hex'), found FROM (\
            SELECT id, version, body, count(*) OVER () AS found, row_number() OVER (ORDER BY id) AS at, \
                sum(octet_length(body)) OVER (ORDER BY id) - octet_length(body) AS before FROM (\
                    SELECT id, version, body FROM sysvvm.document WHERE pk = {}{start}{end} \
                    ORDER BY id LIMIT {}) each) measured \
         WHERE before < {PAGE_BYTES} AND at <= {} ORDER BY id",
        Hex(at.as_bytes()),
        scan.limit + 1,
        scan.limit,
    )
}

/// The document that [`document`] and [`page`] show.
pub(super) fn shown(row: &Row) -> Result<Document, Damaged> {
    let id = DocumentId::new(row.bytes(0)?).map_err(Damaged::of)?;
    Ok(Document { id, version: version(row.number(1)?), body: row.bytes(2)?.into() })
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
        let slot = |columns: [Option<&str>; 6]| super::slot(Some(&Row::of(columns)));
        let (incarnation, none) = (Some("07070707070707070707070707070707"), None);
        let held = [Some("5"), incarnation, Some("-1"), Some("1000000000"), Some("61"), Some("0")];
        let Ok(Slot::Held { entry, proven_age: None }) = slot(held) else { panic!("not held") };
        assert_eq!((entry.epoch.get(), entry.version.write), (5, u64::MAX));
        let vacant = Slot::Vacant(Vacant { last_epoch: Some(entry.epoch) });
        assert_eq!(slot([Some("5"), none, none, none, none, Some("0")]), Ok(vacant));
        for (column, value) in [
            (0, Some("0")),
            (0, none),
            (1, Some("07")),
            (2, none),
            (3, none),
            (3, Some("-1")),
            (4, Some("ff")),
        ] {
            let mut damaged = held;
            damaged[column] = value;
            assert!(slot(damaged).is_err(), "column {column}: {value:?}");
        }
    }
}
