//! DynamoDB's protocol between a contender and a server: requests are passed on, held up, or answered in the
//! server's place.
//!
//! A connection carries one request at a time, and each its name in a header. What a client sent before it
//! went away is passed on, too.

mod message;

use super::{Path, Surroundings};
use crate::faults::happened::Happened;
use message::Message;
use tokio::{
    io::{AsyncWriteExt, BufReader},
    net::TcpStream,
};

/// What happens to the outcome of a write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Forged {
    /// "Internal server error", which says neither yes nor no.
    Internal,
    /// The connection ends without an answer.
    Lost,
    /// "Throttled", which says that it was not applied: so it was not sent.
    Throttled,
}

/// Passes everything on until one side has ended.
pub(super) async fn relay(client: TcpStream, server: TcpStream, mut surroundings: Surroundings) {
    let (mut client, mut server) = (BufReader::new(client), BufReader::new(server));
    while let Ok(Some(request)) = Message::read(&mut client).await {
        let writes = request.writes();
        let forged = (writes && surroundings.forges()).then(|| {
            let kinds = [Forged::Internal, Forged::Lost, Forged::Throttled];
            kinds[fastrand::usize(..kinds.len())]
        });
        let counts = surroundings.counts.clone();
        let answer = match forged {
            Some(Forged::Throttled) => {
                counts.add(Happened::Throttled);
                Some(Message::throttled())
            }
            Some(forged) if fastrand::bool() => {
                counts.add(Happened::ForgedUnsent);
                (forged == Forged::Internal).then(Message::internal_error)
            }
            forged => {
                if surroundings.now().path == Path::Silent {
                    surroundings.arrival().await;
                    if writes {
                        counts.add(Happened::WriteDelivered);
                    }
                }
                let Some(answer) = ask(&mut server, &request).await else { return };
                match (forged, answer.applied()) {
                    (Some(forged), Some(applied)) => {
                        counts.add(if applied { Happened::ForgedApplied } else { Happened::ForgedRefused });
                        (forged == Forged::Internal).then(Message::internal_error)
                    }
                    // A server's own errors are passed on.
                    _ => Some(answer),
                }
            }
        };
        if surroundings.now().path != Path::Clear {
            surroundings.arrival().await;
            counts.add(Happened::AnswerDelayed);
        }
        let Some(answer) = answer else { return };
        if client.write_all(answer.bytes()).await.is_err() {
            return;
        }
    }
}

/// `None` when the server has gone.
async fn ask(server: &mut BufReader<TcpStream>, request: &Message) -> Option<Message> {
    server.write_all(request.bytes()).await.ok()?;
    Message::read(server).await.ok()?
}
