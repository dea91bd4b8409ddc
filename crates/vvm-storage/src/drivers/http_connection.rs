//! Whether a failed request over HTTP was sent, for drivers whose client library uses hyper.

use std::{error::Error, iter::successors};

/// Whether the connection for a request was never made. Connecting includes the look-up of the host name and
/// the TLS handshake. The system's error "connection refused" proves nothing: an established connection may
/// end with it, too.
pub(super) fn never_connected(error: &(dyn Error + 'static)) -> bool {
    chain(error)
        .filter_map(|error| error.downcast_ref::<hyper_util::client::legacy::Error>())
        .any(hyper_util::client::legacy::Error::is_connect)
}

/// Iterates over an error and its causes.
pub(super) fn chain<'error>(
    error: &'error (dyn Error + 'static),
) -> impl Iterator<Item = &'error (dyn Error + 'static)> {
    successors(Some(error), |&error| error.source())
}
