//! CQL between a candidate and a node: frames are forwarded, delayed, or answered by the proxy.
//!
//! The stream number of a frame identifies its request, so frames may overtake each other.

mod frame;

use super::ConnectionContext;
use crate::faults::event::Event;
use frame::{Ambiguous, Frame};
use std::{
    collections::{HashMap, HashSet},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    net::{TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
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
