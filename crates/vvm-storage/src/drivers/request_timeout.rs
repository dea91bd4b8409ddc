//! The option `request_timeout` of the drivers for servers, and [`Room`] for requests.

use std::time::Duration;

/// The default time limit of a request. It equals the time of an attempt at the default TTL of 20 s, and
/// exceeds the time that nodes of Cassandra wait for each other (1.8 s for a contended transaction).
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// With a shorter limit, a normal network would never answer in time.
const SHORTEST: Duration = Duration::from_millis(100);

/// With a longer limit, a program would seem to hang.
const LONGEST: Duration = Duration::from_secs(60);

/// Parses the value of `request_timeout`.
pub(crate) fn request_timeout(value: &str) -> Result<Duration, String> {
    duration(value).filter(|duration| (SHORTEST..=LONGEST).contains(duration)).ok_or_else(|| {
        format!("`{value}` is not a valid request timeout: write request_timeout=5s, from 100ms to 60s")
    })
}

/// Parses whole seconds or milliseconds.
pub(crate) fn duration(value: &str) -> Option<Duration> {
    let number = |text: &str| text.parse::<u32>().ok().map(u64::from);
    match value.strip_suffix("ms") {
        Some(millis) => number(millis).map(Duration::from_millis),
        None => value.strip_suffix('s').and_then(number).map(Duration::from_secs),
    }
}

/// The requests of one handle: how long each may take, and how many may be under way at once.
#[cfg(any(feature = "etcd", feature = "kubernetes", feature = "postgres"))]
pub(super) struct Room {
    pub(super) clock: vvm_clock::SystemClock,
    request_timeout: Duration,
    /// Closed with the handle.
    requests: tokio::sync::Semaphore,
}

#[cfg(any(feature = "etcd", feature = "kubernetes", feature = "postgres"))]
impl Room {
    pub(super) fn new(request_timeout: Duration, most: usize) -> std::io::Result<Self> {
        let (clock, requests) = (vvm_clock::SystemClock::start()?, tokio::sync::Semaphore::new(most));
        Ok(Self { clock, request_timeout, requests })
    }

    /// Waits until a request may begin, and fails once the handle is closed.
    pub(super) async fn enter(&self) -> Result<tokio::sync::SemaphorePermit<'_>, super::closed::Closed> {
        self.requests.acquire().await.map_err(|_| super::closed::Closed)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.requests.is_closed()
    }

    pub(super) fn close(&self) {
        self.requests.close();
    }

    /// [`within`](Self::within) the time that a request may take.
    pub(super) async fn in_time<T>(&self, request: impl Future<Output = T>) -> Result<T, String> {
        self.within(self.request_timeout, request).await
    }

    /// Drops the request after `limit`, and fails with what to say then.
    ///
    /// Dropping a request is its time-out: its connection goes with it, and the outcome is unknown (I7).
    pub(super) async fn within<T>(
        &self,
        limit: Duration,
        request: impl Future<Output = T>,
    ) -> Result<T, String> {
        use vvm_clock::Clock as _;
        tokio::select! {
            biased;
            answer = request => Ok(answer),
            () = self.clock.sleep(limit) => Err(format!("no answer within {}", vvm_clock::Span(limit))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_timeout_needs_a_unit_and_has_bounds() {
        for (text, millis) in [("5s", 5_000), ("100ms", 100), ("60s", 60_000)] {
            assert_eq!(request_timeout(text), Ok(Duration::from_millis(millis)));
        }
        for text in ["", "5", "s", "ms", "0s", "99ms", "61s", "-1s", "1.5s", "1m", "99999999999s"] {
            assert!(request_timeout(text).unwrap_err().contains("request_timeout=5s"), "{text}");
        }
    }
}
