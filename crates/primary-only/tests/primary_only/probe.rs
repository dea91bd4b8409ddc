//! A service whose instances run a test's code, and record their runs.

use crate::stepping::{Change, Journal};
use async_trait::async_trait;
use futures_util::future::BoxFuture;
use primary_only::{BoxError, Interrupted, Others, PrepareContext, RunContext, Service, Task};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    sync::{Arc, Mutex},
};

/// The document of a probe's instance.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Steps {
    /// The number of steps taken.
    pub(crate) taken: u64,
    /// The request that created the instance.
    pub(crate) request: String,
}

type Act = Arc<dyn Fn(RunContext<Steps>) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;
type Prepare = Arc<dyn Fn(PrepareContext) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;

/// The service. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Probe {
    pub(crate) journal: Journal,
    pub(crate) go: Signals,
    pub(crate) concurrency: Option<NonZeroUsize>,
    acts: Arc<Mutex<BTreeMap<String, Act>>>,
    prepare: Arc<Mutex<Option<Prepare>>>,
}

/// An instance.
pub(crate) struct ProbeTask {
    id: String,
    request: String,
    began_with: u64,
    probe: Probe,
}

impl Steps {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn requesting(request: &str) -> Self {
        Self { request: request.into(), ..Self::default() }
    }

    pub(crate) fn next(&self) -> Self {
        Self { taken: self.taken + 1, ..self.clone() }
    }
}

impl Probe {
    pub(crate) fn at_most(concurrency: usize) -> Self {
        Self { concurrency: NonZeroUsize::new(concurrency), ..Self::default() }
    }

    /// Sets the run of the instance of this id. The default is [`hold`].
    pub(crate) fn act<Acting>(
        &self,
        id: &str,
        act: impl Fn(RunContext<Steps>) -> Acting + Send + Sync + 'static,
    ) where
        Acting: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        let act: Act = Arc::new(move |cx| Box::pin(act(cx)));
        self.acts.lock().unwrap().insert(id.into(), act);
    }

    /// Sets the code of `prepare`.
    pub(crate) fn prepare_by<Preparing>(
        &self,
        prepare: impl Fn(PrepareContext) -> Preparing + Send + Sync + 'static,
    ) where
        Preparing: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        *self.prepare.lock().unwrap() = Some(Arc::new(move |cx| Box::pin(prepare(cx))));
    }
}

/// Inserts the document, and waits for the end of the term.
pub(crate) async fn hold(mut cx: RunContext<Steps>) -> Result<(), BoxError> {
    cx.state.insert().await?;
    cx.stop.cancelled().await;
    Err(Interrupted.into())
}

#[async_trait]
impl Service for Probe {
    type Id = String;
    type Doc = Steps;
    type Task = ProbeTask;

    const NAME: &'static str = "probe";

    fn concurrency(&self) -> Option<NonZeroUsize> {
        self.concurrency
    }

    async fn prepare(&self, cx: PrepareContext) -> Result<(), BoxError> {
        self.journal.write("prepares");
        let prepare = self.prepare.lock().unwrap().clone();
        match prepare {
            Some(prepare) => prepare(cx).await,
            None => Ok(()),
        }
    }

    fn conflicts(&self, _: &String, doc: &Steps, mut others: Others<'_, Self>) -> Result<(), BoxError> {
        match others.find(|(_, other)| other.request == "alone" || doc.request == "alone") {
            Some((id, _)) => Err(format!("{id} is there").into()),
            None => Ok(()),
        }
    }

    fn build(&self, id: &String, doc: &Steps) -> Result<ProbeTask, BoxError> {
        match doc.request.as_str() {
            "not to be built" => Err("not to be built".into()),
            "to panic" => panic!("built to panic"),
            _ => {
                let (id, request, began_with) = (id.clone(), doc.request.clone(), doc.taken);
                Ok(ProbeTask { id, request, began_with, probe: self.clone() })
            }
        }
    }
}

#[async_trait]
impl Task for ProbeTask {
    type Doc = Steps;

    async fn run(&self, cx: RunContext<Steps>) -> Result<(), BoxError> {
        let (id, journal) = (&self.id, &self.probe.journal);
        journal.write(format!("{id} runs"));
        let act = self.probe.acts.lock().unwrap().get(id).cloned();
        let result = match act {
            Some(act) => act(cx).await,
            None => hold(cx).await,
        };
        journal.write(format!("{id} ends"));
        result
    }

    fn same_request(&self, doc: &Steps) -> bool {
        self.request == doc.request
    }

    fn report(&self) -> serde_json::Value {
        assert_ne!(self.request, "to panic when asked");
        serde_json::json!({ "began_with": self.began_with })
    }
}

/// Signals that a test sets by name, and never resets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signals {
    given: Arc<Mutex<BTreeSet<String>>>,
    change: Change,
}

impl Signals {
    pub(crate) fn give(&self, signal: &str) {
        self.given.lock().unwrap().insert(signal.into());
        self.change.happened();
    }

    pub(crate) async fn wait(&self, signal: &str) {
        self.change.until(|| self.given.lock().unwrap().contains(signal)).await;
    }
}
