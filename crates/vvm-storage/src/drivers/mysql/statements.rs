//! How slots, settings and documents are laid out, and the statement of each step. Values stand in the text: bytes in
//! hexadecimal digits, everything else as numbers, so that nothing has to be quoted. The conditions are those of
//! [`decide`](crate::decide): an `UPDATE` compares them with the row that it locks.

use super::{
    config::MySql,
    connection::{FIT, HERE},
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
use std::time::Duration;

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

/// The leaders, for people. `init-storage` leaves it out for a login that may create no view.
const VIEW: &str = "CREATE OR REPLACE SQL SECURITY INVOKER VIEW sysvvm_leaders AS \
    SELECT CONVERT(SUBSTR(pk, 2, LENGTH(pk) - 5) USING utf8mb4) AS name, \
        CAST(CONV(HEX(RIGHT(pk, 4)), 16, 10) AS UNSIGNED) AS slot, CONVERT(holder USING utf8mb4) AS holder, epoch, \
        ttl_nanos / 1000000000 AS ttl_seconds, written_at AS written_at_utc \
    FROM sysvvm_leader WHERE ORD(pk) = 1 AND incarnation IS NOT NULL";

const SERVER_MILLIS: &str = "CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS UNSIGNED)";

const SLOT: &str = "epoch, incarnation, write_number, ttl_nanos, holder, last_batch";

fn keys(at: &[Partition]) -> String {
    at.iter().map(|at| hex(at.as_bytes())).collect::<Vec<_>>().join(", ")
}

fn record(entry: &Entry) -> [(&'static str, String); 5] {
    let RecordColumns { incarnation, write, ttl_nanos, holder } = RecordColumns::new(entry);
    [
        ("epoch", entry.epoch.to_string()),
        ("incarnation", hex(incarnation)),
        ("write_number", write.to_string()),
        ("ttl_nanos", ttl_nanos.to_string()),
        ("holder", hex(holder)),
    ]
}

fn version_condition(epoch: Epoch, incarnation: &Incarnation) -> String {
    format!("epoch = {epoch} AND incarnation = {}", hex(incarnation.as_bytes()))
}

fn replacement(at: &Partition, stands: &str, entry: &Entry, compared: ComparedHistory<'_>) -> String {
    // An assignment sees those before it, and a condition sees none.
    let assignments: String =
        record(entry).iter().map(|(column, value)| format!("{column} = {value}, ")).collect();
    format!(
        "UPDATE sysvvm_leader SET {assignments}written_at = SYSDATE(6) WHERE pk = {} AND {stands} AND {}",
        hex(at.as_bytes()),
        holds(compared.history, "TRUE")
    )
}

fn holds(history: &Lineage, condition: &str) -> String {
    format!(
        "EXISTS (SELECT 1 FROM sysvvm_history h WHERE h.witness = {} AND h.server = {HERE} AND {FIT} \
         AND {condition})",
        hex(&history.witness)
    )
}

fn hex(bytes: &[u8]) -> String {
    format!("x'{}'", to_hex(bytes))
}

fn random() -> Result<[u8; 16], DriverError> {
    let mut bytes = [0; 16];
    let filled = rustls::crypto::aws_lc_rs::default_provider().secure_random.fill(&mut bytes);
    filled.map_err(|_| DriverError::RolledBack("the system has no random numbers".into()))?;
    Ok(bytes)
}

impl Statements for MySql {
    type Statement<'a> = String;

    const PREFIX: &str = "sysvvm_";
    const FRAME: (usize, usize) = (1, 1);
    const LOCKED_SLOT_STATEMENT: usize = 1;
    const BATCH_STATEMENT: usize = 3;
    // Of two that insert a row, each would wait for the other.
    const INSERTS_AGAIN: bool = false;

    /// Waits for a lock end after a second: a setting of the session.
    fn transaction(statements: &str, _lock_timeout: Duration) -> String {
        format!("START TRANSACTION; {statements}; {}; COMMIT", Self::history())
    }

    fn history() -> String {
        format!(
            "SELECT witness, generation, max_ttl_nanos, server = {HERE}, {FIT}, {SERVER_MILLIS}, NULL FROM sysvvm_history"
        )
    }

    fn bytes(bytes: &[u8]) -> String {
        hex(bytes)
    }

    fn shown(column: &str) -> String {
        column.into()
    }

    fn creation(max_ttl: Ttl) -> Result<String, DriverError> {
        let tables: String = TABLES
            .iter()
            .map(|(name, columns)| {
                format!(
                    "CREATE TABLE IF NOT EXISTS {name} ({columns}) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, \
                     COMMENT = '{FORMAT}'; "
                )
            })
            .collect();
        Ok(format!(
            "{tables}INSERT IGNORE INTO sysvvm_history (only_row, server, witness, generation, max_ttl_nanos, adopted) \
             VALUES (1, {HERE}, {}, 1, {}, 0); {VIEW}",
            hex(&random()?),
            nanos(max_ttl)
        ))
    }

    /// Two statements. The count makes it a write: InnoDB shows a commit to others before it is on disk,
    /// and the end of this transaction waits until all is that was committed before.
    fn locked(at: &Partition) -> String {
        let pk = hex(at.as_bytes());
        format!(
            "UPDATE sysvvm_leader SET shown = shown + 1 WHERE pk = {pk}; SELECT {SLOT} FROM sysvvm_leader WHERE pk = {pk}"
        )
    }

    fn peek(at: &[Partition]) -> String {
        format!("SELECT {SLOT}, pk FROM sysvvm_leader WHERE pk IN ({})", keys(at))
    }

    fn ages(at: &[Partition]) -> String {
        format!(
            "SELECT pk, GREATEST(0, TIMESTAMPDIFF(MICROSECOND, written_at, SYSDATE(6)) DIV 1000) FROM sysvvm_leader \
             WHERE pk IN ({}) AND holder <> {} AND written_at IS NOT NULL",
            keys(at),
            hex(ADOPTED.as_bytes())
        )
    }

    fn claim(at: &Partition, from: &Slot, entry: &Entry, compared: ComparedHistory<'_>) -> String {
        match from {
            Slot::Vacant(Vacant { last_epoch: None }) => {
                let (columns, values): (Vec<_>, Vec<_>) = record(entry).into_iter().unzip();
                // After a fail-over, a slot without a row may have been claimed on the server that is lost.
                let fresh = if is_led(at) { "h.adopted = 0" } else { "TRUE" };
                format!(
                    "INSERT IGNORE INTO sysvvm_leader (pk, {}, written_at) SELECT {}, {}, SYSDATE(6) FROM DUAL WHERE {}",
                    columns.join(", "),
                    hex(at.as_bytes()),
                    values.join(", "),
                    holds(compared.history, fresh)
                )
            }
            Slot::Vacant(Vacant { last_epoch: Some(epoch) }) => {
                replacement(at, &format!("epoch = {epoch} AND incarnation IS NULL"), entry, compared)
            }
            Slot::Held { entry: held, .. } => Self::renew(at, held, entry, compared),
        }
    }

    fn renew(at: &Partition, held: &Entry, entry: &Entry, compared: ComparedHistory<'_>) -> String {
        let stands = format!(
            "{} AND write_number = {}",
            version_condition(held.epoch, &held.incarnation()),
            held.version.write
        );
        replacement(at, &stands, entry, compared)
    }

    fn release(
        at: &Partition,
        incarnation: &Incarnation,
        epoch: Epoch,
        compared: ComparedHistory<'_>,
    ) -> String {
        format!(
            "UPDATE sysvvm_leader SET incarnation = NULL, write_number = NULL, ttl_nanos = NULL, holder = NULL \
             WHERE pk = {} AND {} AND {}",
            hex(at.as_bytes()),
            version_condition(epoch, incarnation),
            holds(compared.history, "TRUE")
        )
    }

    fn settle(at: &Partition, value: &[u8]) -> String {
        format!(
            "INSERT IGNORE INTO sysvvm_setting (pk, value) SELECT {}, {} FROM DUAL WHERE {FIT}; {}",
            hex(at.as_bytes()),
            hex(value),
            setting::<Self>(at)
        )
    }

    /// Whether the conditions hold is decided once, before anything is written. `ROW_COUNT()` behind the update would
    /// not tell it: if the client has gone, the update's answer can't be sent, the count becomes -1, and the server
    /// goes on with the next statement. It would then write the number of the batch without its documents.
    fn batch(at: &Partition, fence: &Fence, batch: &[DocumentWrite], history: &Lineage) -> String {
        let pk = hex(at.as_bytes());
        let number = fence.after.next().get();
        let conditions: String = batch.iter().filter_map(|write| condition::<Self>(&pk, write)).collect();
        let mut text = format!(
            "SET @vvm_holds = (SELECT COUNT(*) FROM sysvvm_leader WHERE pk = {pk} AND {} AND last_batch = {}{conditions} \
             AND {}); UPDATE sysvvm_leader SET last_batch = {number} WHERE pk = {pk} AND @vvm_holds = 1",
            version_condition(fence.epoch, &fence.incarnation),
            fence.after.get(),
            holds(history, "TRUE"),
        );
        for write in batch {
            let id = hex(write.id().as_bytes());
            text += &match write {
                DocumentWrite::Put { body, .. } => format!(
                    "; REPLACE INTO sysvvm_document (pk, id, version, body) SELECT {pk}, {id}, {number}, {} FROM DUAL \
                     WHERE @vvm_holds = 1",
                    hex(body)
                ),
                DocumentWrite::Delete { .. } => {
                    format!("; DELETE FROM sysvvm_document WHERE pk = {pk} AND id = {id} AND @vvm_holds = 1")
                }
            };
        }
        text
    }

    /// The history is changed if its server is another one, or if a handle knows a larger bound of TTLs, a later
    /// history, or another one of as many fail-overs: the server has forgotten that, and uses an older one.
    fn adoption(
        at: Option<&Partition>,
        ours: Option<&Lineage>,
        known: Option<Ttl>,
    ) -> Result<String, DriverError> {
        let (witness, generation) = ours.map_or((&[][..], 0), |ours| (&ours.witness, ours.generation));
        let (random, witness, known, holder) =
            (hex(&random()?), hex(witness), known.map_or(0, nanos), hex(ADOPTED.as_bytes()));
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
            hex(&[led]),
            hex(&[led + 1]),
        );
        let Some(at) = at else { return Ok(adopt) };
        let (pk, insertion) = (hex(at.as_bytes()), if is_led(at) { "h.adopted = 1" } else { "FALSE" });
        Ok(format!(
            "{adopt}; INSERT IGNORE INTO sysvvm_leader (pk, epoch, incarnation, write_number, ttl_nanos, holder) \
                SELECT {pk}, {SERVER_MILLIS} + h.generation * {EPOCHS_OF_A_FAIL_OVER}, {random}, 0, h.max_ttl_nanos, \
                {holder} FROM sysvvm_history h WHERE {insertion} AND {FIT}; {}",
            Self::locked(at),
        ))
    }
}
