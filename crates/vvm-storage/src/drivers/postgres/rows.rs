//! How slots and settings are laid out, the statements of each verb, and how their answers are decoded.
//!
//! A verb is one prepared statement, or several statements in one message of PostgreSQL's simple protocol,
//! which the server carries out as one transaction. There, values stand in the text: bytes in hexadecimal
//! digits, everything else as numbers, so that nothing has to be quoted.

mod answer;
mod documents;
mod history;
mod statement;

pub(super) use answer::{Answer, Row};
pub(super) use documents::{document, documents_page, write_documents};
pub(super) use history::{Compared, History, PROCESS, Shown, adoption, history};
pub(super) use statement::Statement;

use super::errors::Damaged;
use crate::{Partition, key::KEY_PREFIX_VVM_LEADER};
use ielections::{
    DocumentVersion, Entry, Epoch, FenceState, Holder, Incarnation, Slot, Ttl, Vacant, Version,
};
use statement::Value::{self, Bytes, Keys, Number};
use std::{fmt, fmt::Write as _, time::Duration};

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
        timeline = history::TIMELINE,
        witness = history::RANDOM,
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
    Statement::new(text, [Bytes(Some(at.as_bytes()))])
}

/// Shows slots, with their keys before them.
pub(super) fn peek(at: &[Partition]) -> Statement<'_> {
    let text = format!("SELECT encode(pk, 'hex'), {SLOT} FROM sysvvm.leader WHERE pk = ANY ($1)");
    Statement::new(text, [Keys(at.iter().map(Partition::as_bytes).collect())])
}

/// Shows how many milliseconds ago records were written by the server's clock, with their keys before that.
/// Null in a schema that was created before it had these times.
pub(super) fn ages(at: &[Partition]) -> Statement<'_> {
    let text = "SELECT encode(pk, 'hex'), GREATEST(0, extract(epoch FROM \
            clock_timestamp() - (to_jsonb(l) ->> 'written_at')::timestamptz) * 1000)::bigint::text \
         FROM sysvvm.leader l WHERE pk = ANY ($1) AND incarnation IS NOT NULL \
            AND to_jsonb(l) ->> 'written_at' IS NOT NULL";
    Statement::new(text.into(), [Keys(at.iter().map(Partition::as_bytes).collect())])
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
    let witness = Bytes(Some(history.witness()));
    let [epoch, incarnation, write, ttl_nanos, holder] = record(entry);
    let pk = Bytes(Some(at.as_bytes()));
    let (old_epoch, old_incarnation, old_write) = match from {
        Slot::Vacant(Vacant { last_epoch: None }) => {
            // After a fail-over, a slot without a row may have been claimed on the server that is lost.
            let fresh = if is_led(at) { "NOT h.adopted" } else { "true" };
            let text = format!(
                "INSERT INTO sysvvm.leader (pk, epoch, incarnation, write, ttl_nanos, holder) \
                 SELECT $1::bytea, $2::bigint, $3::bytea, $4::bigint, $5::bigint, $6::bytea WHERE {} \
                 ON CONFLICT DO NOTHING",
                history::holds(compared, "$7", fresh)
            );
            return Statement::new(text, [pk, epoch, incarnation, write, ttl_nanos, holder, witness]);
        }
        Slot::Vacant(Vacant { last_epoch: Some(epoch) }) => (number(*epoch), Bytes(None), Number(None)),
        Slot::Held { entry, .. } => {
            let [epoch, incarnation, write, ..] = record(entry);
            (epoch, incarnation, write)
        }
    };
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
        [at.as_bytes(), incarnation.as_bytes(), history.witness()].map(|bytes| Bytes(Some(bytes)));
    Statement::new(text, [pk, number(epoch), incarnation, witness])
}

pub(super) fn settle(at: &Partition, value: &[u8]) -> String {
    let (pk, value) = (Hex(at.as_bytes()), Hex(value));
    format!(
        "INSERT INTO sysvvm.setting (pk, value) VALUES ({pk}, {value}) ON CONFLICT DO NOTHING; \
         SELECT encode(value, 'hex') FROM sysvvm.setting WHERE pk = {pk} FOR NO KEY UPDATE"
    )
}

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
    let epoch = Epoch::new(row.number(first)?.cast_unsigned()).map_err(Damaged::of)?;
    if row.is_null(first + 1) {
        return Ok(Slot::Vacant(Vacant { last_epoch: Some(epoch) }));
    }
    let incarnation = row.bytes(first + 1)?.try_into();
    let incarnation = incarnation.map_err(|_| Damaged::of("an incarnation that has not 16 bytes"))?;
    let holder = String::from_utf8(row.bytes(first + 4)?).map_err(Damaged::of)?;
    let entry = Entry {
        holder: Holder::new(holder).map_err(Damaged::of)?,
        version: Version {
            incarnation: Incarnation::from_bytes(incarnation),
            write: row.number(first + 2)?.cast_unsigned(),
        },
        ttl: ttl(row.number(first + 3)?)?,
        epoch,
    };
    Ok(Slot::Held { entry, proven_age: None })
}

fn ttl(nanos: i64) -> Result<Ttl, Damaged> {
    Ttl::new(Duration::from_nanos(nanos.cast_unsigned())).map_err(Damaged::of)
}

fn nanos(ttl: Ttl) -> i64 {
    // At most 24 h, far within 63 bits.
    ttl.get().as_nanos() as i64
}

fn version(stored: i64) -> DocumentVersion {
    DocumentVersion::from_stored(stored.cast_unsigned())
}

/// The columns of a leader record: epoch, incarnation, write, TTL and holder.
fn record(entry: &Entry) -> [Value<'_>; 5] {
    [
        number(entry.epoch),
        Bytes(Some(entry.version.incarnation.as_bytes())),
        // All 64 bits, as they are: a version is only ever compared for being equal.
        Number(Some(entry.version.write.cast_signed())),
        Number(Some(nanos(entry.ttl))),
        Bytes(Some(entry.holder.as_str().as_bytes())),
    ]
}

fn number(epoch: Epoch) -> Value<'static> {
    Number(Some(epoch.get().cast_signed()))
}

/// Bytes in a statement. By `decode` and not as a literal of `bytea`, whose backslash depends on the settings
/// of the server.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        out.write_str("decode('")?;
        for byte in self.0 {
            out.write_char(DIGITS[usize::from(byte >> 4)].into())?;
            out.write_char(DIGITS[usize::from(byte & 0xf)].into())?;
        }
        out.write_str("', 'hex')")
    }
}

/// The bytes of hexadecimal digits.
fn from_hex(text: &str) -> Result<Vec<u8>, Damaged> {
    let digit = |digit: u8| char::from(digit).to_digit(16).map(|digit| digit as u8);
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(pair).collect();
    bytes.ok_or_else(|| Damaged::of("bytes that are no hexadecimal digits"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_survive_their_hexadecimal_form(bytes: Vec<u8>) {
            let text = Hex(&bytes).to_string();
            let digits = text.strip_prefix("decode('").and_then(|text| text.strip_suffix("', 'hex')"));
            prop_assert_eq!(from_hex(digits.unwrap()).unwrap(), bytes);
        }
    }

    #[test]
    fn damaged_digits_are_refused() {
        for text in ["0", "0g", "+1", "é"] {
            assert!(from_hex(text).is_err(), "{text}");
        }
    }

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
