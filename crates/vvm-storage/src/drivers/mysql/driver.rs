//! The verbs: each one message, sent once. A refusal, and the first message after a fail-over, is followed by another.

use super::{
    address::Address,
    connections::Connections,
    errors::{Answer, Damaged, DriverError, Row},
    open,
    rows::{self, History, history, history_of, transaction},
};
use crate::{
    drivers::{
        clocks::Clocks,
        fail_over::{Unwritten, claim_after_adoption, is_insertion, unwritten},
    },
    key::Partition,
    opening::OpenError,
    step::{Done, Shown, Step},
    sysvvm::{Description, Opened, Provenance, SysVvmStorage},
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
pub struct MySqlStorage {
    connections: Connections,
    /// The history that writes name. `None` until this handle has seen one that was adopted.
    history: Mutex<Option<History>>,
    clocks: Clocks,
}

impl MySqlStorage {
    /// Connects to the database that `url` names, as the module's documentation says, and checks server and tables. Creates
    /// nothing: [`init_storage`](crate::init_storage) does.
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

    /// The history in this row. Notes what the server's clock shows.
    fn shown(&self, row: Option<&Row>) -> Result<Option<History>, DriverError> {
        let shown = History::shown(row)?;
        self.clocks.seen(self.connections.clock(), shown.server_time);
        if !shown.is_fit {
            // A new connection goes to the server that accepts writes, or is refused with the reason.
            self.connections.drop_idle();
            return Err(DriverError::RolledBack(
                "it became read-only, or its settings lose commits, or this connection leads to another server".into(),
            ));
        }
        Ok(shown.adopted)
    }

    /// Whether the history in this row is still the one that our writes name.
    fn is_same_history(&self, row: Option<&Row>) -> Result<bool, DriverError> {
        let (Some(shown), Some(ours)) = (self.shown(row)?, self.history()) else { return Ok(false) };
        let is_same = ours.is_same(&shown);
        if is_same && shown.max_ttl > ours.max_ttl {
            self.set_history(shown);
        }
        Ok(is_same)
    }

    /// Fails if this machine's clock is far from the server's. Asks the server before it does.
    async fn check_clocks(&self) -> Result<(), DriverError> {
        if self.clocks.check(self.connections.clock()).is_err() {
            let answer = self.connections.ask(&history()).await?;
            self.shown(answer.row(0))?;
        }
        Ok(self.clocks.check(self.connections.clock())?)
    }

    /// Takes over the history that the server has, and adopts it if no candidate has: see [`rows::adoption`]. Returns the slot
    /// of `at`.
    async fn adopt(&self, at: Option<&Partition>) -> Result<Slot, DriverError> {
        let (ours, of_url) = (self.history(), self.connections.address().max_ttl);
        let known = ours.as_ref().map(|ours| ours.max_ttl).max(of_url);
        let adoption = rows::adoption(at, ours.as_ref(), known, &open::random()?);
        let answer = self.connections.ask(&transaction(&adoption)).await?;
        // It was adopted in this very transaction, or before.
        let history = self.shown(history_of(&answer))?;
        let history = history.ok_or_else(|| Damaged::of("a history that was not adopted"))?;
        if !ours.is_some_and(|ours| ours.is_same(&history)) {
            let location = self.connections.address();
            tracing::warn!(%location, "the database failed over or was restored: slots wait for the largest TTL");
            self.set_history(history);
        }
        Ok(rows::slot(answer.row(rows::ADOPTED_SLOT).filter(|_| at.is_some()))?)
    }

    /// Sends a step, if the history is ours. `None` if the server has another one, and nothing was written.
    async fn carry_out(&self, at: &Partition, step: &Step) -> Result<Option<Done>, DriverError> {
        let Some(history) = self.history() else { return Ok(None) };
        match step {
            Step::Settle { value } => {
                let answer = self.connections.ask(&transaction(&rows::settle(at, value))).await?;
                self.shown(history_of(&answer))?;
                let stands = answer.row(2).ok_or_else(Damaged::not_shown)?.bytes(0)?;
                // The statement shows what stands after it, and not which call stored it.
                let is_ours = stands == *value;
                Ok(Some(if is_ours { Done::Applied } else { Done::Refused(Shown::Setting(stands.to_vec())) }))
            }
            Step::Claim { from, to } => {
                self.write(at, step, &history, rows::swap(at, from, to, &history)).await
            }
            Step::Renew { from, to } => {
                self.write(at, step, &history, rows::renewal(at, from, to, &history)).await
            }
            Step::Release { incarnation, epoch } => {
                self.write(at, step, &history, rows::release(at, incarnation, *epoch, &history)).await
            }
            Step::Batch { fence, writes } => {
                let answer =
                    self.connections.ask(&transaction(&rows::write(at, fence, writes, &history))).await?;
                if answer.affected(rows::COUNTED) > 0 {
                    return Ok(Some(Done::Applied));
                }
                let is_same = self.is_same_history(history_of(&answer))?;
                Ok(is_same.then_some(Done::Refused(Shown::Nothing)))
            }
        }
    }

    /// Writes a leader record by a statement, which tells how many rows met its condition.
    async fn write(
        &self,
        at: &Partition,
        step: &Step,
        history: &History,
        statement: String,
    ) -> Result<Option<Done>, DriverError> {
        if let Step::Claim { to, .. } | Step::Renew { to, .. } = step
            && to.ttl > history.max_ttl
            && rows::is_led(at)
        {
            return Err(DriverError::TtlTooLong { ttl: to.ttl, most: history.max_ttl });
        }
        if self.connections.ask(&statement).await?.affected(0) > 0 {
            return Ok(Some(Done::Applied));
        }
        // Refused, it has changed nothing. What stands is then shown by a transaction, which locks it, and writes by itself if the
        // slot has become the one that is expected. A row that was not there is not written again: of two that insert it, each
        // would wait for the other.
        let is_insertion = is_insertion(step);
        let locked = rows::locked(at);
        let text = if is_insertion { locked } else { format!("{locked}; {statement}") };
        let answer = self.connections.ask(&transaction(&text)).await?;
        if !is_insertion && answer.affected(3) > 0 {
            return Ok(Some(Done::Applied));
        }
        let stands = rows::slot(answer.row(2))?;
        match unwritten(step, stands, self.is_same_history(history_of(&answer))?) {
            Unwritten::Refused(stands) => Ok(Some(Done::Refused(stands.into()))),
            Unwritten::OtherHistory => Ok(None),
            Unwritten::NotShown => Err(Damaged::not_shown().into()),
        }
    }

    /// Sends a read that shows slots, as a transaction if it `locks`. If the history has changed, it is adopted first, so that
    /// no slot of another history is shown: an observation of it would go on across the change, and its epoch may be one that
    /// was given out twice.
    async fn read_slots(
        &self,
        statement: &str,
        locks: bool,
        at: Option<&Partition>,
    ) -> Result<Vec<Row>, DriverError> {
        // The history is shown after the slots: if it is ours then, it was before.
        let text = if locks { transaction(statement) } else { format!("{statement}; {}", history()) };
        let (slots, shown) = if locks { (2, 3) } else { (0, 1) };
        let answer = self.connections.ask(&text).await?;
        if self.is_same_history(answer.row(shown))? {
            return Ok(answer.into_rows(slots));
        }
        let answer = match self.adopt(at).await {
            Ok(_) => self.connections.ask(&text).await?,
            // A login that may only read shows what stands. It can't claim either.
            Err(DriverError::Refused(_)) => answer,
            Err(error) => return Err(error),
        };
        Ok(answer.into_rows(slots))
    }

    async fn locked(&self, at: &Partition) -> Result<FenceState, ReadError> {
        let shown = self.read_slots(&rows::locked(at), true, Some(at)).await;
        shown.and_then(|shown| Ok(rows::fence(shown.first())?)).map_err(DriverError::of_read)
    }

    /// Sends a read, and decodes its answer.
    async fn asked<T>(
        &self,
        text: &str,
        decode: impl FnOnce(&Answer) -> Result<T, Damaged>,
    ) -> Result<T, ReadError> {
        let answer = self.connections.ask(text).await;
        answer.and_then(|answer| Ok(decode(&answer)?)).map_err(DriverError::of_read)
    }
}

#[async_trait]
impl SysVvmStorage for MySqlStorage {
    fn limits(&self) -> Limits {
        Limits {
            // An attempt may take a tenth of it: room for the connection that it may have to make.
            min_ttl: Duration::from_secs(2),
            // A row of an index takes 3,072 bytes, and that of documents has a key and an id.
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
        if self.history().is_none() && !matches!(step, Step::Claim { .. }) {
            // This handle has led nothing yet.
            self.adopt(None).await.map_err(DriverError::of_unsent)?;
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
        Ok(self.locked(&at).await?.slot)
    }

    async fn peek(&self, at: &[Partition]) -> Result<Vec<Slot>, ReadError> {
        if at.is_empty() {
            return Ok(Vec::new());
        }
        let slots = self.read_slots(&rows::peek(at), false, None).await.and_then(|shown| {
            Ok(shown.iter().map(rows::peeked).collect::<Result<HashMap<_, _>, Damaged>>()?)
        });
        let slots = slots.map_err(DriverError::of_read)?;
        let vacant = || Slot::Vacant(Vacant { last_epoch: None });
        Ok(at.iter().map(|at| slots.get(at.as_bytes()).cloned().unwrap_or_else(vacant)).collect())
    }

    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError> {
        self.asked(&rows::setting(&at), |answer| {
            answer.row(0).map(|row| row.bytes(0).map(<[u8]>::to_vec)).transpose()
        })
        .await
    }

    async fn settings(&self) -> Result<Option<Vec<Partition>>, ReadError> {
        let key = |row: &Row| row.bytes(0).map(|key| Partition::from_bytes(key.to_vec()));
        self.asked(rows::SETTING_KEYS, |answer| answer.rows(0).iter().map(key).collect()).await.map(Some)
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
        self.locked(at).await
    }

    async fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        self.asked(&rows::document(at, id), |answer| answer.row(0).map(rows::shown).transpose()).await
    }

    async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        self.asked(&rows::page(at, scan), |answer| rows::shown_page(answer.rows(0))).await
    }

    async fn describe(&self) -> Result<Description, ReadError> {
        open::describe(&self.connections).await.map_err(DriverError::of_read)
    }

    async fn shown_ages(&self, at: &[Partition]) -> Result<Vec<Option<Duration>>, ReadError> {
        if at.is_empty() {
            return Ok(Vec::new());
        }
        let ages: HashMap<Vec<u8>, Duration> =
            self.asked(&rows::ages(at), |answer| answer.rows(0).iter().map(rows::age).collect()).await?;
        Ok(at.iter().map(|at| ages.get(at.as_bytes()).copied()).collect())
    }

    async fn close(&self) {
        self.connections.close().await;
    }
}
