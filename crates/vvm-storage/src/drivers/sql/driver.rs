//! The verbs. Each sends one message, once. After a refusal, and after a fail-over of the server, it sends another.

use super::{
    connection::ConnectionPool,
    errors::{DecodeError, DriverError},
    history::{Clocks, ComparedHistory, Lineage},
    opening::{self, Opening, Purpose},
    rows::{self, Row, StatementResults},
    statements,
};
use crate::{
    drivers::fail_over::{RefusalCause, claim_after_adoption, is_insertion, unwritten},
    key::Partition,
    opening::OpenError,
    step::{CurrentState, Step, StepOutcome},
    sysvvm::{Description, ListedSetting, OpenedStorage, Provenance, SysVvmHints, SysVvmStorage},
};
use async_trait::async_trait;
use ielections::{
    Document, DocumentId, DocumentLimits, FenceState, Limits, Page, ReadError, Scan, Slot, Vacant, WriteError,
};
use std::{
    collections::HashMap,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// What drivers send in different ways.
pub(crate) trait Driver: Opening {
    /// Whether [`send_single`](Self::send_single) takes reads.
    const READS_ALONE: bool;

    fn hints(_storage: &SqlStorage<Self, Self::Session>) -> Option<&dyn SysVvmHints> {
        None
    }

    /// Sends a statement alone, which is cheapest. `None`, and nothing is sent, if the server may have another history.
    fn send_single(
        connections: &ConnectionPool<Self, Self::Session>,
        statement: &Self::Statement<'_>,
        history: &Lineage,
        lock_timeout: Duration,
    ) -> impl Future<Output = Result<Option<StatementResults>, DriverError>> + Send;
}

pub struct SqlStorage<Server, Session> {
    connections: ConnectionPool<Server, Session>,
    /// The history that writes compare with the server's. `None` until this handle has seen one that was adopted.
    history: Mutex<Option<Lineage>>,
    clocks: Clocks,
}

impl<S: Driver> SqlStorage<S, S::Session> {
    pub(in crate::drivers) async fn opened(server: S, purpose: Purpose) -> Result<Self, OpenError> {
        let (connections, shown) = opening::open(server, purpose).await?;
        let clocks = Clocks::default();
        clocks.seen(connections.clock(), shown.server_time);
        Ok(Self { connections, history: Mutex::new(shown.adopted), clocks })
    }

    /// Creates what is missing, and raises the bound of TTLs if the URL has a larger one. Many may do so at once.
    pub(crate) async fn init(url: &str) -> Result<(), OpenError> {
        let connections = ConnectionPool::new(S::at(url)?)?;
        let created = opening::create(&connections).await;
        connections.close().await;
        created
    }

    /// Returns whether the URL has a password. An empty one (`user:@host`) is none, also if the environment has one.
    pub(crate) fn has_password(url: &str) -> bool {
        let server = S::parse(url).ok();
        let password = server.as_ref().and_then(|server| server.address().password.as_ref());
        password.is_some_and(|password| !password.0.is_empty())
    }

    pub(in crate::drivers) fn connections(&self) -> &ConnectionPool<S, S::Session> {
        &self.connections
    }

    fn locked_history(&self) -> MutexGuard<'_, Option<Lineage>> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn history(&self) -> Option<Lineage> {
        self.locked_history().clone()
    }

    /// The lock timeout of verbs without a TTL.
    fn lock_timeout(&self) -> Duration {
        self.connections.address().request_timeout
    }

    /// Carries out `statements` in one transaction. The last answer shows the server's history.
    async fn transaction(
        &self,
        lock_timeout: Duration,
        statements: &str,
    ) -> Result<StatementResults, DriverError> {
        let answer = self.connections.ask(&S::transaction(statements, lock_timeout)).await?;
        Ok(answer.within(S::FRAME))
    }

    /// Returns the adopted history that `answer` shows last. Notes the server's clock. Fails if the server is unfit.
    fn shown(&self, answer: &StatementResults) -> Result<Option<Lineage>, DriverError> {
        let shown = Lineage::shown(answer.row_from_end(0))?;
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

    /// Fails if the host is an old primary. Leaves it, so that a leader of the later history finds its server again.
    fn check_is_latest(&self, shown: &Lineage) -> Result<(), DriverError> {
        if !self.history().is_some_and(|ours| shown.is_before(&ours)) {
            return Ok(());
        }
        self.connections.leave_host();
        Err(DriverError::RolledBack(
            "this server has an earlier history than this process has seen: an old primary runs again, so stop it; \
             or a backup was restored, so restart this process"
                .into(),
        ))
    }

    /// Returns whether `answer` shows, at its end, the history `known`, which was ours when the request was sent.
    fn is_same_history(
        &self,
        answer: &StatementResults,
        known: Option<&Lineage>,
    ) -> Result<bool, DriverError> {
        let Some(shown) = self.shown(answer)? else { return Ok(false) };
        self.check_is_latest(&shown)?;
        if let Some(ours) = self.locked_history().as_mut().filter(|ours| ours.is_same(&shown)) {
            ours.max_ttl = ours.max_ttl.max(shown.max_ttl);
        }
        Ok(known.is_some_and(|known| known.is_same(&shown)))
    }

    /// Fails if this machine's clock is far from the server's. Asks the server before it does.
    async fn check_clocks(&self) -> Result<(), DriverError> {
        if self.clocks.check(self.connections.clock()).is_err() {
            self.shown(&self.connections.ask(&S::history()).await?)?;
        }
        Ok(self.clocks.check(self.connections.clock())?)
    }

    /// Takes over the history that the server has, and adopts it if no candidate has: see
    /// [`Statements::adoption`](statements::Statements::adoption). Returns the slot of `at`.
    async fn adopt(&self, at: Option<&Partition>) -> Result<Slot, DriverError> {
        let (ours, of_url) = (self.history(), self.connections.address().max_ttl);
        let known = ours.as_ref().map(|ours| ours.max_ttl).max(of_url);
        let adoption = S::adoption(at, ours.as_ref(), known)?;
        let answer = self.transaction(self.lock_timeout(), &adoption).await?;
        // It was adopted in this very transaction, or before.
        let history = self.shown(&answer)?;
        let history = history.ok_or_else(|| DecodeError::of("a history that was not adopted"))?;
        self.check_is_latest(&history)?;
        let slot = rows::slot(answer.row_from_end(1).filter(|_| at.is_some()))?;
        if !ours.is_some_and(|ours| ours.is_same(&history)) {
            let location = self.connections.address();
            tracing::warn!(%location, "the database failed over or was restored: slots wait for the largest TTL");
            *self.locked_history() = Some(history);
        }
        Ok(slot)
    }

    /// Sends a step that names our history. Returns `None` if the server has another one: nothing was written then.
    async fn carry_out(&self, at: &Partition, step: &Step) -> Result<Option<StepOutcome>, DriverError> {
        match (step, &self.history()) {
            (Step::Settle { value }, _) => {
                let answer = self.transaction(self.lock_timeout(), &S::settle(at, value)).await?;
                self.shown(&answer)?;
                let stands = answer.row(1).ok_or_else(DecodeError::not_shown)?.bytes(0)?;
                // The statement shows what stands after it, and not which call stored it.
                let is_ours = stands == *value;
                Ok(Some(if is_ours {
                    StepOutcome::Applied
                } else {
                    StepOutcome::Refused(CurrentState::Setting(stands))
                }))
            }
            (_, None) => Ok(None),
            (Step::Claim { from, to }, Some(history)) => {
                self.write(at, step, history, |compared| S::claim(at, from, to, compared)).await
            }
            (Step::Renew { from, to }, Some(history)) => {
                self.write(at, step, history, |compared| S::renew(at, from, to, compared)).await
            }
            (Step::Release { incarnation, epoch }, Some(history)) => {
                let release = |compared| S::release(at, incarnation, *epoch, compared);
                self.write(at, step, history, release).await
            }
            (Step::Batch { fence, writes }, Some(history)) => {
                let text = format!("{}; {}", S::locked(at), S::batch(at, fence, writes, history));
                let answer = self.transaction(self.lock_timeout(), &text).await?;
                if answer.affected(S::BATCH_STATEMENT) > 0 {
                    return Ok(Some(StepOutcome::Applied));
                }
                let is_same = self.is_same_history(&answer, Some(history))?;
                Ok(is_same.then_some(StepOutcome::Refused(CurrentState::Nothing)))
            }
        }
    }

    async fn write<'a>(
        &self,
        at: &Partition,
        step: &Step,
        history: &'a Lineage,
        statement: impl Fn(ComparedHistory<'a>) -> S::Statement<'a>,
    ) -> Result<Option<StepOutcome>, DriverError> {
        let mut lock_timeout = self.lock_timeout();
        if let Step::Claim { to, .. } | Step::Renew { to, .. } = step {
            if to.ttl > history.max_ttl && statements::is_led(at) {
                return Err(DriverError::TtlTooLong { ttl: to.ttl, most: history.max_ttl });
            }
            lock_timeout = to.ttl.get() / 10;
        }
        // A refused statement has changed nothing. A transaction then shows what stands. It also writes, if by then the
        // slot is in the state that the step expects.
        let alone = statement(ComparedHistory { history, alone: true });
        let answer = S::send_single(&self.connections, &alone, history, lock_timeout).await?;
        if answer.is_some_and(|answer| answer.affected(0) > 0) {
            return Ok(Some(self.applied(at, step)));
        }
        // An existing row is locked before the write, which so finds what is shown. A missing row can't be locked. It
        // is shown after the write: no row ever goes away.
        let (write, locked) = (statement(ComparedHistory { history, alone: false }), S::locked(at));
        let (text, written, shown) = match is_insertion(step) {
            true if S::INSERTS_AGAIN => (format!("{write}; {locked}"), Some(0), 1 + S::LOCKED_SLOT_STATEMENT),
            true => (locked.to_string(), None, S::LOCKED_SLOT_STATEMENT),
            false => {
                (format!("{locked}; {write}"), Some(S::LOCKED_SLOT_STATEMENT + 1), S::LOCKED_SLOT_STATEMENT)
            }
        };
        let answer = self.transaction(lock_timeout, &text).await?;
        if written.is_some_and(|written| answer.affected(written) > 0) {
            return Ok(Some(self.applied(at, step)));
        }
        let stands = rows::slot(answer.row(shown))?;
        match unwritten(step, stands, self.is_same_history(&answer, Some(history))?) {
            RefusalCause::Refused(stands) => Ok(Some(StepOutcome::Refused(stands.into()))),
            RefusalCause::OtherHistory => Ok(None),
            RefusalCause::NotShown => Err(DecodeError::not_shown().into()),
        }
    }

    fn applied(&self, at: &Partition, step: &Step) -> StepOutcome {
        if let Step::Claim { to, .. } | Step::Renew { to, .. } = step
            && statements::is_led(at)
        {
            self.connections.leads_for(to.ttl);
        }
        StepOutcome::Applied
    }

    /// Sends a read that shows slots, in a transaction if it `locks`. If the history has changed, adopts it first:
    /// otherwise an observation would go on across the change, and an epoch may have been given out twice.
    async fn read_slots(
        &self,
        statement: &S::Statement<'_>,
        locks: bool,
        at: Option<&Partition>,
    ) -> Result<Vec<Row>, DriverError> {
        let known = self.history();
        if S::READS_ALONE
            && let Some(history) = &known
            && let Some(answer) =
                S::send_single(&self.connections, statement, history, self.lock_timeout()).await?
        {
            return Ok(answer.into_rows(0));
        }
        let (text, place) = (statement.to_string(), if locks { S::LOCKED_SLOT_STATEMENT } else { 0 });
        let send = async || match locks {
            true => self.transaction(self.lock_timeout(), &text).await,
            false => self.connections.ask(&format!("{text}; {}", S::history())).await,
        };
        // The answer shows the history after the slots. If it is ours there, it was when the slots were read.
        let answer = send().await?;
        if self.is_same_history(&answer, known.as_ref())? {
            return Ok(answer.into_rows(place));
        }
        let answer = match self.adopt(at).await {
            Ok(_) => {
                let answer = send().await?;
                if !self.is_same_history(&answer, self.history().as_ref())? {
                    return Err(DriverError::RolledBack("the database failed over meanwhile".into()));
                }
                answer
            }
            // A login that may only read shows what stands. It can't claim either.
            Err(DriverError::Refused(_) | DriverError::Denied(_)) => answer,
            Err(error) => return Err(error),
        };
        Ok(answer.into_rows(place))
    }

    async fn asked<T>(
        &self,
        text: &str,
        decode: impl FnOnce(&StatementResults) -> Result<T, DecodeError>,
    ) -> Result<T, ReadError> {
        let answer = self.connections.ask(text).await;
        answer.and_then(|answer| Ok(decode(&answer)?)).map_err(DriverError::into_read_error)
    }
}

impl<S: Driver> fmt::Debug for SqlStorage<S, S::Session> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SqlStorage({})", self.connections.address())
    }
}

