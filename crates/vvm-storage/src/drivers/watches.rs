//! [`Watches`]: streams of changes, one for each topic that a handle waits for. No task reads them.

use crate::{key::Partition, sysvvm::SysVvmHints};
use async_trait::async_trait;
use std::{
    collections::HashMap,
    future::pending,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use vvm_clock::{Clock as _, Instant, SystemClock};

/// How long to wait, after a failure or the end of a stream, before watching again. Looks go on meanwhile.
const WATCHING_AGAIN: Duration = Duration::from_secs(1);

/// After a denial. It may pass: a server that has just started denies what it allows later.
const DENIED_AGAIN: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotWatched {
    Failed,
    Denied,
    /// The handle is closed, or the topic has no changes.
    Never,
}

pub(super) trait Watcher: Send + Sync {
    type Stream: Send;

    fn watches(&self) -> &Watches<Self::Stream>;

    fn clock(&self) -> &SystemClock;

    fn watch(&self, topic: &Partition) -> impl Future<Output = Result<Self::Stream, NotWatched>> + Send;

    /// Waits for the next change. Returns whether it is a hint about `topic`, `None` if the stream has ended.
    fn next(&self, stream: &mut Self::Stream, topic: &Partition)
    -> impl Future<Output = Option<bool>> + Send;
}

#[async_trait]
impl<W: Watcher> SysVvmHints for W {
    /// Does nothing: the server informs the other processes by itself.
    async fn announce(&self, _topic: &Partition) {}

    async fn hinted(&self, topic: &Partition) {
        self.watches().hinted(self, topic).await;
    }

    fn listens(&self, topic: &Partition) -> bool {
        self.watches().listens(topic)
    }
}

#[derive(Debug)]
pub(super) struct Watches<T>(Mutex<HashMap<Partition, Arc<TopicWatch<T>>>>);

#[derive(Debug)]
struct TopicWatch<T> {
    /// Held by the one call that waits. A call that is dropped leaves the stream for the next one.
    state: tokio::sync::Mutex<WatchState<T>>,
    is_live: AtomicBool,
}

#[derive(Debug)]
struct WatchState<T> {
    stream: Option<T>,
    /// When watching may begin again. An instant, so that calls that are dropped don't put it off.
    again_at: Option<Instant>,
}

impl<T> Watches<T> {
    /// Waits for a hint. The start of a stream is one, and so is its end. May be dropped and called again at will.
    async fn hinted(&self, watcher: &impl Watcher<Stream = T>, topic: &Partition) {
        let watch = self.of(topic);
        let mut state = watch.state.lock().await;
        loop {
            let Some(stream) = &mut state.stream else {
                if let Some(again_at) = state.again_at {
                    watcher.clock().sleep_until(again_at).await;
                }
                match watcher.watch(topic).await {
                    Ok(stream) => {
                        state.stream = Some(stream);
                        watch.is_live.store(true, Ordering::Relaxed);
                        // A hint: the stream does not show what changed before it began, and a look does.
                        return;
                    }
                    Err(NotWatched::Never) => return pending().await,
                    Err(failure) => {
                        let again = if failure == NotWatched::Denied { DENIED_AGAIN } else { WATCHING_AGAIN };
                        state.again_at = Some(watcher.clock().now().after(again));
                        continue;
                    }
                }
            };
            match watcher.next(stream, topic).await {
                Some(true) => return,
                Some(false) => {}
                None => {
                    state.stream = None;
                    watch.is_live.store(false, Ordering::Relaxed);
                    state.again_at = Some(watcher.clock().now().after(WATCHING_AGAIN));
                    return;
                }
            }
        }
    }

    fn listens(&self, topic: &Partition) -> bool {
        self.of(topic).is_live.load(Ordering::Relaxed)
    }

    /// Ends the streams for which no call waits. A call that waits keeps its stream until it is dropped.
    pub(super) fn close(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn of(&self, topic: &Partition) -> Arc<TopicWatch<T>> {
        let mut watches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(watches.entry(topic.clone()).or_default())
    }
}

impl<T> Default for Watches<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Default for TopicWatch<T> {
    fn default() -> Self {
        let state = WatchState { stream: None, again_at: None };
        Self { state: tokio::sync::Mutex::new(state), is_live: AtomicBool::new(false) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use std::sync::atomic::AtomicUsize;

    struct Denied {
        watches: Watches<()>,
        clock: SystemClock,
        asked: AtomicUsize,
    }

    impl Watcher for Denied {
        type Stream = ();

        fn watches(&self) -> &Watches<()> {
            &self.watches
        }

        fn clock(&self) -> &SystemClock {
            &self.clock
        }

        async fn watch(&self, _topic: &Partition) -> Result<(), NotWatched> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            Err(NotWatched::Denied)
        }

        async fn next(&self, (): &mut (), _topic: &Partition) -> Option<bool> {
            None
        }
    }

    #[test]
    fn denied_watch_is_begun_again_a_minute_later_whichever_call_waits() {
        let clock = SystemClock::start().unwrap();
        let began_at = clock.now();
        let server = Denied { watches: Watches::default(), clock, asked: AtomicUsize::new(0) };
        let topic = Partition::from_bytes(*b"\x02payroll");
        let asked_after_a_call = || {
            assert!(server.hinted(&topic).now_or_never().is_none());
            server.asked.load(Ordering::Relaxed)
        };
        assert_eq!((asked_after_a_call(), asked_after_a_call()), (1, 1));
        let watch = server.watches.of(&topic);
        let again_at = watch.state.try_lock().unwrap().again_at.replace(began_at).unwrap();
        assert!(again_at.since(began_at) >= DENIED_AGAIN);
        assert_eq!(asked_after_a_call(), 2);
    }
}
