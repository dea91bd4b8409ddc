//! CQL between a candidate and a node: frames are forwarded, delayed, or answered by the proxy.
//!
//! The stream number of a frame identifies its request, so frames may overtake each other.

use super::ConnectionContext;
use crate::faults::fault::Event;
use std::{
    collections::{HashMap, HashSet},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinSet,
};

/// The ids of the prepared statements that are transactions. All nodes use the same id for the same text.
#[derive(Default)]
pub(in super::super) struct Statements(Mutex<HashSet<Vec<u8>>>);

/// An answer that the proxy waits for.
enum Awaited {
    /// The id of a transaction that is being prepared.
    Name,
    /// An outcome, which will be replaced.
    Outcome(Ambiguous),
}

struct Relay {
    context: ConnectionContext,
    statements: Arc<Statements>,
    to_client: tokio::sync::Mutex<OwnedWriteHalf>,
    to_server: tokio::sync::Mutex<OwnedWriteHalf>,
    awaited: Mutex<HashMap<[u8; 2], Awaited>>,
}

/// Forwards everything until both sides have ended, even what a client sent just before it closed.
pub(super) async fn relay(
    client: TcpStream,
    server: TcpStream,
    context: ConnectionContext,
    statements: Arc<Statements>,
) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let relay = Arc::new(Relay {
        context,
        statements,
        to_client: to_client.into(),
        to_server: to_server.into(),
        awaited: Mutex::default(),
    });
    // The end of the stream reports a closed side.
    let _ended = tokio::join!(questions(&relay, from_client), answers(&relay, from_server));
}

async fn questions(relay: &Arc<Relay>, mut from_client: OwnedReadHalf) -> io::Result<()> {
    let mut under_way = JoinSet::new();
    while let Ok(Some(question)) = Frame::read(&mut from_client).await {
        while under_way.try_join_next().is_some() {}
        if let Some(text) = question.prepares()
            && text.contains(" IF ")
        {
            relay.awaited().insert(question.stream(), Awaited::Name);
        }
        let writes = question.executes().is_some_and(|name| relay.statements().contains(name));
        if writes && relay.context.forges() {
            let what = if fastrand::bool() { Ambiguous::WriteTimeout } else { Ambiguous::CasWriteUnknown };
            if fastrand::bool() {
                relay.context.counts.add(Event::ForgedUnsent);
                send(&relay.to_client, &question.forge(what)).await?;
                continue;
            }
            relay.awaited().insert(question.stream(), Awaited::Outcome(what));
        }
        if relay.is_silent() {
            let relay = Arc::clone(relay);
            under_way.spawn(async move {
                relay.context.clone().arrival().await;
                if send(&relay.to_server, &question).await.is_ok() && writes {
                    relay.context.counts.add(Event::WriteDelivered);
                }
            });
        } else {
            send(&relay.to_server, &question).await?;
        }
    }
    while under_way.join_next().await.is_some() {}
    relay.to_server.lock().await.shutdown().await
}

async fn answers(relay: &Arc<Relay>, mut from_server: OwnedReadHalf) -> io::Result<()> {
    let mut under_way = JoinSet::new();
    while let Ok(Some(mut answer)) = Frame::read(&mut from_server).await {
        while under_way.try_join_next().is_some() {}
        let awaited = relay.awaited().remove(&answer.stream());
        match (awaited, answer.prepared(), answer.applied()) {
            (Some(Awaited::Name), Some(name), _) => _ = relay.statements().insert(name.to_vec()),
            (Some(Awaited::Outcome(what)), _, Some(applied)) => {
                let event = if applied { Event::ForgedApplied } else { Event::ForgedRefused };
                relay.context.counts.add(event);
                answer = answer.forge(what);
            }
            // Other answers are forwarded, including the node's own errors.
            _ => {}
        }
        if relay.is_clear() {
            // The client may be gone while its writes are still in flight.
            let _gone = send(&relay.to_client, &answer).await;
        } else {
            let relay = Arc::clone(relay);
            under_way.spawn(async move {
                relay.context.clone().arrival().await;
                relay.context.counts.add(Event::AnswerDelayed);
                let _gone = send(&relay.to_client, &answer).await;
            });
        }
    }
    while under_way.join_next().await.is_some() {}
    relay.to_client.lock().await.shutdown().await
}

