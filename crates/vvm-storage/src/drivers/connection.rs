//! What the connections of drivers share: [`RequestLimiter`] for requests, the [`HostRotation`] host to try, and a [`Stream`].

use super::errors::HandleClosed;
use crate::opening::OpenError;
#[cfg(any(feature = "etcd", feature = "kubernetes", feature = "mysql", feature = "postgres"))]
use futures_util::{StreamExt as _, stream::FuturesUnordered};
#[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres"))]
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
#[cfg(any(feature = "etcd", feature = "kubernetes", feature = "mysql", feature = "postgres"))]
use std::{io, net::SocketAddr};
#[cfg(any(feature = "etcd", feature = "kubernetes", feature = "mysql"))]
use tokio::io::{AsyncRead, AsyncWrite};
#[cfg(any(feature = "etcd", feature = "kubernetes", feature = "mysql", feature = "postgres"))]
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::{Semaphore, SemaphorePermit};
use vvm_clock::{Clock as _, DisplayDuration, SystemClock};

pub(super) struct RequestLimiter {
    pub(super) clock: SystemClock,
    request_timeout: Duration,
    requests: Semaphore,
}

impl RequestLimiter {
    pub(super) fn new(request_timeout: Duration, most: usize) -> Result<Self, OpenError> {
        let clock = SystemClock::start();
        let clock =
            clock.map_err(|cause| OpenError::refused(format!("the client can't be set up: {cause}")))?;
        let requests = Semaphore::new(most);
        Ok(Self { clock, request_timeout, requests })
    }

    /// Waits until a request may begin, and fails once the handle is closed.
    pub(super) async fn acquire(&self) -> Result<SemaphorePermit<'_>, HandleClosed> {
        self.requests.acquire().await.map_err(|_| HandleClosed)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.requests.is_closed()
    }

    pub(super) fn close(&self) {
        self.requests.close();
    }

    pub(super) async fn in_time<T>(&self, request: impl Future<Output = T>) -> Result<T, String> {
        self.within(self.request_timeout, request).await
    }

    /// Dropping the request is its time-out: its connection goes with it, and the outcome is unknown (I7).
    pub(super) async fn within<T>(
        &self,
        limit: Duration,
        request: impl Future<Output = T>,
    ) -> Result<T, String> {
        tokio::select! {
            biased;
            answer = request => Ok(answer),
            () = self.clock.sleep(limit) => Err(format!("no answer within {}", DisplayDuration(limit))),
        }
    }
}

/// The host to try first: the last one that worked, or the one after one that did not answer.
#[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres"))]
#[derive(Default)]
pub(super) struct HostRotation(AtomicUsize);

#[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres"))]
impl HostRotation {
    fn attempts(&self, hosts: usize) -> impl Iterator<Item = usize> {
        let first = self.0.load(Ordering::Relaxed);
        (first..first + hosts).map(move |at| {
            // If this attempt is dropped because its host is silent, the next one begins at another host.
            self.0.store((at + 1) % hosts, Ordering::Relaxed);
            at % hosts
        })
    }

    /// Connects to one host after the other until one works. Fails with the refusal of the last one.
    pub(super) async fn connected<C, F: Future<Output = Result<C, OpenError>>>(
        &self,
        hosts: usize,
        connect: impl Fn(usize) -> F,
    ) -> Result<C, OpenError> {
        let mut refusal = None;
        for at in self.attempts(hosts) {
            match connect(at).await {
                Ok(connected) => {
                    self.0.store(at, Ordering::Relaxed);
                    return Ok(connected);
                }
                Err(error) => {
                    tracing::debug!(%error, "host left out");
                    refusal = Some(error);
                }
            }
        }
        // A URL names a host at least.
        Err(refusal.unwrap_or_else(|| OpenError::refused("no host to connect to")))
    }

    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(super) fn advance(&self, hosts: usize) {
        self.0.store((self.0.load(Ordering::Relaxed) + 1) % hosts, Ordering::Relaxed);
    }

