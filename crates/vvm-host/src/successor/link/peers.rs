//! [`LinkState`]: the peers of a link, and which datagrams of them count.

use super::{DatagramFate, UdpPeerLink};
use crate::successor::datagram::{PairKey, PublicKeyBytes, Record, Unverified};
use ielections::{
    Entry, Ttl,
    successor::{Datagram, FromStandby, PeerInbox},
};
use std::{collections::VecDeque, net::SocketAddr, time::Duration};
use vvm_clock::Instant;
use vvm_storage::ElectionKey;

/// How many datagrams of one peer are delivered in a second. With the shortest P, eight are sent.
const MESSAGES: u32 = 200;

/// How many offers are delivered in a second. A standby makes one at each scan, and every P.
pub(super) const OFFERS: u32 = 20;

/// How many unknown keys are tried in a second: each costs 50 µs, and every host that can send a datagram may send one.
pub(super) const AGREEMENTS: u32 = 20;

/// How many standbys are kept that have offered themselves.
const STANDBYS: usize = 16;

#[derive(Default, Debug)]
pub(super) struct LinkState {
    pub(super) inbox: Option<PeerInbox>,
    pub(super) own: Option<OwnLeadership>,
    pub(super) leader: Option<KnownLeader>,
    /// The record whose leader is looked for.
    pub(super) sought: Option<(ElectionKey, Entry)>,
    pub(super) tightening: Option<Instant>,
    /// This process has won as the successor of a leader that it heard last so long before.
    pub(super) succeeded_after: Option<Duration>,
    agreements: RateLimit,
    offers: RateLimit,
    messages: RateLimit,
}

#[derive(Debug)]
pub(super) struct OwnLeadership {
    pub(super) record: Record,
    pub(super) ttl: Ttl,
    pub(super) pinged: Option<Standby>,
    /// Others that have offered themselves, the newest last.
    pub(super) offered: VecDeque<Standby>,
    /// The newest last.
    pub(super) keys: VecDeque<(PublicKeyBytes, PairKey)>,
}

/// One offer. Its address does not change: a copy of the offer from another address has no effect.
#[derive(Debug)]
pub(super) struct Standby {
    pub(super) offer: [u8; 16],
    pub(super) address: SocketAddr,
    pub(super) key: PairKey,
    pub(super) last_number: u64,
    /// When the first and the last ping that names it was sent.
    pub(super) named: Option<(Instant, Instant)>,
    pub(super) acknowledged_at: Option<Instant>,
}

/// The successor of this process, for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NamedSuccessor {
    pub(crate) address: SocketAddr,
    pub(crate) since: Instant,
    pub(crate) acknowledged_at: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct KnownLeader {
    pub(super) record: Record,
    pub(super) ttl: Ttl,
    pub(super) address: SocketAddr,
    pub(super) key: PairKey,
    pub(super) offer: Option<[u8; 16]>,
    pub(super) last_number: u64,
    pub(super) acknowledged_at: Option<Instant>,
}

#[derive(Debug)]
struct RateLimit {
    since: Instant,
    count: u32,
}

impl Default for RateLimit {
    fn default() -> Self {
        Self { since: Instant::ORIGIN, count: 0 }
    }
}

impl RateLimit {
    fn admits(&mut self, now: Instant, most: u32) -> bool {
        if now.since(self.since) >= Duration::from_secs(1) {
            (self.since, self.count) = (now, 0);
        }
        self.count = self.count.saturating_add(1);
        self.count <= most
    }
}

impl LinkState {
    /// Forgets all but the leader that was found last.
    pub(super) fn reset(&mut self) {
        *self = Self { leader: self.leader.take(), ..Self::default() };
    }

    /// A datagram for this process as standby.
    pub(super) fn pinged(
        &mut self,
        datagram: &Unverified<'_>,
        now: Instant,
    ) -> Result<Datagram, DatagramFate> {
        let is_own = |leader: &&mut KnownLeader| {
            leader.record == datagram.record() && leader.offer == Some(datagram.pairing.offer)
        };
        let leader = self.leader.as_mut().filter(is_own).ok_or(DatagramFate::Foreign)?;
        let verified = next(datagram, &leader.key, leader.ttl, &mut leader.last_number)?;
        if self.messages.admits(now, MESSAGES) { Ok(verified) } else { Err(DatagramFate::Surplus) }
    }

    /// A datagram for this process as leader.
    pub(super) fn answered(
        &mut self,
        datagram: &Unverified<'_>,
        now: Instant,
    ) -> Result<Datagram, DatagramFate> {
        let own = self.own.as_mut().filter(|own| own.record == datagram.record());
        let own = own.ok_or(DatagramFate::Foreign)?;
        let (ttl, offer) = (own.ttl, datagram.pairing.offer);
        let standby = own.pinged.as_mut().filter(|standby| standby.offer == offer);
        let standby = standby.ok_or(DatagramFate::Foreign)?;
        let verified = next(datagram, &standby.key, ttl, &mut standby.last_number)?;
        if let Datagram::ToLeader(FromStandby::Answer { acknowledges: true, .. }) = verified {
            standby.acknowledged_at = Some(now);
        }
        if self.messages.admits(now, MESSAGES) { Ok(verified) } else { Err(DatagramFate::Surplus) }
    }

    pub(super) fn offered(
        &mut self,
        datagram: &Unverified<'_>,
        from: SocketAddr,
        link: &UdpPeerLink,
    ) -> Result<Datagram, DatagramFate> {
        let own = self.own.as_mut().filter(|own| own.record == datagram.record());
        let own = own.ok_or(DatagramFate::Foreign)?;
        let offer = datagram.pairing.offer;
        if own.pinged.iter().chain(&own.offered).any(|standby| standby.offer == offer) {
            return Err(DatagramFate::Repeated);
        }
        let now = link.clock.now();
        let public = datagram.standby();
        let known = own.keys.iter().find(|(known, _)| *known == public).map(|(_, key)| key.clone());
        let is_known = known.is_some();
        let key = match known {
            Some(key) => key,
            None if !self.agreements.admits(now, AGREEMENTS) => return Err(DatagramFate::Surplus),
            None => link.key.with_standby(&public, link.slot, own.record).ok_or(DatagramFate::Foreign)?,
        };
        let verified = datagram.verify(&key, own.ttl).ok_or(DatagramFate::Foreign)?;
        if !self.offers.admits(now, OFFERS) {
            return Err(DatagramFate::Surplus);
        }
        if !is_known {
            push_bounded(&mut own.keys, (public, key.clone()));
        }
        push_bounded(
            &mut own.offered,
            Standby { offer, address: from, key, last_number: 0, named: None, acknowledged_at: None },
        );
        Ok(verified)
    }
}

fn push_bounded<T>(newest_last: &mut VecDeque<T>, item: T) {
    if newest_last.len() >= STANDBYS {
        newest_last.pop_front();
    }
    newest_last.push_back(item);
}

/// Verifies a datagram whose number is larger than that of every earlier one (N8).
fn next(
    datagram: &Unverified<'_>,
    key: &PairKey,
    ttl: Ttl,
    last_number: &mut u64,
) -> Result<Datagram, DatagramFate> {
    if datagram.number <= *last_number {
        return Err(DatagramFate::Repeated);
    }
    let verified = datagram.verify(key, ttl).ok_or(DatagramFate::Foreign)?;
    *last_number = datagram.number;
    Ok(verified)
}
