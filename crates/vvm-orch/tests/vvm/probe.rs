//! A service with planned behaviour, and a journal of the services' steps.

use crate::rig::Change;
use async_trait::async_trait;
use ielections::Key;
use std::{
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};
use testing_time::MockClock;
use tokio_util::sync::CancellationToken;
use vvm_clock::Clock;
use vvm_orch::{BoxError, Service, ServiceContext, Work};

/// Events in order. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journal {
    lines: Arc<Mutex<Vec<String>>>,
    change: Change,
}

impl Journal {
    pub(crate) fn write(&self, line: impl Into<String>) {
        self.lines.lock().unwrap().push(line.into());
        self.change.happened();
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// Waits until the line was written.
    pub(crate) async fn shows(&self, line: &str) {
        self.change.until(|| self.lines().iter().any(|written| written == line)).await;
    }
}

/// A service with planned behaviour.
pub(crate) struct Probe {
    name: String,
    journal: Journal,
    start: Act,
    work: Act,
}

/// The behaviour of a probe's start or work.
pub(crate) enum Act {
    /// Ends at once.
    End(Result<(), &'static str>),
    /// Ends on cancellation.
    EndOnStop(Result<(), &'static str>),
    /// Ends when the test cancels the token, and ignores `stop`.
    EndAt(CancellationToken, Result<(), &'static str>),
    /// Ends after the duration, and ignores `stop`.
    EndAfter(MockClock, Duration),
    /// Ends this long after cancellation.
    EndSlowly(MockClock, Duration),
    /// Panics when the test cancels the token.
    PanicAt(CancellationToken),
    /// Panics on cancellation.
    PanicOnStop,
    /// Never ends.
    Refuse,
}

impl Probe {
    /// Returns a probe that starts at once and works until cancellation.
    pub(crate) fn new(name: &str, journal: &Journal) -> Self {
        Self {
            name: name.into(),
            journal: journal.clone(),
            start: Act::End(Ok(())),
            work: Act::EndOnStop(Ok(())),
        }
    }

    /// Returns three probes; the second one starts like this.
    pub(crate) fn three_with<K: Key>(start: Act, journal: &Journal) -> Vec<Box<dyn Service<K>>> {
        let [first, second, third] = ["a", "b", "c"].map(|name| Self::new(name, journal));
        vec![first.boxed(), second.start(start).boxed(), third.boxed()]
    }

    pub(crate) fn start(self, start: Act) -> Self {
        Self { start, ..self }
    }

    pub(crate) fn work(self, work: Act) -> Self {
        Self { work, ..self }
    }

    pub(crate) fn boxed<K: Key>(self) -> Box<dyn Service<K>> {
        Box::new(self)
    }
}

impl Act {
    async fn play(self, name: &str, journal: &Journal, stop: CancellationToken) -> Result<(), BoxError> {
        let told = async {
            stop.cancelled().await;
            journal.write(format!("{name} is cancelled"));
        };
        match self {
            Self::End(result) => Ok(result?),
            Self::EndOnStop(result) => {
                told.await;
                Ok(result?)
            }
            Self::EndAt(go, result) => {
                go.cancelled().await;
                Ok(result?)
            }
            Self::EndAfter(clock, span) => {
                clock.sleep(span).await;
                Ok(())
            }
            Self::EndSlowly(clock, span) => {
                told.await;
                clock.sleep(span).await;
                Ok(())
            }
            Self::PanicAt(go) => {
                go.cancelled().await;
                panic!("{name} has had enough")
            }
            Self::PanicOnStop => {
                told.await;
                panic!("{name} does not like to stop")
            }
            Self::Refuse => {
                told.await;
                pending().await
            }
        }
    }
}

#[async_trait]
impl<K: Key> Service<K> for Probe {
    fn name(&self) -> &str {
        &self.name
    }

    async fn start(self: Box<Self>, cx: ServiceContext<K>) -> Result<Work, BoxError> {
        let Self { name, journal, start, work } = *self;
        journal.write(format!("{name} starts"));
        start.play(&name, &journal, cx.stop.clone()).await?;
        journal.write(format!("{name} is ready"));
        Ok(Box::pin(async move {
            let result = work.play(&name, &journal, cx.stop).await;
            journal.write(format!("{name} ends"));
            result
        }))
    }
}
