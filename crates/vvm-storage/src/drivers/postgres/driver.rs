//! The verbs: each one message, sent once. Only the first message after a fail-over is followed by another.

use super::{
    address::Address,
    connections::Connections,
    errors::{Answer, Damaged, DriverError, Row, Statement},
    history::{Compared, History, history},
    open,
    rows::{self, SETTINGS},
};
use crate::{
    drivers::{
        clocks::Clocks,
        fail_over::{Unwritten, claim_after_adoption, is_insertion, unwritten},
    },
    key::Partition,
    opening::OpenError,
    step::{Done, Shown, Step},
    sysvvm::{Description, Opened, Provenance, SysVvmHints, SysVvmStorage},
};
use async_trait::async_trait;
use ielections::{
    Document, DocumentId, DocumentLimits, FenceState, Limits, Page, ReadError, Scan, Slot, Vacant, WriteError,
};
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// A handle on a database: connections of its own.
#[derive(Debug)]
pub struct PostgresStorage {
    connections: Connections,
    /// The history that writes name. `None` until this handle has seen one that was adopted.
    history: Mutex<Option<History>>,
    clocks: Clocks,
}

impl PostgresStorage {
    /// Connects to the database that `url` names, as the module's documentation says, and checks server and
    /// schema. Creates nothing: [`init_storage`](crate::init_storage) does.
    ///
    /// # Errors
    /// See [`OpenError`]: each says what to do.
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing open.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        let (connections, shown) = open::open(Address::parse(url)?).await?;
        let clocks = Clocks::default();
        clocks.seen(connections.clock(), shown.server_time);
        Ok(Self { connections, history: Mutex::new(shown.adopted), clocks })
    }

    fn history(&self) -> Option<History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_history(&self, history: History) {
        *self.history.lock().unwrap_or_else(PoisonError::into_inner) = Some(history);
    }

    /// One statement by itself, which costs a server least: on a connection that is known to lead to a server
    /// with our history. `None`, and nothing was sent, if there is none.
    async fn alone(
        &self,
        statement: &Statement<'_>,
        lock_timeout: Duration,
    ) -> Result<Option<Answer>, DriverError> {
        let Some(history) = self.history() else { return Ok(None) };
        self.connections.execute(statement, &history, lock_timeout).await
    }

    /// The message that carries out `statements` in one transaction and shows the history at its end.
    ///
    /// The server has all of it before it begins, and so never waits for us in the middle.
    async fn transaction(&self, lock_timeout: Duration, statements: &str) -> Result<Answer, DriverError> {
        let settings = rows::settings("LOCAL", lock_timeout);
        self.connections.ask(&format!("{settings}; {statements}; {}", history())).await
    }

    /// As [`transaction`](Self::transaction), for verbs that know no TTL.
    async fn locking(&self, statements: &str) -> Result<Answer, DriverError> {
        self.transaction(self.lock_timeout(), statements).await
    }

    /// Of verbs that know no TTL.
    fn lock_timeout(&self) -> Duration {
        self.connections.address().request_timeout
    }

    /// The history that `answer` shows in this statement. Notes what the server's clock shows.
    fn shown(&self, answer: &Answer, statement: usize) -> Result<Option<History>, Damaged> {
        let shown = History::shown(answer.row(statement))?;
        self.clocks.seen(self.connections.clock(), shown.server_time);
        Ok(shown.adopted)
    }

    /// Fails if this machine's clock is far from the server's. Asks the server before it does.
    async fn check_clocks(&self) -> Result<(), DriverError> {
        if self.clocks.check(self.connections.clock()).is_err() {
            let answer = self.connections.ask(&history()).await?;
            self.shown(&answer, 0)?;
        }
        Ok(self.clocks.check(self.connections.clock())?)
    }

    /// Whether the history that `answer` shows, in the statement with this number, is still the one that our
    /// writes name.
    fn is_same_history(&self, answer: &Answer, statement: usize) -> Result<bool, DriverError> {
        let (shown, ours) = (self.shown(answer, SETTINGS + statement)?, self.history());
        let (Some(shown), Some(ours)) = (shown, ours) else { return Ok(false) };
        let is_same = ours.is_same(&shown);
        if is_same && shown.max_ttl > ours.max_ttl {
            self.set_history(shown);
        }
        Ok(is_same)
    }

    /// Takes over the history that the server has, and adopts it if no candidate has: see [`rows::adoption`].
    /// Returns the slot of `at`.
    async fn adopt(&self, at: Option<&Partition>) -> Result<Slot, DriverError> {
        let (ours, of_url) = (self.history(), self.connections.address().max_ttl);
        let known = ours.as_ref().map(|ours| ours.max_ttl).max(of_url);
        let answer = self.locking(&rows::adoption(at, ours.as_ref(), known)).await?;
        let (slot, history) = match at {
            Some(_) => (rows::slot(answer.row(SETTINGS + 4))?, 5),
            None => (rows::slot(None)?, 3),
        };
        // It was adopted in this very transaction, or before.
        let history = self.shown(&answer, SETTINGS + history)?;
        let history = history.ok_or_else(|| Damaged::of("a history that was not adopted"))?;
        if !ours.is_some_and(|ours| ours.is_same(&history)) {
            let location = self.connections.address();
            tracing::warn!(%location, "the database was promoted or restored: slots wait for the largest \
                TTL");
            self.set_history(history);
        }
        Ok(slot)
    }

    /// Sends a step, if the history is ours. `None` if the server has another one, and nothing was written.
    async fn carry_out(&self, at: &Partition, step: &Step) -> Result<Option<Done>, DriverError> {
        match (step, &self.history()) {
            (Step::Settle { value }, _) => {
                let answer = self.locking(&rows::settle(at, value)).await?;
                let stands = answer.row(SETTINGS + 1).ok_or_else(Damaged::not_shown)?.bytes(0)?;
                // The statement shows what stands after it, and not which call stored it.
                let is_ours = stands == *value;
                Ok(Some(if is_ours { Done::Applied } else { Done::Refused(Shown::Setting(stands)) }))
            }
            (_, None) => Ok(None),
            (Step::Claim { from, to }, Some(history)) => {
                let swap = |compared| rows::swap(at, from, to, history, compared);
                self.write(at, step, history, swap).await
            }
            (Step::Renew { from, to }, Some(history)) => {
                let renewal = |compared| rows::renewal(at, from, to, history, compared);
                self.write(at, step, history, renewal).await
            }
            (Step::Release { incarnation, epoch }, Some(history)) => {
                let release = |compared| rows::release(at, incarnation, *epoch, history, compared);
                self.write(at, step, history, release).await
            }
            (Step::Batch { fence, writes }, Some(history)) => {
                let write = rows::write(at, fence, writes, history);
                let answer = self.locking(&format!("{}; {write}", rows::locked(at))).await?;
                if answer.affected(SETTINGS + 1) > 0 {
                    return Ok(Some(Done::Applied));
                }
                let is_same = self.is_same_history(&answer, 2)?;
                Ok(is_same.then_some(Done::Refused(Shown::Nothing)))
            }
        }
    }

    /// Writes a leader record by a statement, whose number of changed rows tells whether it did.
    async fn write<'a>(
        &self,
        at: &Partition,
        step: &Step,
        history: &History,
        statement: impl Fn(Compared) -> Statement<'a>,
    ) -> Result<Option<Done>, DriverError> {
        let mut lock_timeout = self.lock_timeout();
        if let Step::Claim { to, .. } | Step::Renew { to, .. } = step {
            if to.ttl > history.max_ttl && rows::is_led(at) {
                return Err(DriverError::TtlTooLong { ttl: to.ttl, most: history.max_ttl });
            }
            lock_timeout = to.ttl.get() / 10;
        }
        // Refused, it has changed nothing. What stands is then shown by a transaction, which writes by itself
        // if the slot has become the one that is expected.
        let answer = self.alone(&statement(Compared::Witness), lock_timeout).await?;
        if answer.is_some_and(|answer| answer.affected(0) > 0) {
            return Ok(Some(Done::Applied));
        }
        let (write, locked) = (statement(Compared::Server), rows::locked(at));
        // A row that is there is locked first: what is shown is what the write then finds. One that is not
        // there can't be locked, and no row ever goes away.
        let (text, written, shown) = if is_insertion(step) {
            (format!("{write}; {locked}"), 0, 1)
        } else {
            (format!("{locked}; {write}"), 1, 0)
        };
        let answer = self.transaction(lock_timeout, &text).await?;
        if answer.affected(SETTINGS + written) > 0 {
            return Ok(Some(Done::Applied));
        }
        let stands = rows::slot(answer.row(SETTINGS + shown))?;
        match unwritten(step, stands, self.is_same_history(&answer, 2)?) {
            Unwritten::Refused(stands) => Ok(Some(Done::Refused(stands.into()))),
            Unwritten::OtherHistory => Ok(None),
            Unwritten::NotShown => Err(Damaged::not_shown().into()),
        }
    }

    /// Sends a read that shows slots. If the history has changed, it is adopted first, so
    /// that no slot of another history is shown: an observation of it would go on across the change, and its
    /// epoch may be one that was given out twice.
    async fn read_slots(
        &self,
        statement: &Statement<'_>,
        at: Option<&Partition>,
    ) -> Result<Vec<Row>, DriverError> {
        if let Some(answer) = self.alone(statement, self.lock_timeout()).await? {
            return Ok(answer.into_rows(0));
        }
        let statement = statement.to_string();
        let answer = self.locking(&statement).await?;
        if self.is_same_history(&answer, 1)? {
            return Ok(answer.into_rows(SETTINGS));
        }
        let answer = match self.adopt(at).await {
            Ok(_) => self.locking(&statement).await?,
            // A login that may only read shows what stands. It can't claim either.
            Err(DriverError::Refused(_)) => answer,
            Err(error) => return Err(error),
        };
        Ok(answer.into_rows(SETTINGS))
    }
}

