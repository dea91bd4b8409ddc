//! A service's step-up: join the old instances, prepare, read the documents page by page, make and start
//! instances.

use crate::{
    BoxError, Failure, PrepareContext, Service, envelope,
    failure::{caught, caught_call},
    instance::Instance,
    roster::{Current, Roster},
    runner::Queued,
    state_cell::Stands,
    term::Term,
};
use ielections::{Document, DocumentId, DocumentReadError, Page, ReadError, Scan};
use std::{future::poll_fn, sync::Arc, task::Poll, time::Duration};

/// How many documents are asked for at a time, if the storage takes so many: enough for few round trips, few
/// enough that the first instances run soon.
const PAGE: usize = 500;

/// How often a page is asked for before the rebuild counts as failed, and how far apart: with time limits of
/// its own for each, that is longer than a renewal lasts, so that a storage that is down for good costs the
/// leadership first.
const ATTEMPTS: usize = 10;
const PAUSE: Duration = Duration::from_secs(1);

/// From when on a rebuild is worth a warning: as long as a leader may be silent before it is at risk, by
/// default.
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

/// How a rebuild ended early.
enum Early {
    TermOver,
    Failed(RebuildError),
}

impl<S: Service> Roster<S> {
    /// Steps up. Ends soon after the term does, and is not dropped before.
    pub(crate) async fn step_up(self: &Arc<Self>, term: &Arc<Term>) {
        let current = self.enter(term);
        let clock = &self.config.clock;
        let began = clock.now();
        let outcome = self.rebuild(&current).await;
        let took = clock.now().since(began);
        let outcome: Result<(), Failure> = match outcome {
            Ok(()) => Ok(()),
            Err(Early::TermOver) => return,
            Err(Early::Failed(error)) => Err(Arc::new(error)),
        };
        if took >= SLOW {
            tracing::warn!(service = S::NAME, ?took, "rebuilding the service was slow");
        }
        self.rebuilt(&current, outcome, took);
    }

    async fn rebuild(self: &Arc<Self>, current: &Current) -> Result<(), Early> {
        self.join_the_old(current).await?;
        self.clear();
        let cx = PrepareContext::new(current.stop.clone(), current.term.standing.clone());
        let prepared = caught(self.service.prepare(cx)).await.unwrap_or_else(|panic| Err(Box::new(panic)));
        if current.stop.is_cancelled() {
            return Err(Early::TermOver);
        }
        prepared.map_err(|error| Early::Failed(RebuildError::Prepare(error)))?;
        let mut after = None;
        loop {
            let page = self.page(current, after).await?;
            self.take_up(current, page.documents)?;
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
            // Where a storage answers at once, the instances would otherwise wait for the last page.
            let_others_run().await;
        }
    }

    /// Never two instances of one id on a node, also if the last term's do not listen.
    async fn join_the_old(&self, current: &Current) -> Result<(), Early> {
        let deadline = self.config.clock.sleep(self.config.join_timeout);
        tokio::select! {
            biased;
            () = self.joined() => Ok(()),
            () = current.stop.cancelled() => Err(Early::TermOver),
            () = deadline => Err(Early::Failed(RebuildError::NotJoined(self.at_work()))),
        }
    }

    async fn page(&self, current: &Current, after: Option<DocumentId>) -> Result<Page, Early> {
        let scan = Scan { prefix: self.collection.prefix(), after, limit: PAGE };
        let mut attempt = 1;
        loop {
            let error = match self.unless_over(current, current.term.scan(&scan)).await? {
                Ok(page) => return Ok(page),
                Err(error) => error,
            };
            let may_pass = matches!(error, DocumentReadError::Storage(ReadError::Unavailable(_)));
            if attempt == ATTEMPTS || !may_pass {
                return Err(Early::Failed(RebuildError::Read(error)));
            }
            tracing::warn!(service = S::NAME, %error, attempt, "documents could not be read; trying again");
            attempt += 1;
            self.unless_over(current, self.config.clock.sleep(PAUSE)).await?;
        }
    }

    async fn unless_over<T>(&self, current: &Current, read: impl Future<Output = T>) -> Result<T, Early> {
        current.stop.run_until_cancelled(read).await.ok_or(Early::TermOver)
    }

    /// Makes an instance of each document, or a report, and starts them.
    fn take_up(self: &Arc<Self>, current: &Current, documents: Vec<Document>) -> Result<(), Early> {
        let made: Vec<_> = documents.into_iter().map(|document| self.make(current, document)).collect();
        let mut runners = 0;
        let mut list = self.list();
        if !list.is_current(current) {
            drop(list);
            return Err(Early::TermOver);
        }
        for made in made {
            match made {
                Ok(queued) => runners += self.admit(&mut list, queued),
                Err((id, reason)) => {
                    tracing::error!(service = S::NAME, id, %reason, "a document makes no instance; it is left as it is");
                    list.quarantined.insert(id, reason.to_string());
                }
            }
        }
        drop(list);
        self.start_runners(runners);
        Ok(())
    }

    /// An instance of a document that stands; or which document makes none, and why.
    fn make(
        self: &Arc<Self>,
        current: &Current,
        document: Document,
    ) -> Result<Queued<S>, (String, BoxError)> {
        let make = || -> Result<_, BoxError> {
            let id: S::Id = self.collection.id_of(&document.id)?;
            let doc = envelope::open(&self.service, &document.body)?;
            let task = self.service.build(&id, &doc)?;
            Ok((Instance::new(id, task, true), doc))
        };
        let made = caught_call(make).unwrap_or_else(|panic| Err(Box::new(panic)));
        let (instance, doc) = made.map_err(|reason| (self.collection.name_of(&document.id), reason))?;
        Ok(Queued::new(self, current, instance, doc, Stands::At(document.version)))
    }
}

/// Lets every other task of the runtime have its turn.
async fn let_others_run() {
    let mut waited = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