#[async_trait]
impl<S: Driver> SysVvmStorage for SqlStorage<S, S::Session> {
    fn limits(&self) -> Limits {
        Limits {
            // An attempt may take a tenth of it: room for a commit that waits for a standby, and for a new connection.
            min_ttl: Duration::from_secs(2),
            // A row of an index takes 2,704 bytes (PostgreSQL) or 3,072, and that of documents has a key and an id.
            max_key_bytes: 1536,
            max_value_bytes: 16 << 10,
            // Bounds the message, and how long one statement keeps a connection.
            scan_batch: 1000,
        }
    }

    fn opened(&self) -> Option<OpenedStorage> {
        Some(OpenedStorage::at(self.connections.address().to_string(), Provenance::Existing))
    }

    async fn commit(&self, at: Partition, step: Step) -> Result<StepOutcome, WriteError> {
        if matches!(step, Step::Claim { .. }) && statements::is_led(&at) {
            self.check_clocks().await.map_err(DriverError::into_unsent_error)?;
        }
        match self.carry_out(&at, &step).await.map_err(DriverError::into_write_error)? {
            Some(done) => Ok(done),
            None if let Step::Claim { from, .. } = &step => {
                let stands = self.adopt(Some(&at)).await.map_err(DriverError::into_unsent_error)?;
                let answer = claim_after_adoption(from, stands);
                answer.ok_or_else(|| WriteError::NotApplied(DriverError::OtherHistory.into()))
            }
            None => Err(DriverError::OtherHistory.into_write_error()),
        }
    }

    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        Ok(self.fence_state(&at).await?.slot)
    }

    async fn peek(&self, at: &[Partition]) -> Result<Vec<Slot>, ReadError> {
        if at.is_empty() {
            return Ok(Vec::new());
        }
        let slots = self.read_slots(&S::peek(at), false, None).await.and_then(|shown| {
            Ok(shown.iter().map(rows::peeked).collect::<Result<HashMap<_, _>, DecodeError>>()?)
        });
        let slots = slots.map_err(DriverError::into_read_error)?;
        self.connections.close_idle_if_crowded().await;
        let vacant = || Slot::Vacant(Vacant { last_epoch: None });
        Ok(at.iter().map(|at| slots.get(at.as_bytes()).cloned().unwrap_or_else(vacant)).collect())
    }

    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError> {
        let value = |answer: &StatementResults| answer.row(0).map(|row| row.bytes(0)).transpose();
        self.asked(&statements::setting::<S>(&at), value).await
    }

    async fn settings(&self) -> Result<Option<Vec<ListedSetting>>, ReadError> {
        let listed = |answer: &StatementResults| {
            let rows = answer.rows(0).iter();
            rows.map(|row| Ok((Partition::from_bytes(row.bytes(0)?), Some(row.bytes(1)?)))).collect()
        };
        self.asked(&statements::settings::<S>(), listed).await.map(Some)
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
        let shown = self.read_slots(&S::locked(at), true, Some(at)).await;
        shown.and_then(|shown| Ok(rows::fence(shown.first())?)).map_err(DriverError::into_read_error)
    }

    async fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        self.asked(&statements::document::<S>(at, id), |answer| answer.row(0).map(rows::shown).transpose())
            .await
    }

    async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        self.asked(&statements::page::<S>(at, scan), |answer| rows::shown_page(answer.rows(0))).await
    }

    fn hints(&self) -> Option<&dyn SysVvmHints> {
        S::hints(self)
    }

    async fn describe(&self) -> Result<Description, ReadError> {
        opening::describe(&self.connections).await.map_err(DriverError::into_read_error)
    }

    async fn shown_ages(&self, at: &[Partition]) -> Result<Vec<Option<Duration>>, ReadError> {
        if at.is_empty() {
            return Ok(Vec::new());
        }
        let ages: HashMap<Vec<u8>, Duration> =
            self.asked(&S::ages(at), |answer| answer.rows(0).iter().map(rows::age).collect()).await?;
        Ok(at.iter().map(|at| ages.get(at.as_bytes()).copied()).collect())
    }

    async fn close(&self) {
        self.connections.close().await;
    }
}
