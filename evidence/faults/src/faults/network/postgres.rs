//! PostgreSQL's protocol between a candidate and a server: messages are forwarded, delayed, or answered by
//! the proxy.
//!
//! The driver sends one request at a time and waits until the server is ready again. What a client sent
//! before it closed is forwarded, too.

mod message;
mod request;

use super::{ConnectionContext, Link};
use crate::faults::event::Event;
use message::{Message, Severity};
use request::{Prepared, Request};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
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
    let Ok(startup) = message::startup(&mut client).await else { return };
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
            match (forged, message::applied(&answer)) {
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
