//! A person's interruption: heard between two looks, so that servers, their folders and children are taken
//! down in order.

use servers::owned;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Listens for `SIGINT` and `SIGTERM`.
#[derive(Clone, Debug)]
pub(crate) struct Interruption(Arc<AtomicBool>);

impl Interruption {
    pub(crate) fn listen() -> io::Result<Self> {
        let heard = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&heard))?;
        }
        Ok(Self(heard))
    }

    /// Waits until `holds`, at most `patience`; whether it did.
    ///
    /// # Errors
    /// When interrupted, and whatever `holds` says.
    pub(crate) fn wait_until(
        &self,
        patience: Duration,
        mut holds: impl FnMut() -> Result<bool, String>,
    ) -> Result<bool, String> {
        owned::wait_until(patience, || {
            if self.0.load(Ordering::Relaxed) {
                return Err("interrupted".to_owned());
            }
            holds()
        })
    }

    /// Lets time pass, as long as `holds`.
    ///
    /// # Errors
    /// When interrupted, and whatever `holds` says.
    pub(crate) fn pass(
        &self,
        span: Duration,
        mut holds: impl FnMut() -> Result<(), String>,
    ) -> Result<(), String> {
        self.wait_until(span, || holds().map(|()| false)).map(drop)
    }
}