async fn send(to: &tokio::sync::Mutex<impl AsyncWrite + Unpin>, frame: &Frame) -> io::Result<()> {
    to.lock().await.write_all(&frame.0).await
}

impl Relay {
    fn is_silent(&self) -> bool {
        self.context.now().link == super::Link::Silent
    }

    fn is_clear(&self) -> bool {
        self.context.now().link == super::Link::Open
    }

    /// Every change is one step, so a poisoned lock is no problem.
    fn awaited(&self) -> MutexGuard<'_, HashMap<[u8; 2], Awaited>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn statements(&self) -> MutexGuard<'_, HashSet<Vec<u8>>> {
        self.statements.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Version, flags, stream, opcode, length.
const HEADER: usize = 9;

const ERROR: u8 = 0x00;
const RESULT: u8 = 0x08;
const PREPARE: u8 = 0x09;
const EXECUTE: u8 = 0x0a;

/// Flags of what precedes the body: tracing, custom payload, warnings.
const PREFIXED: u8 = 0x02 | 0x04 | 0x08;

const KIND_ROWS: i32 = 2;
const KIND_PREPARED: i32 = 4;

const GLOBAL_TABLE: i32 = 0x1;
const MORE_PAGES: i32 = 0x2;
const NO_METADATA: i32 = 0x4;

/// One frame as it was received.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Frame(Vec<u8>);

/// An answer that leaves the outcome of a write unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ambiguous {
    /// `Write_timeout` of type `CAS`.
    WriteTimeout,
    /// `CAS_WRITE_UNKNOWN`. Only version 5 defines it, but Cassandra 4 and later send it in version 4, too.
    CasWriteUnknown,
}

impl Frame {
    /// Reads the next frame; `None` at the end.
    async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Self>> {
        let mut header = [0; HEADER];
        match from.read_exact(&mut header).await {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
        let [.., a, b, c, d] = header;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        let mut bytes = vec![0; HEADER + length];
        bytes[..HEADER].copy_from_slice(&header);
        from.read_exact(&mut bytes[HEADER..]).await?;
        Ok(Some(Self(bytes)))
    }

    /// Returns the stream number, which a request and its answer share.
    fn stream(&self) -> [u8; 2] {
        [self.0[2], self.0[3]]
    }

    fn body(&self, opcode: u8) -> Option<Body<'_>> {
        let has_prefix = self.0[1] & PREFIXED != 0;
        (self.0[4] == opcode && !has_prefix).then_some(Body(&self.0[HEADER..]))
    }

    /// Returns the statement of a PREPARE request.
    fn prepares(&self) -> Option<String> {
        let mut body = self.body(PREPARE)?;
        let length = body.int()?;
        Some(String::from_utf8_lossy(body.take(length as usize)?).into_owned())
    }

    /// Returns the id of a prepared statement from the answer.
    fn prepared(&self) -> Option<&[u8]> {
        let mut body = self.body(RESULT)?;
        (body.int()? == KIND_PREPARED).then_some(())?;
        body.short_bytes()
    }

    /// Returns the id of the statement of an EXECUTE request.
    fn executes(&self) -> Option<&[u8]> {
        self.body(EXECUTE)?.short_bytes()
    }

    /// Returns whether a transaction was applied; `None` if the frame is not such an answer.
    fn applied(&self) -> Option<bool> {
        let mut body = self.body(RESULT)?;
        (body.int()? == KIND_ROWS).then_some(())?;
        let (flags, columns) = (body.int()?, body.int()?);
        if flags & MORE_PAGES != 0 {
            body.bytes()?;
        }
        if flags & NO_METADATA == 0 {
            let has_global_table = flags & GLOBAL_TABLE != 0;
            if has_global_table {
                body.skip_strings(2)?;
            }
            for _ in 0..columns {
                if !has_global_table {
                    body.skip_strings(2)?;
                }
                // Its name and its type. No type of our table has parameters.
                body.skip_strings(1)?;
                body.take(2)?;
            }
        }
        // The outcome is the first value of the first row.
        (body.int()? > 0).then_some(())?;
        match body.bytes()? {
            [outcome] => Some(*outcome != 0),
            _ => None,
        }
    }

