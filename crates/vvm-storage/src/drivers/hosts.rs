//! [`Host`]: the hosts of a URL, `host1,host2:port,[address]:port`. `Next`: which of them is tried first.

use std::fmt;
#[cfg(any(feature = "etcd", feature = "postgres"))]
use std::sync::atomic::{AtomicUsize, Ordering};

/// A host and its port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Host {
    /// A name or an address without brackets.
    pub(super) name: String,
    pub(super) port: u16,
}

impl fmt::Display for Host {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, port } = self;
        if name.contains(':') { write!(out, "[{name}]:{port}") } else { write!(out, "{name}:{port}") }
    }
}

#[cfg(any(feature = "etcd", feature = "postgres"))]
impl Host {
    /// Whether it is this machine.
    pub(super) fn is_loopback(&self) -> bool {
        let address = self.name.parse::<std::net::IpAddr>();
        self.name == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }
}

/// Parses hosts with commas between them; `default` is the port of those without one.
pub(super) fn parse(text: &str, default: u16) -> Result<Vec<Host>, String> {
    text.split(',').map(|text| host(text, default)).collect()
}

fn host(text: &str, default: u16) -> Result<Host, String> {
    let (name, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, "")) => (name, None),
        Some((name, port)) => (name, Some(port.strip_prefix(':').unwrap_or_default())),
        None => text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port))),
    };
    if name.is_empty() {
        return Err(format!("`{text}` is no host: write host, host:{default} or [address]:{default}"));
    }
    let port = port.map_or(Some(default), |port| port.parse().ok().filter(|port| *port > 0));
    let port =
        port.ok_or_else(|| format!("`{text}` has no port: write host:{default} or [address]:{default}"))?;
    Ok(Host { name: name.to_owned(), port })
}

/// The host to try first: the last one that worked, or the one after one that did not answer.
#[cfg(any(feature = "etcd", feature = "postgres"))]
#[derive(Default)]
pub(super) struct Next(AtomicUsize);

#[cfg(any(feature = "etcd", feature = "postgres"))]
impl Next {
    /// Returns the numbers of the hosts in the order in which they are to be tried.
    pub(super) fn attempts(&self, hosts: usize) -> impl Iterator<Item = usize> {
        let first = self.0.load(Ordering::Relaxed);
        (first..first + hosts).map(move |at| {
            // If this attempt is dropped because its host is silent, the next one begins at another host.
            self.0.store((at + 1) % hosts, Ordering::Relaxed);
            at % hosts
        })
    }

    /// This one works.
    pub(super) fn works(&self, at: usize) {
        self.0.store(at, Ordering::Relaxed);
    }

    /// This one does not answer, and another one is to be tried, unless another one works by now.
    #[cfg(feature = "etcd")]
    pub(super) fn is_silent(&self, at: usize, hosts: usize) {
        let after = (at + 1) % hosts;
        let _is_another_by_now = self.0.compare_exchange(at, after, Ordering::Relaxed, Ordering::Relaxed);
    }
}
