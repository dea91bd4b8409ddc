//! [`probe_leader`]: whether datagrams pass from this machine to the leader and back, for `vvm doctor`.

use super::{
    datagram::{LEN, OwnKey, SlotId, Unverified, encode},
    document::LeaderAddress,
};
use ielections::{
    DocumentStorage as _, Entropy as _, Entry, OsEntropy, ReadError, TtlStorage as _,
    successor::{Datagram, FromStandby, Pairing, Ping},
};
use std::{io, net::SocketAddr, time::Duration};
use tokio::net::UdpSocket;
use vvm_clock::Clock;
use vvm_storage::{ElectionKey, ElectionsTtlStorage};

/// What became of an offer to the leader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbeOutcome {
    /// The leader names no successors: it has no `--successor`.
    NotAsked,
    /// The leader has named the successor at this address, and answers no other offer.
    HasSuccessor(SocketAddr),
    /// The leader at this address has answered after so long.
    Answered(SocketAddr, Duration),
    /// No answer came from this address.
    Silent(SocketAddr),
}

/// How long an answer may take, and how often an offer is made: a leader that has just withdrawn a successor, or tests
/// another standby, answers none.
const TIMEOUT: Duration = Duration::from_millis(500);
const ATTEMPTS: usize = 3;

/// Offers a standby to the leader of the record `entry`, and waits for its first test. It answers none, so it is never
/// named. Cancel safe.
pub async fn probe_leader(
    storage: &ElectionsTtlStorage,
    (key, entry): (&ElectionKey, &Entry),
    socket: std::net::UdpSocket,
    clock: &dyn Clock,
) -> Result<ProbeOutcome, ReadError> {
    let (Some(_), Some(id)) = (storage.documents(), super::document::id()) else {
        return Ok(ProbeOutcome::NotAsked);
    };
    let (record, slot) = ((entry.incarnation(), entry.epoch), SlotId::of(key));
    let document = storage.document(key, &id).await?;
    let Some(leader) = document.and_then(|document| LeaderAddress::read(&document, record)) else {
        return Ok(ProbeOutcome::NotAsked);
    };
    if let Some(successor) = leader.successor {
        return Ok(ProbeOutcome::HasSuccessor(successor));
    }
    let entropy = OsEntropy::default();
    let own = OwnKey::new(&entropy);
    let pair = leader.public_key().and_then(|public| own.with_leader(&public, slot, record));
    let (Some(pair), Ok(socket)) = (pair, nonblocking(socket)) else {
        return Ok(ProbeOutcome::Silent(leader.address));
    };
    for _ in 0..ATTEMPTS {
        let mut offer = [0; 16];
        entropy.fill(&mut offer);
        let pairing = Pairing { incarnation: record.0, epoch: record.1, offer };
        let bytes = encode(slot, &Datagram::ToLeader(FromStandby::Offer(pairing)), &own.public, &pair);
        let sent_at = clock.now();
        // A refusal shows as silence.
        let _ = socket.send_to(&bytes, leader.address).await;
        let is_test = |bytes: &[u8]| {
            let verified = Unverified::parse(bytes).and_then(|datagram| datagram.verify(&pair, entry.ttl));
            matches!(verified, Some(Datagram::ToStandby(Ping { pairing: of, .. })) if of == pairing)
        };
        let answered = async {
            let mut bytes = [0; LEN + 1];
            loop {
                match socket.recv_from(&mut bytes).await {
                    Ok((len, _)) if is_test(&bytes[..len]) => return clock.now(),
                    // Of an earlier attempt, or not received.
                    Ok(_) | Err(_) => {}
                }
            }
        };
        tokio::select! {
            biased;
            at = answered => return Ok(ProbeOutcome::Answered(leader.address, sent_at.until(at))),
            () = clock.sleep(TIMEOUT) => {}
        }
    }
    Ok(ProbeOutcome::Silent(leader.address))
}

fn nonblocking(socket: std::net::UdpSocket) -> io::Result<UdpSocket> {
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}