    /// This one does not answer, and another one is to be tried, unless another one works by now.
    #[cfg(feature = "etcd")]
    pub(super) fn is_silent(&self, at: usize, hosts: usize) {
        let after = (at + 1) % hosts;
        let _is_another_by_now = self.0.compare_exchange(at, after, Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(any(feature = "etcd", feature = "kubernetes", feature = "mysql"))]
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

#[cfg(any(feature = "etcd", feature = "kubernetes", feature = "mysql"))]
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// After this time a connection to a peer that has vanished is an error, also for a watch, which waits without a limit.
#[cfg(any(feature = "etcd", feature = "kubernetes", feature = "mysql", feature = "postgres"))]
const VANISHED: Duration = Duration::from_secs(30);

#[cfg(any(feature = "etcd", feature = "kubernetes", feature = "mysql", feature = "postgres"))]
pub(super) async fn tcp(host: &str, port: u16, clock: &SystemClock) -> io::Result<TcpStream> {
    use rustix::net::sockopt;
    let stream = connected(lookup_host((host, port)).await?, clock).await?;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(&stream, true)?;
    sockopt::set_tcp_keepidle(&stream, VANISHED / 2)?;
    sockopt::set_tcp_keepintvl(&stream, VANISHED / 6)?;
    sockopt::set_tcp_keepcnt(&stream, 3)?;
    // Without it, bytes that are not acknowledged put probes off for a quarter of an hour.
    sockopt::set_tcp_user_timeout(&stream, u32::try_from(VANISHED.as_millis()).unwrap_or(u32::MAX))?;
    Ok(stream)
}

/// How long an address has to itself: one in a lost zone, or of IPv6 without a way, never answers.
#[cfg(any(feature = "etcd", feature = "kubernetes", feature = "mysql", feature = "postgres"))]
const HEAD_START: Duration = Duration::from_millis(100);

/// Connects to the address that answers first. Each begins once the one before has failed or has had its head start.
#[cfg(any(feature = "etcd", feature = "kubernetes", feature = "mysql", feature = "postgres"))]
async fn connected(
    addresses: impl Iterator<Item = SocketAddr>,
    clock: &SystemClock,
) -> io::Result<TcpStream> {
    let mut addresses = addresses.peekable();
    let mut attempts = FuturesUnordered::new();
    let mut refusal = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    loop {
        attempts.extend(addresses.next().map(TcpStream::connect));
        tokio::select! {
            biased;
            Some(attempt) = attempts.next() => match attempt {
                Ok(stream) => return Ok(stream),
                Err(error) => refusal = error,
            },
            () = clock.sleep(HEAD_START), if addresses.peek().is_some() => {}
            else => return Err(refusal),
        }
    }
}

#[cfg(all(test, any(feature = "etcd", feature = "kubernetes", feature = "mysql", feature = "postgres")))]
mod tests {
    use super::*;
    use rustix::net::sockopt;
    use tokio::net::TcpSocket;

    #[tokio::test]
    async fn peer_that_vanishes_is_noticed_whether_or_not_bytes_are_under_way() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let clock = SystemClock::start().unwrap();
        let stream = tcp("127.0.0.1", listener.local_addr().unwrap().port(), &clock).await.unwrap();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        let probes = sockopt::tcp_keepintvl(&stream).unwrap() * sockopt::tcp_keepcnt(&stream).unwrap();
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap() + probes, VANISHED);
        assert_eq!(u128::from(sockopt::tcp_user_timeout(&stream).unwrap()), VANISHED.as_millis());
    }

    #[tokio::test]
    async fn address_that_is_silent_or_refuses_leaves_time_for_the_next_one() {
        let loopback = "127.0.0.1:0".parse().unwrap();
        let silent = TcpSocket::new_v4().unwrap();
        silent.bind(loopback).unwrap();
        let silent = silent.listen(0).unwrap();
        let silent_at = silent.local_addr().unwrap();
        let _fills_its_queue = std::net::TcpStream::connect(silent_at).unwrap();
        let refusing = std::net::TcpListener::bind(loopback).unwrap();
        let refusing_at = refusing.local_addr().unwrap();
        drop(refusing);
        let open = std::net::TcpListener::bind(loopback).unwrap();
        let open_at = open.local_addr().unwrap();
        let clock = SystemClock::start().unwrap();
        for first in [silent_at, refusing_at] {
            tokio::select! {
                stream = connected([first, open_at].into_iter(), &clock) => {
                    assert_eq!(stream.unwrap().peer_addr().unwrap(), open_at);
                }
                () = clock.sleep(Duration::from_secs(60)) => panic!("{first} takes all the time"),
            }
        }
        let refused = connected([refusing_at].into_iter(), &clock).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(connected([].into_iter(), &clock).await.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
