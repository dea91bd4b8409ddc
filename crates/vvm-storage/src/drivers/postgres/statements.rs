//! The statement of each step. Alone, a [`Statement`] is prepared, and its values go beside it; in a message of
//! several, they stand in the text: bytes in hexadecimal digits, everything else as numbers, so that nothing has to be
//! quoted. The count of a partition's batches is a column of its leader record, whose row survives every release. The
//! conditions are those of [`decide`](crate::decide): an `UPDATE` compares them with the row that it locks.

use super::{
    config::Postgres,
    history::{
        ISOLATION, NAMES_THIS_SERVER, RANDOM, SERVER_MILLIS, TIMELINE, WRITTEN_AT_CLAUSE, history, holds,
        settings,
    },
};
use crate::{
    drivers::{
        fail_over::EPOCHS_OF_A_FAIL_OVER,
        sql::{
            errors::DriverError,
            history::{ADOPTED, ComparedHistory, Lineage, nanos},
            opening::FORMAT,
            rows::to_hex,
            statements::{Statements, condition, is_led, setting},
        },
    },
    key::{KEY_PREFIX_VVM_LEADER, Partition},
    step::RecordColumns,
};
use ielections::{DocumentWrite, Entry, Epoch, Fence, Incarnation, Slot, Ttl, Vacant};
use std::{fmt, time::Duration};
use tokio_postgres::types::ToSql;

const SLOT: &str = "epoch::text, encode(incarnation, 'hex'), write::text, ttl_nanos::text, \
    encode(holder, 'hex'), last_batch::text";

fn replacement<'a>(
    at: &'a Partition,
    [old_epoch, old_incarnation, old_write]: [Value<'a>; 3],
    entry: &'a Entry,
    compared: ComparedHistory<'a>,
) -> Statement<'a> {
    let witness = Value::Bytes(Some(&compared.history.witness));
    let [epoch, incarnation, write, ttl_nanos, holder] = record(entry);
    let pk = Value::Bytes(Some(at.as_bytes()));
    let text = format!(
        "UPDATE sysvvm.leader SET epoch = $2, incarnation = $3, write = $4, ttl_nanos = $5, holder = $6{WRITTEN_AT_CLAUSE} \
         WHERE pk = $1 AND epoch = $7 AND incarnation IS NOT DISTINCT FROM $8 \
            AND write IS NOT DISTINCT FROM $9 AND {}",
        holds(compared.alone, "$10", "true")
    );
    let old = [old_epoch, old_incarnation, old_write, witness];
    Statement::new(text, [pk, epoch, incarnation, write, ttl_nanos, holder].into_iter().chain(old))
}

