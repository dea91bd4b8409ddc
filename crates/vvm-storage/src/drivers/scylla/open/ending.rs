//! [`Ending`]: waits until the connections of a session have ended (I9).
//!
//! The client library's tasks end by themselves after their session is dropped, and it does not report the
//! end of the last one. But each task keeps the configuration until it ends, and a value of ours in it: when
//! that is dropped, all tasks and their sockets have ended.

use ::scylla::{
    errors::TranslationError,
    policies::address_translator::{AddressTranslator, UntranslatedPeer},
};
use async_trait::async_trait;
use futures_util::future::{Either, select};
use std::{net::SocketAddr, pin::pin, time::Duration};
use tokio::sync::watch;
use vvm_clock::{Clock, SystemClock};

/// The last tasks end within milliseconds of their session. Only a request that is not polled keeps it
/// longer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Part of every task's configuration. It is an address translator that translates nothing, because the
/// library lets its users provide one.
#[derive(Debug)]
pub(super) struct Watch {
    /// Its receivers see that it is dropped.
    _alive: watch::Sender<()>,
}

/// Waits for the end of all tasks.
#[derive(Clone, Debug)]
pub(in super::super) struct Ending(watch::Receiver<()>);

impl Watch {
    pub(super) fn new() -> (Self, Ending) {
        let (alive, ending) = watch::channel(());
        (Self { _alive: alive }, Ending(ending))
    }
}

impl Ending {
    /// Waits until all tasks have ended, for [`TIMEOUT`] at most (I10).
    pub(in super::super) async fn wait(mut self) {
        let ended = pin!(async move { while self.0.changed().await.is_ok() {} });
        // Without a clock the wait lasts as long as the longest request.
        let Ok(clock) = SystemClock::start() else { return ended.await };
        match select(ended, clock.sleep(TIMEOUT)).await {
            Either::Left(((), _)) => {}
            Either::Right(((), _)) => {
                tracing::warn!(
                    "connections to the database have not ended: a request that is not polled keeps them"
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
