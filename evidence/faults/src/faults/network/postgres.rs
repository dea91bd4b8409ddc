//! PostgreSQL's protocol between a candidate and a server: messages are forwarded, delayed, or answered by
//! the proxy.
//!
//! The driver sends one request at a time and waits until the server is ready again. What a client sent
//! before it closed is forwarded, too.

use super::{ConnectionContext, Link};
use crate::faults::fault::Event;
use std::{collections::HashMap, io};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

/// The forged answer to a write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Forged {
    /// "Terminating connection", which may come after the commit.
    Terminated,
    /// The connection ends without an answer.
    Lost,
    /// Success, with the warning that the wait for the standby was cancelled.
    NotReplicated,
    /// "Lock timeout", which says that it was not applied: so it was not sent.
    Locked,
}

/// Forwards everything until one side has ended.
pub(super) async fn relay(client: TcpStream, server: TcpStream, mut context: ConnectionContext) {
    let (mut client, mut server) = (BufReader::new(client), BufReader::new(server));
    let Ok(startup) = startup(&mut client).await else { return };
    if server.write_all(&startup).await.is_err() || pass(&mut server, &mut client).await.is_none() {
        return;
    }
    let mut prepared = Prepared::default();
    loop {
        let is_request = tokio::select! {
            biased;
            filled = client.fill_buf() => filled.is_ok_and(|bytes| !bytes.is_empty()).then_some(true),
            filled = server.fill_buf() => filled.is_ok_and(|bytes| !bytes.is_empty()).then_some(false),
        };
        let done = match is_request {
            None => return,
            // What a server says by itself.
            Some(false) => match Message::read(&mut server).await {
                Ok(message) => {
                    context.arrival().await;
                    client.write_all(message.bytes()).await.ok()
                }
                Err(_) => None,
            },
            Some(true) => answer(&mut client, &mut server, &mut prepared, &mut context).await,
        };
        if done.is_none() {
            return;
        }
    }
}

/// Carries one request to the server, and the answer back. `None` when the connection ends.
async fn answer(
    client: &mut BufReader<TcpStream>,
    server: &mut BufReader<TcpStream>,
    prepared: &mut Prepared,
    context: &mut ConnectionContext,
) -> Option<()> {
    let Request { bytes: request, is_answered, writes } = Request::read(client, prepared).await.ok()?;
    if !is_answered {
        return server.write_all(&request).await.ok();
    }
    let forged = (writes && context.forges()).then(|| {
        let kinds = [Forged::Terminated, Forged::Lost, Forged::NotReplicated, Forged::Locked];
        kinds[fastrand::usize(..kinds.len())]
    });
    let counts = context.counts.clone();
    let terminated = || Message::refusal(Severity::Fatal, "57P01", "terminating connection").bytes().to_vec();
    let mut ends = matches!(forged, Some(Forged::Terminated | Forged::Lost));
    let answer = match forged {
        Some(Forged::Locked) => {
            counts.add(Event::Throttled);
            let refusal =
                Message::refusal(Severity::Error, "55P03", "canceling statement due to lock timeout");
            [refusal.bytes(), Message::ready().bytes()].concat()
        }
        Some(forged) if ends && fastrand::bool() => {
            counts.add(Event::ForgedUnsent);
            if forged == Forged::Terminated { terminated() } else { Vec::new() }
        }
        forged => {
            if context.now().link == Link::Silent {
                context.arrival().await;
                if writes {
                    counts.add(Event::WriteDelivered);
                }
            }
            server.write_all(&request).await.ok()?;
            let answer = Message::read_answer(server).await.ok()?;
            let bytes = || answer.iter().flat_map(|message| message.bytes()).copied().collect::<Vec<_>>();
            match (forged, applied(&answer)) {
                (Some(forged), Some(applied)) => {
                    counts.add(if applied { Event::ForgedApplied } else { Event::ForgedRefused });
                    match forged {
                        Forged::Terminated => terminated(),
                        Forged::Lost | Forged::Locked => Vec::new(),
                        Forged::NotReplicated => {
                            let warning = "canceling wait for synchronous replication due to user request";
                            [Message::warning("01000", warning).bytes(), &bytes()].concat()
                        }
                    }
                }
                // The server's own errors are forwarded.
                _ => {
                    ends = false;
                    bytes()
                }
            }
        }
    };
    if context.now().link != Link::Open {
        context.arrival().await;
        counts.add(Event::AnswerDelayed);
    }
    client.write_all(&answer).await.ok()?;
    (!ends).then_some(())
}

