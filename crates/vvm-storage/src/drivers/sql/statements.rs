//! The statements of a kind of server ([`Statements`]), and those that are alike on all.

use super::{
    errors::DriverError,
    history::{ComparedHistory, Lineage, nanos},
};
use crate::{
    key::{KEY_PREFIX_VVM_LEADER, Partition},
    sysvvm::MOST_LISTED,
};
use ielections::{DocumentId, DocumentWrite, Entry, Epoch, Fence, Incarnation, OnlyIf, Scan, Slot, Ttl};
use std::{fmt::Display, ops::Bound, time::Duration};

/// The statements of a kind of server. A text has one or several, with `; ` between them.
pub(crate) trait Statements: Sized + 'static {
    type Statement<'a>: Display + Send + Sync;

    const PREFIX: &str;

    /// How many statements [`transaction`](Self::transaction) has before and behind.
    const FRAME: (usize, usize);

    /// The number of the statement in [`locked`](Self::locked) that shows the slot.
    const LOCKED_SLOT_STATEMENT: usize;

    /// The number of the statement in [`batch`](Self::batch), counted from the first in [`locked`](Self::locked)
    /// before it, whose rows tell whether the batch was written.
    const BATCH_STATEMENT: usize;

    const INSERTS_AGAIN: bool;

    /// The message that carries out `statements`, then [`history`](Self::history), in one transaction: the server has
    /// all of it before it begins, and never waits for us. A wait for a lock ends after `lock_timeout` or earlier.
    fn transaction(statements: &str, lock_timeout: Duration) -> String;

    /// Shows the history of the server that answers, as [`Lineage::shown`] decodes it.
    fn history() -> String;

    fn bytes(bytes: &[u8]) -> String;

    /// A column with bytes, as [`Row::bytes`](super::rows::Row::bytes) decodes it.
    fn shown(column: &str) -> String;

    /// Creates what is missing. `max_ttl` is the first bound of all TTLs.
    fn creation(max_ttl: Ttl) -> Result<String, DriverError>;

    /// Locks a slot and shows it, as [`slot`](super::rows::slot) decodes it. The transaction ends once that is kept.
    fn locked(at: &Partition) -> Self::Statement<'_>;

    fn peek(at: &[Partition]) -> Self::Statement<'_>;

    /// Shows how many milliseconds ago leaders wrote records, by the server's clock, with their keys before that.
    fn ages(at: &[Partition]) -> String;

    /// Replaces exactly the state `from` by `entry`. The number of rows tells whether it did.
    fn claim<'a>(
        at: &'a Partition,
        from: &'a Slot,
        entry: &'a Entry,
        compared: ComparedHistory<'a>,
    ) -> Self::Statement<'a>;

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

    /// Makes the history of the server ours, if no candidate has done so, and shows the slot of `at` at its end. Each
    /// slot becomes one that is held: a leader whose claim was forgotten may be at work in any of them, held or vacant.
    /// Standbys observe that record for the largest TTL that a claim may have (I1), and its version is new to all of
    /// them, so that no observation goes on across the change. Its epoch is larger than each that was given out and
    /// forgotten (I2). `at` gets such a record if it has no row. A server may have forgotten that the largest TTL was
    /// raised. The larger of its own and `known` counts. If it was adopted without this knowledge, it is adopted once
    /// more by a handle whose history, `ours`, is another one.
    fn adoption(
        at: Option<&Partition>,
        ours: Option<&Lineage>,
        known: Option<Ttl>,
    ) -> Result<String, DriverError>;
}

/// Whether a forgotten leader may work in this slot after a fail-over: none does under requests and pauses.
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