#[async_trait]
impl SysVvmStorage for PostgresStorage {
    fn limits(&self) -> Limits {
        Limits {
            // An attempt may take a tenth of it: room for a commit that waits for a standby, and for the
            // connection that it may have to make.
            min_ttl: Duration::from_secs(2),
            // A row of an index takes 2,704 bytes, and that of documents has a key and an id.
            max_key_bytes: 1536,
            max_value_bytes: 16 << 10,
            // Bounds the message, and how long one statement keeps a connection.
            scan_batch: 1000,
        }
    }

    fn shared_between_processes(&self) -> bool {
        true
    }

    fn opened(&self) -> Option<Opened> {
        Some(Opened::at(self.connections.address().to_string(), Provenance::Existing))
    }

    async fn commit(&self, at: Partition, step: Step) -> Result<Done, WriteError> {
        if matches!(step, Step::Claim { .. }) && rows::is_led(&at) {
            self.check_clocks().await.map_err(DriverError::of_unsent)?;
        }
        match self.carry_out(&at, &step).await.map_err(DriverError::of_write)? {
            Some(done) => Ok(done),
            None if let Step::Claim { from, .. } = &step => {
                let stands = self.adopt(Some(&at)).await.map_err(DriverError::of_unsent)?;
                let answer = claim_after_adoption(from, stands);
                answer.ok_or_else(|| WriteError::NotApplied(DriverError::OtherHistory.into()))
            }
            None => Err(DriverError::OtherHistory.of_write()),
        }
    }

    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        let shown = self.read_slots(&rows::locked(&at), Some(&at)).await;
        shown.and_then(|shown| Ok(rows::slot(shown.first())?)).map_err(DriverError::of_read)
    }

    async fn peek(&self, at: &[Partition]) -> Result<Vec<Slot>, ReadError> {
        if at.is_empty() {
            return Ok(Vec::new());
        }
        let slots = self.read_slots(&rows::peek(at), None).await.and_then(|shown| {
            Ok(shown.iter().map(rows::peeked).collect::<Result<HashMap<_, _>, Damaged>>()?)
        });
        let slots = slots.map_err(DriverError::of_read)?;
        let vacant = || Slot::Vacant(Vacant { last_epoch: None });
        Ok(at.iter().map(|at| slots.get(at.as_bytes()).cloned().unwrap_or_else(vacant)).collect())
    }

    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError> {
        let answer = self.connections.ask(&rows::setting(&at)).await;
        let value = answer.and_then(|answer| Ok(answer.row(0).map(|row| row.bytes(0)).transpose()?));
        value.map_err(DriverError::of_read)
    }

    async fn settings(&self) -> Result<Option<Vec<Partition>>, ReadError> {
        let answer = self.connections.ask(rows::SETTING_KEYS).await;
        let keys = answer.and_then(|answer| {
            let keys = answer.rows(0).iter().map(|row| row.bytes(0).map(Partition::from_bytes));
            Ok(keys.collect::<Result<_, _>>()?)
        });
        keys.map(Some).map_err(DriverError::of_read)
    }

    fn document_limits(&self) -> Option<DocumentLimits> {
        Some(DocumentLimits {
            max_id_bytes: 1 << 10,
            max_body_bytes: 1 << 20,
            // These bound how long a batch holds the lock that renewals wait for: tens of milliseconds.
            max_batch: 256,
            max_batch_bytes: 2 << 20,
            max_page: 256,
        })
    }

    async fn fence_state(&self, at: &Partition) -> Result<FenceState, ReadError> {
        let shown = self.read_slots(&rows::locked(at), Some(at)).await;
        shown.and_then(|shown| Ok(rows::fence(shown.first())?)).map_err(DriverError::of_read)
    }

    async fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        let answer = self.connections.ask(&rows::document(at, id)).await;
        let document = answer.and_then(|answer| Ok(answer.row(0).map(rows::shown).transpose()?));
        document.map_err(DriverError::of_read)
    }

    async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        let answer = self.connections.ask(&rows::page(at, scan)).await;
        answer.and_then(|answer| Ok(rows::shown_page(answer.rows(0))?)).map_err(DriverError::of_read)
    }

    fn hints(&self) -> Option<&dyn SysVvmHints> {
        Some(self)
    }

    async fn describe(&self) -> Result<Description, ReadError> {
        open::describe(&self.connections).await.map_err(DriverError::of_read)
    }

    async fn shown_ages(&self, at: &[Partition]) -> Result<Vec<Option<Duration>>, ReadError> {
        let answer = self.connections.ask(&rows::ages(at).to_string()).await;
        let ages = answer.and_then(|answer| {
            Ok(answer.rows(0).iter().map(rows::age).collect::<Result<HashMap<_, _>, Damaged>>()?)
        });
        let ages = ages.map_err(DriverError::of_read)?;
        Ok(at.iter().map(|at| ages.get(at.as_bytes()).copied()).collect())
    }

    async fn close(&self) {
        self.connections.close().await;
    }
}

#[async_trait]
impl SysVvmHints for PostgresStorage {
    async fn announce(&self, topic: &Partition) {
        self.connections.announce(&channel(topic)).await;
    }

    async fn hinted(&self, topic: &Partition) {
        self.connections.notified(&channel(topic)).await;
    }

    fn listens(&self, topic: &Partition) -> bool {
        self.connections.listens(&channel(topic))
    }
}

/// The channel of a topic: a name of at most 63 letters, so a digest (FNV-1a, 64 bits). A channel that two
/// topics share costs looks.
fn channel(topic: &Partition) -> String {
    let digest = topic.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |digest, byte| {
        (digest ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("vvm_{digest:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channel_is_the_same_in_every_release() {
        assert_eq!(channel(&Partition::from_bytes(*b"a")), "vvm_af63dc4c8601ec8c");
        assert_eq!(channel(&Partition::from_bytes(*b"foobar")), "vvm_85944171f73967e8");
    }
}