    /// Returns an answer to this request that leaves its outcome unknown.
    fn forge(&self, what: Ambiguous) -> Self {
        const SERIAL: [u8; 2] = [0, 8];
        let (code, message) = match what {
            Ambiguous::WriteTimeout => (0x1100_u32, "forged: a write that timed out"),
            Ambiguous::CasWriteUnknown => (0x1700, "forged: a transaction of unknown outcome"),
        };
        let mut body = Vec::new();
        body.extend(code.to_be_bytes());
        push_string(&mut body, message);
        body.extend(SERIAL);
        // One replica of two has answered.
        body.extend(1_u32.to_be_bytes());
        body.extend(2_u32.to_be_bytes());
        if what == Ambiguous::WriteTimeout {
            push_string(&mut body, "CAS");
        }
        let [one, two] = self.stream();
        let mut bytes = vec![self.0[0] | 0x80, 0, one, two, ERROR];
        bytes.extend((body.len() as u32).to_be_bytes());
        bytes.extend(body);
        Self(bytes)
    }
}

fn push_string(body: &mut Vec<u8>, text: &str) {
    body.extend((text.len() as u16).to_be_bytes());
    body.extend(text.as_bytes());
}

/// The unread part of a body.
struct Body<'frame>(&'frame [u8]);

impl<'frame> Body<'frame> {
    fn take(&mut self, count: usize) -> Option<&'frame [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn int(&mut self) -> Option<i32> {
        self.take(4)?.try_into().ok().map(i32::from_be_bytes)
    }

    fn short_bytes(&mut self) -> Option<&'frame [u8]> {
        let length = self.take(2)?.try_into().ok().map(u16::from_be_bytes)?;
        self.take(usize::from(length))
    }

    fn skip_strings(&mut self, count: usize) -> Option<()> {
        (0..count).try_for_each(|_| self.short_bytes().map(drop))
    }

    /// Reads bytes. A null is empty.
    fn bytes(&mut self) -> Option<&'frame [u8]> {
        let length = self.int()?;
        self.take(usize::try_from(length).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(opcode: u8, body: &[&[u8]]) -> Frame {
        let body = body.concat();
        let mut bytes = vec![4, 0, 1, 2, opcode];
        bytes.extend((body.len() as u32).to_be_bytes());
        bytes.extend(body);
        Frame(bytes)
    }

    #[test]
    fn statement_is_recognized_by_its_text_and_then_by_its_id() {
        let asked = frame(PREPARE, &[&[0, 0, 0, 2], b"IF"]);
        assert_eq!(asked.prepares().as_deref(), Some("IF"));
        assert_eq!(frame(RESULT, &[&[0, 0, 0, 4, 0, 3], b"abc", b"rest"]).prepared(), Some(&b"abc"[..]));
        assert_eq!(frame(EXECUTE, &[&[0, 3], b"abc", b"rest"]).executes(), Some(&b"abc"[..]));
        assert_eq!(frame(EXECUTE, &[&[0, 9], b"abc"]).executes(), None);
        assert_eq!(asked.executes(), None);
    }

    #[test]
    fn outcome_is_the_first_value_of_the_first_row() {
        let rows = |applied: &[u8]| {
            let table: &[u8] = &[0, 1, b'k', 0, 1, b't'];
            let columns: &[u8] =
                &[0, 9, b'[', b'a', b'p', b'p', b'l', b'i', b'e', b'd', b']', 0, 4, 0, 1, b'x', 0, 2];
            frame(RESULT, &[&[0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2], table, columns, &[0, 0, 0, 1], applied])
        };
        assert_eq!(rows(&[0, 0, 0, 1, 1]).applied(), Some(true));
        assert_eq!(rows(&[0, 0, 0, 1, 0]).applied(), Some(false));
        assert_eq!(rows(&[0, 0, 0, 2, 1, 1]).applied(), None);
        assert_eq!(frame(RESULT, &[&[0, 0, 0, 1]]).applied(), None);
    }

    #[test]
    fn forged_answer_has_the_stream_of_its_request() {
        let forged = frame(EXECUTE, &[]).forge(Ambiguous::WriteTimeout);
        assert_eq!(forged.0[..5], [0x84, 0, 1, 2, ERROR]);
        assert_eq!(forged.0.len(), HEADER + u32::from_be_bytes([0, 0, forged.0[7], forged.0[8]]) as usize);
        assert!(forged.0.ends_with(b"\0\x08\0\0\0\x01\0\0\0\x02\0\x03CAS"));
    }
}
