//! The rebuild: makes the instances of a term from the stored documents.

use crate::{
    BoxError, Failure, PrepareContext, Service, document,
    failure::{caught, caught_call},
    roster::{AnyService as _, PlannedInstance, Roster, ServiceTerm},
    runner::start,
    state_cell::StoredVersion,
    status::Instance,
    term::Term,
};
use ielections::{Document, DocumentId, DocumentReadError, Page, ReadError, Scan};
use std::{future::poll_fn, sync::Arc, task::Poll, time::Duration};

/// Documents in one page, unless the storage allows fewer: few round trips, and the first instances run soon.
const PAGE_LIMIT: usize = 500;

/// An outage fails no rebuild: renewals may outlast it, and the leader would lead without its work. A loss ends the attempts.
const READ_PAUSE: Duration = Duration::from_secs(1);

const LOGGED_ATTEMPTS: u32 = 60;

const SLOW_REBUILD: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
enum RebuildError {
    #[error("instances of an earlier term still run: {}", .0.join(", "))]
    NotJoined(Vec<String>),
    #[error("preparing it failed: {0}")]
    Prepare(#[source] BoxError),
    #[error("its documents could not be read: {0}")]
    Read(#[source] DocumentReadError),
}

enum EarlyEnd {
    TermOver,
    Failed(RebuildError),
}

impl<S: Service> Roster<S> {
    pub(crate) async fn begin_and_rebuild(self: &Arc<Self>, term: &Arc<Term>) {
        let term = self.begin_term(term);
        let clock = &self.config.clock;
        let began = clock.now();
        let outcome = self.rebuild(&term).await;
        let took = clock.now().since(began);
        let outcome: Result<(), Failure> = match outcome {
            Ok(()) => Ok(()),
            Err(EarlyEnd::Failed(error)) if !term.is_over() => Err(Arc::new(error)),
            Err(EarlyEnd::Failed(_) | EarlyEnd::TermOver) => return,
        };
        if took >= SLOW_REBUILD {
            tracing::warn!(service = S::NAME, ?took, "rebuilding the service was slow");
        }
        self.rebuilt(&term, outcome, took);
    }

    async fn rebuild(self: &Arc<Self>, term: &ServiceTerm) -> Result<(), EarlyEnd> {
        self.join_earlier(term).await?;
        self.clear();
        let cx = PrepareContext::new(term.stop.clone(), term.term.standing.clone());
        let prepared = caught(self.service.prepare(cx)).await.unwrap_or_else(|panic| Err(Box::new(panic)));
        if term.stop.is_cancelled() {
            return Err(EarlyEnd::TermOver);
        }
        prepared.map_err(|error| EarlyEnd::Failed(RebuildError::Prepare(error)))?;
        let mut after = None;
        loop {
            let page = self.read_page(term, after).await?;
            self.start_instances(term, page.documents)?;
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
            // If the storage answers at once, the instances would otherwise wait for the last page.
            yield_now().await;
        }
    }

    /// Waits for the instances of earlier terms, so that no id runs twice in a process.
    async fn join_earlier(&self, term: &ServiceTerm) -> Result<(), EarlyEnd> {
        let deadline = self.config.clock.sleep(self.config.join_timeout);
        tokio::select! {
            biased;
            () = self.joined() => Ok(()),
            () = term.stop.cancelled() => Err(EarlyEnd::TermOver),
            () = deadline => Err(EarlyEnd::Failed(RebuildError::NotJoined(self.running()))),
        }
    }

    async fn read_page(&self, term: &ServiceTerm, after: Option<DocumentId>) -> Result<Page, EarlyEnd> {
        let scan = Scan { prefix: self.collection.prefix(), after, limit: PAGE_LIMIT };
        let mut failures = 0_u32;
        loop {
            let scanned = term.stop.run_until_cancelled(term.term.scan(&scan)).await;
            let error = match scanned.ok_or(EarlyEnd::TermOver)? {
                Ok(page) => return Ok(page),
                Err(error) => error,
            };
            if !matches!(error, DocumentReadError::Storage(ReadError::Unavailable(_))) {
                return Err(EarlyEnd::Failed(RebuildError::Read(error)));
            }
            if failures.is_multiple_of(LOGGED_ATTEMPTS) {
                tracing::warn!(service = S::NAME, %error, failures, "documents could not be read; trying again");
            }
            failures = failures.saturating_add(1);
            let pause = self.config.clock.sleep(READ_PAUSE);
            term.stop.run_until_cancelled(pause).await.ok_or(EarlyEnd::TermOver)?;
        }
    }

    fn start_instances(
        self: &Arc<Self>,
        term: &ServiceTerm,
        documents: Vec<Document>,
    ) -> Result<(), EarlyEnd> {
        let made: Vec<_> = documents.into_iter().map(|document| self.make_instance(term, document)).collect();
        let mut planned = Vec::with_capacity(made.len());
        let mut list = self.list();
        if !list.is_current(term) {
            drop(list);
            return Err(EarlyEnd::TermOver);
        }
        for made in made {
            match made {
                Ok(one) => {
                    list.instances.insert(one.instance.id.clone(), Arc::clone(&one.instance));
                    planned.push(one);
                }
                Err((id, reason)) => {
                    tracing::error!(
                        service = S::NAME, id, %reason,
                        "the document is quarantined: no instance can be made from it; repair or delete it"
                    );
                    list.quarantined.insert(id, reason.to_string());
                }
            }
        }
        drop(list);
        planned.into_iter().for_each(|planned| start(self, planned));
        Ok(())
    }

    fn make_instance(
        &self,
        term: &ServiceTerm,
        document: Document,
    ) -> Result<PlannedInstance<S>, (String, BoxError)> {
        let make = || -> Result<_, BoxError> {
            let id: S::Id = self.collection.id_of(&document.id)?;
            let (schema, json) = document::parts(&document.body)?;
            let doc = match schema == S::SCHEMA {
                true => serde_json::from_slice(json)?,
                false => self.service.upgrade(schema, json)?,
            };
            let task = self.service.build(&id, &doc)?;
            Ok((Instance::new(id, task, true), doc))
        };
        let made = caught_call(make).unwrap_or_else(|panic| Err(Box::new(panic)));
        let (instance, doc) = made.map_err(|reason| (self.collection.name_of(&document.id), reason))?;
        let stored = StoredVersion::At(document.version);
        Ok(PlannedInstance { term: term.clone(), instance: Arc::new(instance), doc, stored })
    }
}

/// As that of tokio, which needs its runtime.
async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
