//! When the connections of a session have ended (I9).
//!
//! The client library's tasks end by themselves once their session is dropped, one waking the next, and it
//! tells nobody when the last one has. But each of them, and each connection's, holds its configuration until
//! its end, and what we put into it: when that is dropped, all have ended, and their sockets with them.

use ::scylla::{
    errors::TranslationError,
    policies::address_translator::{AddressTranslator, UntranslatedPeer},
};
use async_trait::async_trait;
use futures_util::future::{Either, select};
use std::{net::SocketAddr, pin::pin, time::Duration};
use tokio::sync::watch;
use vvm_clock::{Clock, SystemClock};

/// The last tasks end within milliseconds of their session, and their session with the last request that
/// runs: this is for a request that nobody polls, and that holds it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Part of every task's configuration. An address translator that translates nothing, since that is one of
/// the few parts that may be of our own making.
#[derive(Debug)]
pub(super) struct Watch {
    /// Closed when dropped.
    _alive: watch::Sender<()>,
}

/// Tells when all tasks have ended.
#[derive(Clone, Debug)]
pub(in super::super) struct Ending(watch::Receiver<()>);

impl Watch {
    pub(super) fn new() -> (Self, Ending) {
        let (alive, ending) = watch::channel(());
        (Self { _alive: alive }, Ending(ending))
    }
}

impl Ending {
    /// Waits until all tasks have ended, for a few seconds at most (I10).
    pub(in super::super) async fn wait(mut self) {
        let ended = pin!(async move { while self.0.changed().await.is_ok() {} });
        // Without a clock, the wait is as long as the longest request.
        let Ok(clock) = SystemClock::start() else { return ended.await };
        match select(ended, clock.sleep(PATIENCE)).await {
            Either::Left(((), _)) => {}
            Either::Right(((), _)) => {
                tracing::warn!(
                    "connections to the database have not ended: a request that nobody drives holds them"
                );
            }
        }
    }
}

#[async_trait]
impl AddressTranslator for Watch {
    #[allow(elided_lifetimes_in_paths, reason = "written out, it would be another method than the trait's")]
    async fn translate_address(&self, peer: &UntranslatedPeer) -> Result<SocketAddr, TranslationError> {
        Ok(peer.untranslated_address())
    }
}