fn record(entry: &Entry) -> [Value<'_>; 5] {
    let RecordColumns { incarnation, write, ttl_nanos, holder } = RecordColumns::new(entry);
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

impl Statements for Postgres {
    type Statement<'a> = Statement<'a>;

    const PREFIX: &str = "sysvvm.";
    const FRAME: (usize, usize) = (4, 0);
    const LOCKED_SLOT_STATEMENT: usize = 0;
    const BATCH_STATEMENT: usize = 1;
    const INSERTS_AGAIN: bool = true;

    fn transaction(statements: &str, lock_timeout: Duration) -> String {
        format!("SET {ISOLATION}; {}; {statements}; {}", settings("LOCAL", lock_timeout), history())
    }

    fn history() -> String {
        history()
    }

    fn bytes(bytes: &[u8]) -> String {
        hex(bytes)
    }

    fn shown(column: &str) -> String {
        format!("encode({column}, 'hex')")
    }

    /// Creators take turns (a number of our own): two that create a schema at once would fail each other.
    fn creation(max_ttl: Ttl) -> Result<String, DriverError> {
        Ok(format!(
            "SELECT pg_advisory_xact_lock(4851427634270); \
             CREATE SCHEMA sysvvm; COMMENT ON SCHEMA sysvvm IS '{FORMAT}'; \
             CREATE TABLE sysvvm.leader (pk bytea PRIMARY KEY, epoch bigint NOT NULL, incarnation bytea, \
                write bigint, ttl_nanos bigint, holder bytea, last_batch bigint NOT NULL DEFAULT 0, \
                written_at timestamptz DEFAULT clock_timestamp()) WITH (fillfactor = 50); \
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
        ))
    }

    /// The lock makes the transaction wait, at its end, until what is shown is
    /// replicated: without it a reader sees what no synchronous standby has.
    fn locked(at: &Partition) -> Statement<'_> {
        let text = format!("SELECT {SLOT} FROM sysvvm.leader WHERE pk = $1 FOR NO KEY UPDATE");
        Statement::new(text, [Value::Bytes(Some(at.as_bytes()))])
    }

    fn peek(at: &[Partition]) -> Statement<'_> {
        let text = format!("SELECT {SLOT}, encode(pk, 'hex') FROM sysvvm.leader WHERE pk = ANY ($1)");
        Statement::new(text, [Value::Keys(at.iter().map(Partition::as_bytes).collect())])
    }

    /// None in a schema that was created before it had these times.
    fn ages(at: &[Partition]) -> String {
        let text = "SELECT encode(pk, 'hex'), GREATEST(0, extract(epoch FROM \
                clock_timestamp() - (to_jsonb(l) ->> 'written_at')::timestamptz) * 1000)::bigint::text \
             FROM sysvvm.leader l WHERE pk = ANY ($1) AND holder <> $2 \
                AND to_jsonb(l) ->> 'written_at' IS NOT NULL";
        let keys = at.iter().map(Partition::as_bytes).collect();
        Statement::new(text.into(), [Value::Keys(keys), Value::Bytes(Some(ADOPTED.as_bytes()))]).to_string()
    }

    fn claim<'a>(
        at: &'a Partition,
        from: &'a Slot,
        entry: &'a Entry,
        compared: ComparedHistory<'a>,
    ) -> Statement<'a> {
        match from {
            Slot::Vacant(Vacant { last_epoch: None }) => {
                let witness = Value::Bytes(Some(&compared.history.witness));
                let [epoch, incarnation, write, ttl_nanos, holder] = record(entry);
                let pk = Value::Bytes(Some(at.as_bytes()));
                // After a fail-over, a slot without a row may have been claimed on the server that is lost.
                let fresh = if is_led(at) { "NOT h.adopted" } else { "true" };
                let text = format!(
                    "INSERT INTO sysvvm.leader (pk, epoch, incarnation, write, ttl_nanos, holder) \
                     SELECT $1::bytea, $2::bigint, $3::bytea, $4::bigint, $5::bigint, $6::bytea WHERE {} \
                     ON CONFLICT DO NOTHING",
                    holds(compared.alone, "$7", fresh)
                );
                Statement::new(text, [pk, epoch, incarnation, write, ttl_nanos, holder, witness])
            }
            Slot::Vacant(Vacant { last_epoch: Some(epoch) }) => {
                let vacant = [number(*epoch), Value::Bytes(None), Value::Number(None)];
                replacement(at, vacant, entry, compared)
            }
            Slot::Held { entry: held, .. } => Self::renew(at, held, entry, compared),
        }
    }

    fn renew<'a>(
        at: &'a Partition,
        held: &'a Entry,
        entry: &'a Entry,
        compared: ComparedHistory<'a>,
    ) -> Statement<'a> {
        let [epoch, incarnation, write, ..] = record(held);
        replacement(at, [epoch, incarnation, write], entry, compared)
    }

    fn release<'a>(
        at: &'a Partition,
        incarnation: &'a Incarnation,
        epoch: Epoch,
        compared: ComparedHistory<'a>,
    ) -> Statement<'a> {
        let text = format!(
            "UPDATE sysvvm.leader SET incarnation = NULL, write = NULL, ttl_nanos = NULL, holder = NULL \
             WHERE pk = $1 AND epoch = $2 AND incarnation = $3 AND {}",
            holds(compared.alone, "$4", "true")
        );
        let [pk, incarnation, witness] = [at.as_bytes(), incarnation.as_bytes(), &compared.history.witness]
            .map(|bytes| Value::Bytes(Some(bytes)));
        Statement::new(text, [pk, number(epoch), incarnation, witness])
    }

    fn settle(at: &Partition, value: &[u8]) -> String {
        let (pk, value) = (hex(at.as_bytes()), hex(value));
        format!(
            "INSERT INTO sysvvm.setting (pk, value) VALUES ({pk}, {value}) ON CONFLICT DO NOTHING; \
             {} FOR NO KEY UPDATE",
            setting::<Self>(at)
        )
    }

    /// Writes a batch, and returns one row if it did. The leader record has to be locked before, in the same
    /// transaction: every batch locks it, so this statement sees all that came before.
    fn batch(at: &Partition, fence: &Fence, batch: &[DocumentWrite], history: &Lineage) -> String {
        let pk = hex(at.as_bytes());
        let number = fence.after.next().get().cast_signed();
        let conditions: String = batch.iter().filter_map(|write| condition::<Self>(&pk, write)).collect();
        let (mut puts, mut deletions) = (Vec::new(), Vec::new());
        for write in batch {
            match write {
                DocumentWrite::Put { id, body, .. } => {
                    puts.push(format!("({}, {})", hex(id.as_bytes()), hex(body)));
                }
                DocumentWrite::Delete { id, .. } => deletions.push(hex(id.as_bytes())),
            }
        }
        let mut text = format!(
            "WITH counted AS (UPDATE sysvvm.leader SET last_batch = {number} \
                WHERE pk = {pk} AND epoch = {} AND incarnation = {} AND last_batch = {}{conditions} AND {} \
                RETURNING true)",
            fence.epoch,
            hex(fence.incarnation.as_bytes()),
            fence.after.get().cast_signed(),
            holds(false, &hex(&history.witness), "true"),
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

    fn adoption(
        at: Option<&Partition>,
        ours: Option<&Lineage>,
        known: Option<Ttl>,
    ) -> Result<String, DriverError> {
        let led = KEY_PREFIX_VVM_LEADER;
        let (known, ours) = (known.map_or(0, nanos), hex(ours.map_or(&[], |ours| &ours.witness)));
        let changed = format!(
            "EXISTS (SELECT FROM sysvvm.history h, pg_control_system() c \
             WHERE NOT ({NAMES_THIS_SERVER}{TIMELINE}) \
                OR (h.max_ttl_nanos < {known} AND h.witness <> {ours}))"
        );
        let epoch = format!("{SERVER_MILLIS} + {TIMELINE} * {EPOCHS_OF_A_FAIL_OVER}");
        let holder = hex(ADOPTED.as_bytes());
        // The first statement lets one candidate adopt at a time.
        let adopt = format!(
            "SELECT FROM sysvvm.history FOR UPDATE; \
             UPDATE sysvvm.leader SET epoch = GREATEST(epoch + 1, {epoch}), incarnation = {RANDOM}, write = 0, \
                ttl_nanos = (SELECT GREATEST(max_ttl_nanos, {known}) FROM sysvvm.history), holder = {holder}{WRITTEN_AT_CLAUSE} \
                WHERE substr(pk, 1, 1) = {led} AND {changed}; \
             UPDATE sysvvm.history SET system = c.system_identifier, timeline = {TIMELINE}, witness = {RANDOM}, \
                max_ttl_nanos = GREATEST(max_ttl_nanos, {known}), adopted = true \
                FROM pg_control_system() c WHERE {changed}",
            led = hex(&[led]),
        );
        let Some(at) = at else { return Ok(adopt) };
        let (pk, insertion) = (hex(at.as_bytes()), if is_led(at) { "h.adopted" } else { "false" });
        Ok(format!(
            "{adopt}; INSERT INTO sysvvm.leader (pk, epoch, incarnation, write, ttl_nanos, holder) \
                SELECT {pk}, {epoch}, {RANDOM}, 0, h.max_ttl_nanos, {holder} \
                FROM sysvvm.history h WHERE {insertion} ON CONFLICT DO NOTHING; {}",
            Self::locked(at),
        ))
    }
}

/// A statement with the places `$1`, `$2` and so on for its values. Displayed, it has them in their places.
#[derive(Debug)]
pub(crate) struct Statement<'a> {
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

/// Bytes in a statement. By `decode` and not as a literal of `bytea`, whose backslash depends on the settings of the server.
pub(super) fn hex(bytes: &[u8]) -> String {
    format!("decode('{}', 'hex')", to_hex(bytes))
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(Some(bytes)) => out.write_str(&hex(bytes)),
            Self::Number(Some(number)) => write!(out, "'{number}'::bigint"),
            Self::Bytes(None) | Self::Number(None) => out.write_str("NULL"),
            Self::Keys(keys) => {
                let keys: Vec<String> = keys.iter().map(|key| hex(key)).collect();
                write!(out, "ARRAY[{}]::bytea[]", keys.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
