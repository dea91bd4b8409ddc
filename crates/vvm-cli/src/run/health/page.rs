//! One plain HTTP GET, of which only the status line counts.

use crate::args::Page;
use std::{io, net::SocketAddr};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// Why a page is not healthy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Failure {
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
pub(super) async fn get(page: &Page) -> Result<(), Failure> {
    let mut last = Failure::NotHttp;
    for address in &page.addresses {
        let answer = ask(*address, page).await;
        match answer {
            Ok(answer) => return judge(&answer),
            Err(cause) => last = Failure::Unreachable { address: *address, cause: cause.kind() },
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

fn judge(answer: &[u8]) -> Result<(), Failure> {
    let line = answer.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = std::str::from_utf8(line).map_err(|_| Failure::NotHttp)?;
    let mut words = line.split(' ');
    let version = words.next().filter(|version| version.starts_with("HTTP/1."));
    let status =
        version.and_then(|_| words.next()?.trim_end().parse::<u16>().ok()).ok_or(Failure::NotHttp)?;
    if (200..300).contains(&status) { Ok(()) } else { Err(Failure::Refused(status)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_2xx_is_healthy() {
        let table: [(&[u8], _); 7] = [
            (b"HTTP/1.1 200 OK\r\nContent", Ok(())),
            (b"HTTP/1.0 204\r\n", Ok(())),
            (b"HTTP/1.1 301 Moved\r\n", Err(Failure::Refused(301))),
            (b"HTTP/1.1 503 Busy\r\n", Err(Failure::Refused(503))),
            (b"SSH-2.0-OpenSSH\r\n", Err(Failure::NotHttp)),
            (b"", Err(Failure::NotHttp)),
            (b"HTTP/1.1 \xff\r\n", Err(Failure::NotHttp)),
        ];
        for (answer, expected) in table {
            assert_eq!(judge(answer), expected, "{}", answer.escape_ascii());
        }
    }
}
