//! [`Health`]: runs the checks of `--check`, and counts failures.

use super::args::{Check, Page, WorkArgs};
use std::{fmt, io, net::SocketAddr, sync::Arc, time::Duration};
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
}
