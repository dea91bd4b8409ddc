//! DynamoDB's protocol between a candidate and a server: requests are forwarded, delayed, or answered by the
//! proxy.
//!
//! A connection has one request at a time, with its operation in a header. What a client sent just before it
//! closed is forwarded, too.

mod message;

use super::{ConnectionContext, Link};
use crate::faults::event::Event;
use message::Message;
use tokio::{
    io::{AsyncWriteExt, BufReader},
    net::TcpStream,
};

/// The forged answer to a write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Forged {
    /// "Internal server error": the outcome is unknown.
    Internal,
    /// The connection ends without an answer.
    Lost,
    /// "Throttled": the write was not applied, so the proxy does not send it.
    Throttled,
}

/// Forwards everything until one side has ended.
pub(super) async fn relay(client: TcpStream, server: TcpStream, mut context: ConnectionContext) {
    let (mut client, mut server) = (BufReader::new(client), BufReader::new(server));
    while let Ok(Some(request)) = Message::read(&mut client).await {
        let writes = request.writes();
        let forged = (writes && context.forges()).then(|| {
            let kinds = [Forged::Internal, Forged::Lost, Forged::Throttled];
            kinds[fastrand::usize(..kinds.len())]
        });
        let counts = context.counts.clone();
        let answer = match forged {
            Some(Forged::Throttled) => {
                counts.add(Event::Throttled);
                Some(Message::throttled())
            }
            Some(forged) if fastrand::bool() => {
                counts.add(Event::ForgedUnsent);
                (forged == Forged::Internal).then(Message::internal_error)
            }
            forged => {
                if context.now().link == Link::Silent {
                    context.arrival().await;
                    if writes {
                        counts.add(Event::WriteDelivered);
                    }
                }
                let Some(answer) = ask(&mut server, &request).await else { return };
                match (forged, answer.applied()) {
                    (Some(forged), Some(applied)) => {
                        counts.add(if applied { Event::ForgedApplied } else { Event::ForgedRefused });
                        (forged == Forged::Internal).then(Message::internal_error)
                    }
                    // The server's own errors are forwarded.
                    _ => Some(answer),
                }
            }
        };
        if context.now().link != Link::Open {
            context.arrival().await;
            counts.add(Event::AnswerDelayed);
        }
        let Some(answer) = answer else { return };
        if client.write_all(answer.bytes()).await.is_err() {
            return;
        }
    }
}

/// Sends a request and returns the answer; `None` if the server is gone.
async fn ask(server: &mut BufReader<TcpStream>, request: &Message) -> Option<Message> {
    server.write_all(request.bytes()).await.ok()?;
    Message::read(server).await.ok()?
}
