//! [`Interruption`]: SIGINT and SIGTERM. They are checked between steps, so that servers, folders and
//! children are removed in order.

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
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
        }
        Ok(Self(interrupted))
    }

    /// Waits until `holds` returns `true`, at most `limit`. Returns whether it did.
    ///
    /// # Errors
    /// If interrupted, and errors of `holds`.
    pub(crate) fn wait_until(
        &self,
        limit: Duration,
        mut holds: impl FnMut() -> Result<bool, String>,
    ) -> Result<bool, String> {
        owned::wait_until(limit, || {
            if self.0.load(Ordering::Relaxed) {
                return Err("interrupted".to_owned());
            }
            holds()
        })
    }

    /// Waits for `span`, while `holds` succeeds.
    ///
    /// # Errors
    /// If interrupted, and errors of `holds`.
    pub(crate) fn pass(
        &self,
        span: Duration,
        mut holds: impl FnMut() -> Result<(), String>,
    ) -> Result<(), String> {
        self.wait_until(span, || holds().map(|()| false)).map(drop)
    }
}
