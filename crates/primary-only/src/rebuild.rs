//! A service's step-up: join the old instances, prepare, read the documents page by page, make and start
//! instances.

use crate::{
    BoxError, Failure, PrepareContext, Service, envelope,
    failure::{caught, caught_call},
    instance::Instance,
    roster::{Queued, Roster, ServiceTerm},
    runner::Runner,
    state_cell::Stored,
    term::Term,
};
use ielections::{Document, DocumentId, DocumentReadError, Page, ReadError, Scan};
use std::{future::poll_fn, sync::Arc, task::Poll, time::Duration};

/// Documents in one page, unless the storage allows fewer: few round trips, and the first instances run soon.
const PAGE: usize = 500;

/// Attempts to read one page, and the pause between them. With the time limit of each attempt they take
/// longer than a renewal may, so that an outage of the storage ends the leadership before it fails the
/// rebuild.
const ATTEMPTS: usize = 10;
const PAUSE: Duration = Duration::from_secs(1);

/// A rebuild that takes this long logs a warning: half of the default TTL.
const SLOW: Duration = Duration::from_secs(10);

/// Why a service was not rebuilt.
#[derive(Debug, thiserror::Error)]
enum RebuildError {
    #[error("instances of an earlier term still run: {}", .0.join(", "))]
    NotJoined(Vec<String>),
    #[error("preparing it failed: {0}")]
    Prepare(#[source] BoxError),
    #[error("its documents could not be read: {0}")]
    Read(#[source] DocumentReadError),
}

/// Why a rebuild ended before it was complete.
enum Early {
    TermOver,
    Failed(RebuildError),
}

impl<S: Service> Roster<S> {
    /// Steps up. Ends soon after the term does; callers do not drop it before.
    pub(crate) async fn step_up(self: &Arc<Self>, term: &Arc<Term>) {
        let term = self.begin_term(term);
        let clock = &self.config.clock;
        let began = clock.now();
        let outcome = self.rebuild(&term).await;
        let took = clock.now().since(began);
        let outcome: Result<(), Failure> = match outcome {
            Ok(()) => Ok(()),
            Err(Early::TermOver) => return,
            Err(Early::Failed(error)) => Err(Arc::new(error)),
        };
        if took >= SLOW {
            tracing::warn!(service = S::NAME, ?took, "rebuilding the service was slow");
        }
        self.rebuilt(&term, outcome, took);
    }

    async fn rebuild(self: &Arc<Self>, term: &ServiceTerm) -> Result<(), Early> {
        self.join_earlier(term).await?;
        self.clear();
        let cx = PrepareContext::new(term.stop.clone(), term.term.standing.clone());
        let prepared = caught(self.service.prepare(cx)).await.unwrap_or_else(|panic| Err(Box::new(panic)));
        if term.stop.is_cancelled() {
            return Err(Early::TermOver);
        }
        prepared.map_err(|error| Early::Failed(RebuildError::Prepare(error)))?;
        let mut after = None;
        loop {
            let page = self.page(term, after).await?;
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
    async fn join_earlier(&self, term: &ServiceTerm) -> Result<(), Early> {
        let deadline = self.config.clock.sleep(self.config.join_timeout);
        tokio::select! {
            biased;
            () = self.joined() => Ok(()),
            () = term.stop.cancelled() => Err(Early::TermOver),
            () = deadline => Err(Early::Failed(RebuildError::NotJoined(self.running()))),
        }
    }

    async fn page(&self, term: &ServiceTerm, after: Option<DocumentId>) -> Result<Page, Early> {
        let scan = Scan { prefix: self.collection.prefix(), after, limit: PAGE };
        let mut attempt = 1;
        loop {
            let scanned = term.stop.run_until_cancelled(term.term.scan(&scan)).await;
            let error = match scanned.ok_or(Early::TermOver)? {
                Ok(page) => return Ok(page),
                Err(error) => error,
            };
            let may_pass = matches!(error, DocumentReadError::Storage(ReadError::Unavailable(_)));
            if attempt == ATTEMPTS || !may_pass {
                return Err(Early::Failed(RebuildError::Read(error)));
            }
            tracing::warn!(service = S::NAME, %error, attempt, "documents could not be read; trying again");
            attempt += 1;
            let pause = self.config.clock.sleep(PAUSE);
            term.stop.run_until_cancelled(pause).await.ok_or(Early::TermOver)?;
        }
    }

    /// Makes an instance of each document and starts it, or quarantines the document.
    fn start_instances(self: &Arc<Self>, term: &ServiceTerm, documents: Vec<Document>) -> Result<(), Early> {
        let made: Vec<_> = documents.into_iter().map(|document| self.make(term, document)).collect();
        let mut runners = 0;
        let mut list = self.list();
        if !list.is_current(term) {
            drop(list);
            return Err(Early::TermOver);
        }
        for made in made {
            match made {
                Ok(queued) => runners += self.admit(&mut list, queued),
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
        Runner::start(self, runners);
        Ok(())
    }

    /// Makes an instance from a stored document. Fails with the document's name and the reason.
    fn make(&self, term: &ServiceTerm, document: Document) -> Result<Queued<S>, (String, BoxError)> {
        let make = || -> Result<_, BoxError> {
            let id: S::Id = self.collection.id_of(&document.id)?;
            let (schema, json) = envelope::parts(&document.body)?;
            let doc = match schema == S::SCHEMA {
                true => serde_json::from_slice(json)?,
                false => self.service.upgrade(schema, json)?,
            };
            let task = self.service.build(&id, &doc)?;
            Ok((Instance::new(id, task, true), doc))
        };
        let made = caught_call(make).unwrap_or_else(|panic| Err(Box::new(panic)));
        let (instance, doc) = made.map_err(|reason| (self.collection.name_of(&document.id), reason))?;
        let stored = Stored::At(document.version);
        Ok(Queued { term: term.clone(), instance: Arc::new(instance), doc, stored })
    }
}

/// Lets the runtime poll every other task that is ready.
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