/// Forwards what the server sends until it is ready for a request. `None` when one side has gone.
async fn pass(server: &mut BufReader<TcpStream>, client: &mut BufReader<TcpStream>) -> Option<()> {
    for message in Message::read_answer(server).await.ok()? {
        client.write_all(message.bytes()).await.ok()?;
    }
    Some(())
}

const READY: u8 = b'Z';
const REFUSAL: u8 = b'E';
const NOTICE: u8 = b'N';
const COMPLETE: u8 = b'C';

/// What a refusal ends.
#[derive(Clone, Copy)]
enum Severity {
    /// The transaction.
    Error,
    /// The connection.
    Fatal,
}

/// A message as it came.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Message(Vec<u8>);

/// The first message of a client, which has no letter.
async fn startup(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    body(from, Vec::new()).await
}

/// Reads a length and what it counts, to the end of `bytes`.
async fn body(from: &mut (impl AsyncRead + Unpin), mut bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    let length = from.read_u32().await?;
    let start = bytes.len();
    bytes.extend(length.to_be_bytes());
    bytes.resize(start + (length as usize).max(4), 0);
    from.read_exact(&mut bytes[start + 4..]).await?;
    Ok(bytes)
}

impl Message {
    async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let letter = from.read_u8().await?;
        Ok(Self(body(from, vec![letter]).await?))
    }

    /// All messages until the server is ready for a request, or ends the connection with a refusal.
    async fn read_answer(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<Self>> {
        let mut answer = Vec::new();
        loop {
            match Self::read(from).await {
                Ok(message) => answer.push(message),
                Err(_) if answer.last().is_some_and(|last: &Self| last.0[0] == REFUSAL) => return Ok(answer),
                Err(error) => return Err(error),
            }
            if answer.last().is_some_and(|last| last.0[0] == READY) {
                return Ok(answer);
            }
        }
    }

    fn new(letter: u8, body: &[u8]) -> Self {
        let length = (body.len() as u32 + 4).to_be_bytes();
        Self([&[letter], &length[..], body].concat())
    }

    fn ready() -> Self {
        Self::new(READY, b"I")
    }

    fn refusal(severity: Severity, code: &str, what: &str) -> Self {
        let severity = match severity {
            Severity::Error => "ERROR",
            Severity::Fatal => "FATAL",
        };
        Self::new(REFUSAL, &fields(severity, code, what))
    }

    fn warning(code: &str, what: &str) -> Self {
        Self::new(NOTICE, &fields("WARNING", code, what))
    }

    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn letter(&self) -> u8 {
        self.0[0]
    }

    /// What belongs to the letter.
    fn body(&self) -> &[u8] {
        &self.0[5..]
    }
}

/// Severity twice: in the server's language, and in English.
fn fields(severity: &str, code: &str, what: &str) -> Vec<u8> {
    format!("S{severity}\0V{severity}\0C{code}\0M{what}\0\0").into_bytes()
}

/// Whether an answer says that a write was applied; `None` if it is a refusal.
fn applied(answer: &[Message]) -> Option<bool> {
    if answer.iter().any(|message| message.0[0] == REFUSAL) {
        return None;
    }
    Some(answer.iter().filter(|message| message.0[0] == COMPLETE).any(|message| {
        let tag = String::from_utf8_lossy(message.body());
        ["UPDATE ", "INSERT 0 "]
            .iter()
            .any(|verb| tag.strip_prefix(verb).is_some_and(|rows| rows.trim_end_matches('\0') != "0"))
    }))
}

const QUERY: u8 = b'Q';
const PARSE: u8 = b'P';
const BIND: u8 = b'B';
const SYNC: u8 = b'S';
/// Describe, execute, close and flush: a sync follows.
const OTHERS_BEFORE_SYNC: [u8; 4] = [b'D', b'E', b'C', b'H'];

/// The prepared statements of a connection: whether each changes a leader record, by name.
#[derive(Default)]
struct Prepared(HashMap<Vec<u8>, bool>);

/// One message with statements as text, or all messages of the extended protocol up to the sync.
struct Request {
    bytes: Vec<u8>,
    /// Whether the server answers it. It does not answer the end of the connection.
    is_answered: bool,
    /// Whether it changes a leader record.
    writes: bool,
}

