//! How slots and settings are laid out, the statement of each step, and how their answers are decoded.
//!
//! A step is one prepared statement, or several statements in one message of PostgreSQL's simple protocol,
//! which the server carries out as one transaction. There, values stand in the text: bytes in hexadecimal
//! digits, everything else as numbers, so that nothing has to be quoted.
//!
//! The conditions are those of [`decide`](crate::decide), stated in SQL: an `UPDATE` compares them with the row
//! that it locks, and changes it or nothing.

use super::{
    errors::Damaged,
    history::{self, Compared, History},
};
use crate::{
    key::{KEY_PREFIX_VVM_LEADER, Partition},
    step::{Columns, RecordColumns},
};
use ielections::{DocumentVersion, Entry, Epoch, FenceState, Incarnation, Slot, Ttl, Vacant};
use std::{fmt, fmt::Write as _, time::Duration};
use tokio_postgres::{SimpleQueryMessage, types::ToSql};

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

pub(super) fn ttl(nanos: i64) -> Result<Ttl, Damaged> {
    Ttl::new(Duration::from_nanos(nanos.cast_unsigned())).map_err(Damaged::of)
}

pub(super) fn nanos(ttl: Ttl) -> i64 {
    // At most 24 h, far within 63 bits.
    ttl.get().as_nanos() as i64
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

/// Bytes in a statement. By `decode` and not as a literal of `bytea`, whose backslash depends on the settings
/// of the server.
pub(super) struct Hex<'a>(pub(super) &'a [u8]);

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

/// A statement with the places `$1`, `$2` and so on for its values. Displayed, it has them in their places.
#[derive(Debug)]
pub(super) struct Statement<'a> {
    text: String,
    values: Vec<Value<'a>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Value<'a> {
    Bytes(Option<&'a [u8]>),
    Number(Option<i64>),
    Keys(Vec<&'a [u8]>),
}

impl<'a> Statement<'a> {
    pub(super) fn new(text: String, values: impl IntoIterator<Item = Value<'a>>) -> Self {
        Self { text, values: values.into_iter().collect() }
    }

    /// Without the values: the same for all statements of a kind.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn values(&self) -> impl ExactSizeIterator<Item = &(dyn ToSql + Sync)> {
        self.values.iter().map(|value| match value {
            Value::Bytes(bytes) => bytes as &(dyn ToSql + Sync),
            Value::Number(number) => number,
            Value::Keys(keys) => keys,
        })
    }
}

impl fmt::Display for Statement<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = self.text.split('$');
        out.write_str(parts.next().unwrap_or_default())?;
        for part in parts {
            let digits = part.len() - part.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
            let (number, rest) = part.split_at(digits);
            let value = number.parse::<usize>().ok().and_then(|number| self.values.get(number - 1));
            write!(out, "{}{rest}", value.ok_or(fmt::Error)?)?;
        }
        Ok(())
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(Some(bytes)) => Hex(bytes).fmt(out),
            Self::Number(Some(number)) => write!(out, "'{number}'::bigint"),
            Self::Bytes(None) | Self::Number(None) => out.write_str("NULL"),
            Self::Keys(keys) => {
                let keys: Vec<String> = keys.iter().map(|key| Hex(key).to_string()).collect();
                write!(out, "ARRAY[{}]::bytea[]", keys.join(", "))
            }
        }
    }
}

/// What a request was answered: for each of its statements rows, and how many rows it showed or changed.
#[derive(Debug)]
pub(super) struct Answer(Vec<Answered>);

#[derive(Default, Debug)]
struct Answered {
    rows: Vec<Row>,
    affected: u64,
}

impl Answer {
    pub(super) fn of(messages: Vec<SimpleQueryMessage>) -> Self {
        let mut statements = vec![Answered::default()];
        for message in messages {
            let Some(last) = statements.last_mut() else { break };
            match message {
                SimpleQueryMessage::Row(row) => {
                    let columns = (0..row.len()).map(|column| row.get(column).map(str::to_owned));
                    last.rows.push(Row(columns.collect()));
                }
                SimpleQueryMessage::CommandComplete(affected) => {
                    last.affected = affected;
                    statements.push(Answered::default());
                }
                _ => {}
            }
        }
        Self(statements)
    }

    /// Of one prepared statement, all of whose columns are text.
    pub(super) fn of_rows(
        rows: Vec<tokio_postgres::Row>,
        affected: u64,
    ) -> Result<Self, tokio_postgres::Error> {
        let row = |row: &tokio_postgres::Row| {
            let columns = (0..row.len()).map(|column| row.try_get::<_, Option<String>>(column));
            Ok::<_, tokio_postgres::Error>(Row(columns.collect::<Result<_, _>>()?))
        };
        let rows = rows.iter().map(row).collect::<Result<_, _>>()?;
        Ok(Self(vec![Answered { rows, affected }]))
    }

    /// The first row of a statement, counted from 0.
    pub(super) fn row(&self, statement: usize) -> Option<&Row> {
        self.rows(statement).first()
    }

    /// The rows of a statement alone.
    pub(super) fn into_rows(mut self, statement: usize) -> Vec<Row> {
        self.0.get_mut(statement).map(|statement| std::mem::take(&mut statement.rows)).unwrap_or_default()
    }

    pub(super) fn rows(&self, statement: usize) -> &[Row] {
        self.0.get(statement).map_or(&[], |statement| &statement.rows)
    }

    /// How many rows a statement showed or changed.
    pub(super) fn affected(&self, statement: usize) -> u64 {
        self.0.get(statement).map_or(0, |statement| statement.affected)
    }
}

/// The columns of a row, as text.
#[derive(Debug)]
pub(super) struct Row(Vec<Option<String>>);

impl Row {
    #[cfg(test)]
    pub(super) fn of<const N: usize>(columns: [Option<&str>; N]) -> Self {
        Self(columns.map(|column| column.map(str::to_owned)).into())
    }

    pub(super) fn text(&self, column: usize) -> Result<&str, Damaged> {
        let missing = || Damaged::of(format!("column {} is null where others are not", column + 1));
        self.0.get(column).and_then(Option::as_deref).ok_or_else(missing)
    }

    pub(super) fn is_null(&self, column: usize) -> bool {
        self.0.get(column).is_none_or(Option::is_none)
    }

    pub(super) fn number(&self, column: usize) -> Result<i64, Damaged> {
        self.text(column)?.parse().map_err(Damaged::of)
    }

    pub(super) fn is_true(&self, column: usize) -> Result<bool, Damaged> {
        Ok(self.text(column)? == "t")
    }

    pub(super) fn bytes(&self, column: usize) -> Result<Vec<u8>, Damaged> {
        from_hex(self.text(column)?)
    }
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

    #[test]
    fn values_stand_in_their_places() {
        let numbers = (1..=11).map(|number| Value::Number(Some(-number)));
        let statement = Statement::new("SELECT $11, $1".into(), numbers);
        assert_eq!(statement.to_string(), "SELECT '-11'::bigint, '-1'::bigint");
        let values = [Value::Bytes(None), Value::Bytes(Some(b"$2")), Value::Keys(vec![b"a", b"b"])];
        assert_eq!(
            Statement::new("$3$1 = $2".into(), values).to_string(),
            "ARRAY[decode('61', 'hex'), decode('62', 'hex')]::bytea[]NULL = decode('2432', 'hex')"
        );
    }
}
