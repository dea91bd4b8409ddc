//! [`Health`]: runs the checks of `--check`, and counts failures.

use super::args::WorkArgs;
use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use vvm_clock::{Clock, Span};
use vvm_containment::{Ended, Helper, HelperError, Helpers};
use vvm_host::status::HostStatus;

/// The checks of a command.
#[derive(Debug)]
pub(super) struct Health {
    check: Check,
    interval: Duration,
    timeout: Duration,
    failures: u32,
    clock: Arc<dyn Clock>,
}

/// A check has failed too often in a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Unhealthy {
    check: String,
    failures: u32,
    last: Failure,
}

/// How one check failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
enum Failure {
    #[error("no answer within {}", Span(*.0))]
    TimedOut(Duration),
    #[error("it {0}")]
    Ended(Ended),
    #[error("it could not be started: {0}")]
    System(io::ErrorKind),
    #[error(transparent)]
    Page(#[from] PageFailure),
}

/// For people.
impl fmt::Display for Unhealthy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { check, failures, last } = self;
        let times = if *failures == 1 { "once".into() } else { format!("{failures} times in a row") };
        write!(out, "the check `{check}` failed {times}: {last}")
    }
}

impl Health {
    /// Returns the checks that the options ask for, if any.
    pub(super) fn of(work: &WorkArgs, clock: &Arc<dyn Clock>) -> Option<Self> {
        let check = work.check.clone()?;
        let (interval, timeout, failures) =
            (work.check_interval, work.check_timeout, work.check_failures.get());
        Some(Self { check, interval, timeout, failures, clock: Arc::clone(clock) })
    }

    /// Waits until too many checks in a row have failed. The first check begins an interval after the call,
    /// because a command needs time before it can answer.
    ///
    /// # Cancel safety
    /// May be dropped at any time; the next call counts from zero.
    pub(super) async fn fails(&self, helpers: &Helpers, status: &HostStatus) -> Unhealthy {
        let mut in_a_row = 0;
        loop {
            self.clock.sleep(self.interval).await;
            let looked = self.look(helpers).await;
            match looked {
                Ok(()) => in_a_row = 0,
                Err(last) => {
                    status.check_failed();
                    in_a_row += 1;
                    if in_a_row >= self.failures {
                        return Unhealthy { check: self.check.to_string(), failures: self.failures, last };
                    }
                }
            }
        }
    }

    async fn look(&self, helpers: &Helpers) -> Result<(), Failure> {
        let limit = self.clock.now().after(self.timeout);
        match &self.check {
            Check::Command(_) => match helpers.run(Helper::Check, &self.clock, limit).await {
                Ok(Ended::Exited(0)) => Ok(()),
                Ok(ended) => Err(Failure::Ended(ended)),
                Err(HelperError::TooLong) => Err(Failure::TimedOut(self.timeout)),
                Err(HelperError::System(cause)) => Err(Failure::System(cause)),
            },
            Check::Http(page) => tokio::select! {
                biased;
                looked = get(page) => Ok(looked?),
                () = self.clock.sleep_until(limit) => Err(Failure::TimedOut(self.timeout)),
            },
        }
    }
}

/// Why a page is not healthy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum PageFailure {
    #[error("{address}: {cause}")]
    Unreachable { address: SocketAddr, cause: io::ErrorKind },
    #[error("it answers {0}, not 2xx")]
    Refused(u16),
    #[error("its answer is not HTTP")]
    NotHttp,
}

/// The most bytes that are read: more than a status line has, so that a line without end is no wait.
const FIRST_LINE: u64 = 4096;

/// Gets the page from the first of its addresses that answers.
///
/// # Errors
/// If there is no answer, or one that is not 2xx.
///
/// # Cancel safety
/// May be dropped at any time.
pub(super) async fn get(page: &Page) -> Result<(), PageFailure> {
    let mut last = PageFailure::NotHttp;
    for address in &page.addresses {
        let answer = ask(*address, page).await;
        match answer {
            Ok(answer) => return judge(&answer),
            Err(cause) => last = PageFailure::Unreachable { address: *address, cause: cause.kind() },
        }
    }
    Err(last)
}

async fn ask(address: SocketAddr, page: &Page) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await?;
    let Page { authority, path, .. } = page;
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: vvm\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    let mut from = stream.take(FIRST_LINE);
    while !answer.contains(&b'\n') && from.read_buf(&mut answer).await? > 0 {}
    Ok(answer)
}

fn judge(answer: &[u8]) -> Result<(), PageFailure> {
    let line = answer.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = std::str::from_utf8(line).map_err(|_| PageFailure::NotHttp)?;
    let mut words = line.split(' ');
    let version = words.next().filter(|version| version.starts_with("HTTP/1."));
    let status =
        version.and_then(|_| words.next()?.trim_end().parse::<u16>().ok()).ok_or(PageFailure::NotHttp)?;
    if (200..300).contains(&status) { Ok(()) } else { Err(PageFailure::Refused(status)) }
}

