//! The verbs: each one message, sent once. Only the first message after a fail-over is followed by another.

mod clocks;
mod description;
mod documents;
mod hints;

use super::{
    errors::{Damaged, DriverError},
    open::{Address, Connections, OpenError},
    rows::{self, Answer, Compared, History, Row, SETTINGS, Statement},
};
use crate::{
    key::Partition,
    step::{Done, Shown, Step},
    sysvvm::{Description, Opened, Provenance, SysVvmHints, SysVvmStorage},
};
use async_trait::async_trait;
use clocks::Clocks;
use ielections::{
    Document, DocumentId, DocumentLimits, Entry, Epoch, FenceState, Incarnation, Limits, Page, ReadError,
    Scan, Slot, WriteError,
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

/// How a write of a leader record ended.
enum Outcome {
    Applied,
    Refused(Slot),
    /// The server has another history, and nothing was written.
    OtherHistory,
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
        let (connections, shown) = super::open::open(Address::parse(url)?).await?;
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
        self.connections.ask(&format!("{settings}; {statements}; {}", rows::history())).await
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
            let answer = self.connections.ask(&rows::history()).await?;
            self.shown(&answer, 0)?;
        }
        self.clocks.check(self.connections.clock())
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

    /// Replaces `from` by `entry`, if the history is ours.
    async fn swap(&self, at: &Partition, from: &Slot, entry: &Entry) -> Result<Outcome, DriverError> {
        let Some(history) = self.history() else { return Ok(Outcome::OtherHistory) };
        if entry.ttl > history.max_ttl && rows::is_led(at) {
            return Err(DriverError::TtlTooLong { ttl: entry.ttl, most: history.max_ttl });
        }
        let lock_timeout = entry.ttl.get() / 10;
        let swap = rows::swap(at, from, entry, &history, Compared::Witness);
        // Refused, it has changed nothing. What stands is then shown by a transaction, which writes by itself
        // if the slot has become the one that is expected.
        if self.alone(&swap, lock_timeout).await?.is_some_and(|answer| answer.affected(0) > 0) {
            return Ok(Outcome::Applied);
        }
        let (swap, locked) = (rows::swap(at, from, entry, &history, Compared::Server), rows::locked(at));
        // A row that is there is locked first: what is shown is what the write then finds. One that is not
        // there can't be locked, and no row ever goes away.
        let is_insertion = matches!(from, Slot::Vacant(vacant) if vacant.last_epoch.is_none());
        let (text, write, shown) = if is_insertion {
            (format!("{swap}; {locked}"), 0, 1)
        } else {
            (format!("{locked}; {swap}"), 1, 0)
        };
        let answer = self.transaction(lock_timeout, &text).await?;
        if answer.affected(SETTINGS + write) > 0 {
            return Ok(Outcome::Applied);
        }
        let stands = rows::slot(answer.row(SETTINGS + shown))?;
        match self.is_same_history(&answer, 2)? {
            true if !stands.is_as_expected(from) => Ok(Outcome::Refused(stands)),
            // A slot without a row, after a fail-over: it has to be adopted by itself.
            true if is_insertion => Ok(Outcome::OtherHistory),
            true => Err(Damaged::not_shown().into()),
            false => Ok(Outcome::OtherHistory),
        }
    }

    async fn claim_slot(&self, at: &Partition, from: &Slot, entry: &Entry) -> Result<Done, WriteError> {
        if rows::is_led(at) {
            self.check_clocks().await.map_err(DriverError::of_unsent)?;
        }
        match self.swap(at, from, entry).await.map_err(DriverError::of_write)? {
            Outcome::Applied => Ok(Done::Applied),
            Outcome::Refused(stands) => Ok(Done::Refused(stands.into())),
            Outcome::OtherHistory => {
                // Whatever becomes of the adoption: the claim is not applied.
                let stands = self.adopt(Some(at)).await.map_err(DriverError::of_unsent)?;
                if stands.is_as_expected(from) {
                    return Err(WriteError::NotApplied(DriverError::OtherHistory.into()));
                }
                Ok(Done::Refused(stands.into()))
            }
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

impl PostgresStorage {
    async fn claim(&self, at: Partition, from: &Slot, entry: &Entry) -> Result<Done, WriteError> {
        self.claim_slot(&at, from, entry).await
    }

    async fn renew(&self, at: Partition, held: &Entry, entry: &Entry) -> Result<Done, WriteError> {
        let from = Slot::Held { entry: held.clone(), proven_age: None };
        match self.swap(&at, &from, entry).await.map_err(DriverError::of_write)? {
            Outcome::Applied => Ok(Done::Applied),
            Outcome::Refused(stands) => Ok(Done::Refused(stands.into())),
            Outcome::OtherHistory => Err(DriverError::OtherHistory.of_write()),
        }
    }

    async fn release(
        &self,
        at: Partition,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Done, WriteError> {
        let history = self.history().ok_or_else(|| DriverError::OtherHistory.of_write())?;
        let release = |compared| rows::release(&at, &incarnation, epoch, &history, compared);
        let outcome = async {
            let released = self.alone(&release(Compared::Witness), self.lock_timeout()).await?;
            if released.is_some_and(|answer| answer.affected(0) > 0) {
                return Ok(Done::Applied);
            }
            let release = release(Compared::Server);
            let answer = self.locking(&format!("{}; {release}", rows::locked(&at))).await?;
            if answer.affected(SETTINGS + 1) > 0 {
                return Ok(Done::Applied);
            }
            if !self.is_same_history(&answer, 2)? {
                return Err(DriverError::OtherHistory);
            }
            match rows::slot(answer.row(SETTINGS))? {
                stands if stands.entry().is_some_and(|entry| entry.is_of(incarnation, epoch)) => {
                    Err(Damaged::not_shown().into())
                }
                stands => Ok(Done::Refused(stands.into())),
            }
        };
        outcome.await.map_err(DriverError::of_write)
    }

    async fn settle(&self, at: Partition, value: &[u8]) -> Result<Done, WriteError> {
        let answer = self.locking(&rows::settle(&at, value)).await;
        let stands = answer.and_then(|answer| {
            let row = answer.row(SETTINGS + 1).ok_or_else(Damaged::not_shown)?;
            let stands = row.bytes(0)?;
            // The statement shows what stands after it, and not which call stored it.
            Ok(if stands == value { Done::Applied } else { Done::Refused(Shown::Setting(stands)) })
        });
        stands.map_err(DriverError::of_write)
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
        match &step {
            Step::Claim { from, to } => self.claim(at, from, to).await,
            Step::Renew { from, to } => self.renew(at, from, to).await,
            Step::Release { incarnation, epoch } => self.release(at, *incarnation, *epoch).await,
            Step::Batch { fence, writes } => self.write_documents(&at, fence, writes).await,
            Step::Settle { value } => self.settle(at, value).await,
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
        let vacant = || Slot::Vacant(ielections::Vacant { last_epoch: None });
        Ok(at.iter().map(|at| slots.get(at.as_bytes()).cloned().unwrap_or_else(vacant)).collect())
    }

    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError> {
        let answer = self.connections.ask(&rows::setting(&at)).await;
        let value = answer.and_then(|answer| Ok(answer.row(0).map(|row| row.bytes(0)).transpose()?));
        value.map_err(DriverError::of_read)
    }

    fn document_limits(&self) -> Option<DocumentLimits> {
        Some(self.document_limits())
    }

    async fn fence_state(&self, at: &Partition) -> Result<FenceState, ReadError> {
        self.fence_state(at).await
    }

    async fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        self.document(at, id).await
    }

    async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        self.scan_documents(at, scan).await
    }

    fn hints(&self) -> Option<&dyn SysVvmHints> {
        Some(self)
    }

    async fn describe(&self) -> Result<Description, ReadError> {
        description::describe(&self.connections).await.map_err(DriverError::of_read)
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