impl Request {
    async fn read(from: &mut (impl AsyncRead + Unpin), prepared: &mut Prepared) -> io::Result<Self> {
        let mut request = Self { bytes: Vec::new(), is_answered: true, writes: false };
        loop {
            let message = Message::read(from).await?;
            request.bytes.extend(message.bytes());
            match message.letter() {
                QUERY => request.writes = changes_a_record(message.body()),
                PARSE => prepared.note(message.body()),
                BIND => request.writes |= prepared.writes(message.body()),
                SYNC => return Ok(request),
                letter if OTHERS_BEFORE_SYNC.contains(&letter) => {}
                _ => request.is_answered = false,
            }
            if message.letter() == QUERY || !request.is_answered {
                return Ok(request);
            }
        }
    }
}

impl Prepared {
    /// Notes the statement of a parse: its name, and then its text.
    fn note(&mut self, body: &[u8]) {
        let (name, rest) = string(body);
        self.0.insert(name.to_vec(), changes_a_record(string(rest).0));
    }

    /// Whether the statement of a bind changes a record: its name follows that of the portal.
    fn writes(&self, body: &[u8]) -> bool {
        let (_portal, rest) = string(body);
        self.0.get(string(rest).0).copied().unwrap_or(false)
    }
}

/// A string that ends with a zero, and what follows it.
fn string(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    (&bytes[..end], bytes.get(end + 1..).unwrap_or_default())
}

fn changes_a_record(statements: &[u8]) -> bool {
    let text = String::from_utf8_lossy(statements);
    ["UPDATE sysvvm.leader", "INSERT INTO sysvvm.leader"].iter().any(|write| text.contains(write))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(tag: &str) -> Message {
        Message::new(COMPLETE, format!("{tag}\0").as_bytes())
    }

    #[test]
    fn answer_tells_whether_a_write_was_applied() {
        let ready = Message::ready;
        assert_eq!(applied(&[complete("SELECT 1"), complete("UPDATE 1"), ready()]), Some(true));
        assert_eq!(applied(&[complete("INSERT 0 1"), ready()]), Some(true));
        assert_eq!(applied(&[complete("SELECT 1"), complete("UPDATE 0"), ready()]), Some(false));
        assert_eq!(applied(&[Message::refusal(Severity::Error, "55P03", "lock"), ready()]), None);
    }

    #[tokio::test]
    async fn answer_ends_where_the_server_is_ready() {
        let bytes =
            [complete("UPDATE 1").bytes(), Message::ready().bytes(), complete("next").bytes()].concat();
        let mut from = &bytes[..];
        let answer = Message::read_answer(&mut from).await.unwrap();
        assert_eq!(answer, [complete("UPDATE 1"), Message::ready()]);
        assert_eq!(Message::read(&mut from).await.unwrap(), complete("next"));
    }

    const WRITE: &str = "UPDATE sysvvm.leader SET epoch = $1";

    fn message(letter: u8, body: &str) -> Vec<u8> {
        Message::new(letter, body.as_bytes()).bytes().to_vec()
    }

    /// What each request of a connection is: how many bytes, whether it is answered, whether it writes.
    async fn requests(connection: &[Vec<u8>]) -> Vec<(usize, bool, bool)> {
        let (bytes, mut prepared, mut found) = (connection.concat(), Prepared::default(), Vec::new());
        let mut from = &bytes[..];
        while !from.is_empty() {
            let request = Request::read(&mut from, &mut prepared).await.unwrap();
            found.push((request.bytes.len(), request.is_answered, request.writes));
        }
        found
    }

    #[tokio::test]
    async fn text_is_a_request_by_itself() {
        let [write, read] = [WRITE, "SELECT 1"].map(|text| message(QUERY, &format!("{text}\0")));
        let sizes = (write.len(), read.len());
        assert_eq!(requests(&[write, read]).await, [(sizes.0, true, true), (sizes.1, true, false)]);
    }

    #[tokio::test]
    async fn prepared_write_is_one_when_it_is_bound() {
        let sync = message(SYNC, "");
        let parsed = |name: &str, text: &str| {
            [message(PARSE, &format!("{name}\0{text}\0\0\0")), message(b'D', "S"), sync.clone()].concat()
        };
        let bound = |name: &str| {
            [message(BIND, &format!("\0{name}\0\0")), message(b'E', "\0"), sync.clone()].concat()
        };
        let sent = [parsed("s0", WRITE), parsed("s1", "SELECT 1"), bound("s1"), bound("s0")];
        let writes = [false, false, false, true];
        let expected: Vec<_> =
            sent.iter().zip(writes).map(|(sent, writes)| (sent.len(), true, writes)).collect();
        assert_eq!(requests(&sent).await, expected);
    }

    #[tokio::test]
    async fn end_of_a_connection_is_not_answered() {
        let end = message(b'X', "");
        assert_eq!(requests(std::slice::from_ref(&end)).await, [(end.len(), false, false)]);
    }
}