/// How to check the health of the command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Check {
    /// This line for `sh -c` must exit with 0.
    Command(String),
    /// This page must answer 2xx.
    Http(Page),
}

/// A page of a server on this machine or at an IP address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Page {
    /// To be tried in this order.
    pub(crate) addresses: Vec<SocketAddr>,
    /// As given, for the `Host` header.
    pub(crate) authority: String,
    /// Begins with a slash.
    pub(crate) path: String,
}

/// A text that is no check.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NotACheck {
    #[error("there is no TLS here: write \"curl -fsS {0}\", which sh -c runs")]
    Tls(String),
    #[error("the host of an http URL must be localhost or an IP address; for names write \"curl -fsS {0}\"")]
    Named(String),
    #[error("a URL has no spaces and no control characters")]
    Unreadable,
    #[error("write a command or an http URL")]
    Empty,
}

const HTTP: u16 = 80;

impl FromStr for Check {
    type Err = NotACheck;

    fn from_str(text: &str) -> Result<Self, NotACheck> {
        if text.trim().is_empty() {
            return Err(NotACheck::Empty);
        }
        if text.starts_with("https://") {
            return Err(NotACheck::Tls(text.into()));
        }
        let Some(rest) = text.strip_prefix("http://") else { return Ok(Self::Command(text.into())) };
        if rest.contains(|one: char| one.is_whitespace() || one.is_control()) {
            return Err(NotACheck::Unreadable);
        }
        // A fragment is for browsers.
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let addresses = addresses(authority).ok_or_else(|| NotACheck::Named(text.into()))?;
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self::Http(Page { addresses, authority: authority.into(), path }))
    }
}

fn addresses(authority: &str) -> Option<Vec<SocketAddr>> {
    if let Ok(address) = authority.parse() {
        return Some(vec![address]);
    }
    let bare = authority.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(authority);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Some(vec![SocketAddr::new(address, HTTP)]);
    }
    let (host, port) = authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)));
    let port = port.map_or(Some(HTTP), |port| port.parse().ok())?;
    let here = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
    (host == "localhost").then(|| here.map(|address| SocketAddr::new(address, port)).into())
}

impl fmt::Display for Check {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(line) => out.write_str(line),
            Self::Http(Page { authority, path, .. }) => write!(out, "http://{authority}{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_2xx_is_healthy() {
        let table: [(&[u8], _); 7] = [
            (b"HTTP/1.1 200 OK\r\nContent", Ok(())),
            (b"HTTP/1.0 204\r\n", Ok(())),
            (b"HTTP/1.1 301 Moved\r\n", Err(PageFailure::Refused(301))),
            (b"HTTP/1.1 503 Busy\r\n", Err(PageFailure::Refused(503))),
            (b"SSH-2.0-OpenSSH\r\n", Err(PageFailure::NotHttp)),
            (b"", Err(PageFailure::NotHttp)),
            (b"HTTP/1.1 \xff\r\n", Err(PageFailure::NotHttp)),
        ];
        for (answer, expected) in table {
            assert_eq!(judge(answer), expected, "{}", answer.escape_ascii());
        }
    }

    #[test]
    fn urls_with_localhost_or_an_ip_address_are_parsed() {
        let table = [
            ("http://localhost:8080/ready?deep=1", "127.0.0.1:8080", "/ready?deep=1"),
            ("http://127.0.0.1", "127.0.0.1:80", "/"),
            ("http://[::1]:90#top", "[::1]:90", "/"),
            ("http://[::1]/x", "[::1]:80", "/x"),
            ("http://10.0.0.7:1?x", "10.0.0.7:1", "/?x"),
        ];
        for (text, address, path) in table {
            let Ok(Check::Http(page)) = text.parse() else { panic!("{text}") };
            assert_eq!((page.addresses[0], page.path.as_str()), (address.parse().unwrap(), path), "{text}");
        }
    }

    #[test]
    fn refusals_say_what_to_write() {
        let table = [
            ("https://localhost/", "no TLS here: write \"curl -fsS https://localhost/\""),
            ("http://example.org/", "write \"curl -fsS http://example.org/\""),
            ("http://localhost:port/", "localhost or an IP"),
            ("http://me@localhost/", "localhost or an IP"),
            ("http:///", "localhost or an IP"),
            ("http://localhost/a b", "no spaces"),
            (" ", "write a command"),
        ];
        for (text, way_out) in table {
            let refusal = text.parse::<Check>().unwrap_err().to_string();
            assert!(refusal.contains(way_out), "{text}: {refusal}");
        }
    }
}
