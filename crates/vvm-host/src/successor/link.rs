//! [`UdpPeerLink`]: the network of a successor, on one UDP socket for the life of a host.

mod enforcers;
mod peers;

pub(crate) use peers::NamedSuccessor;

use super::{
    DeadlineEnforcer, SuccessorRefusal, SuccessorSettings,
    datagram::{Kind, LEN, OwnKey, PairKey, SlotId, Unverified, encode},
    document::{self, LeaderAddress},
};
use enforcers::in_force;
use ielections::{
    DocumentStorage as _, Documents, Entry, Env, Standing, Ttl,
    env::caught,
    successor::{Datagram, FromStandby, PeerInbox, PeerLink, PeerMessage, SupportPeriod, Withdrawal},
};
use parking_lot::Mutex;
use peers::{KnownLeader, LinkState, OwnLeadership, Standby};
use std::{
    collections::VecDeque,
    convert::Infallible,
    future::pending,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    net::UdpSocket,
    sync::{Notify, watch},
    task::yield_now,
};
use vvm_clock::{Clock, Instant};
use vvm_storage::{ClusterName, ElectionKey, ElectionsTtlStorage};

/// How many datagrams are read before other tasks have their turn.
const AT_ONCE: usize = 32;

/// The pause after the system refused to receive.
const PAUSE: Duration = Duration::from_millis(100);

/// The shortest pause between two reads of the leader's document, and between two attempts to write it.
const DOCUMENT_PAUSE: Duration = Duration::from_secs(1);

/// The network of a host's candidate. [`serve`](Self::serve) receives, and everything waits only there.
#[derive(Debug)]
pub(crate) struct UdpPeerLink {
    socket: UdpSocket,
    /// Where others reach it.
    address: SocketAddr,
    pub(crate) period: SupportPeriod,
    key: OwnKey,
    slot: SlotId,
    name: ClusterName,
    clock: Arc<dyn Clock>,
    state: Mutex<LinkState>,
    seeks: Notify,
    tightens: Notify,
    may_stop: watch::Sender<bool>,
    /// The successor, as the document shows it.
    named: watch::Sender<Option<SocketAddr>>,
    fates: [AtomicU64; DatagramFate::ALL.len()],
}

/// What became of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DatagramFate {
    Sent,
    /// The system did not take it, or its receiver is not known.
    Unsent,
    Received,
    /// Not from the peer, or not for this leadership and offer.
    Foreign,
    /// It was received before, or is older than one that was.
    Repeated,
    /// There were too many.
    Surplus,
}

impl DatagramFate {
    pub(crate) const ALL: [Self; 6] =
        [Self::Sent, Self::Unsent, Self::Received, Self::Foreign, Self::Repeated, Self::Surplus];

    /// As metrics name it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Unsent => "unsent",
            Self::Received => "received",
            Self::Foreign => "foreign",
            Self::Repeated => "repeated",
            Self::Surplus => "surplus",
        }
    }
}

impl UdpPeerLink {
    /// Binds the socket. Must be called in the context of a runtime.
    pub(crate) fn bind(
        settings: &SuccessorSettings,
        period: SupportPeriod,
        key: &ElectionKey,
        env: &Env,
    ) -> Result<Self, SuccessorRefusal> {
        let SuccessorSettings { listen, advertise, .. } = *settings;
        let mut address = advertise.unwrap_or(listen);
        if address.ip().is_unspecified() {
            return Err(SuccessorRefusal::Unreachable(address));
        }
        let bound = std::net::UdpSocket::bind(listen).and_then(|socket| {
            socket.set_nonblocking(true)?;
            let socket = UdpSocket::from_std(socket)?;
            Ok((socket.local_addr()?.port(), socket))
        });
        let (port, socket) =
            bound.map_err(|cause| SuccessorRefusal::CantListen { address: listen, cause })?;
        if address.port() == 0 {
            address.set_port(port);
        }
        Ok(Self {
            socket,
            address,
            period,
            key: OwnKey::new(&*env.entropy),
            slot: SlotId::of(key),
            name: key.cluster.clone(),
            clock: Arc::clone(&env.clock),
            state: Mutex::default(),
            seeks: Notify::new(),
            tightens: Notify::new(),
            may_stop: watch::Sender::new(false),
            named: watch::Sender::new(None),
            fates: Default::default(),
        })
    }

    /// Forgets what belongs to an earlier campaign or leadership.
    pub(crate) fn campaigns(&self) {
        self.state.lock().reset();
    }

    /// Heeds offers to the leadership of `standing` from now on. If this process was the successor of a leader, returns
    /// how long before the take-over it heard from that one last.
    pub(crate) fn leads(&self, standing: &Standing, ttl: Ttl) -> Option<Duration> {
        let record = (standing.incarnation(), standing.epoch());
        let (offered, keys) = (VecDeque::new(), VecDeque::new());
        let mut state = self.state.lock();
        state.sought = None;
        state.own = Some(OwnLeadership { record, ttl, pinged: None, offered, keys });
        self.named.send_replace(None);
        let silent = state.succeeded_after.take()?;
        let (event, name, epoch) = ("succeeded", &self.name, record.1.get());
        let silent_ms = silent.as_millis() as u64;
        tracing::info!(
            target: "vvm", event, %name, slot = 1, epoch, silent_ms,
            "{name} slot 1: taken over as the successor, {:.1} s after the leader was heard last",
            silent.as_secs_f64()
        );
        Some(silent)
    }

    /// [`publish`](Self::publish)es now, and again whenever another standby is named, or none any more.
    pub(crate) async fn keep_published(&self, standing: &Standing, documents: &Documents) -> Infallible {
        let mut named = self.named.subscribe();
        loop {
            named.mark_unchanged();
            self.publish(standing, documents).await;
            if named.changed().await.is_err() {
                // The sender lives as long as `self`.
                return pending().await;
            }
        }
    }

    /// Writes the document of the leadership of `standing`, again until it succeeds or can't any more.
    async fn publish(&self, standing: &Standing, documents: &Documents) {
        let record = (standing.incarnation(), standing.epoch());
        let address = || LeaderAddress::new(self.address, record, &self.key.public, *self.named.borrow());
        while standing.loss().is_none()
            && let Some(write) = address().put()
            && let Err(refusal) = documents.write(vec![write]).await
        {
            tracing::debug!(%refusal, "the address for successors can't be written");
            self.clock.sleep(self.document_pause()).await;
        }
    }

    /// Asks for a planned stop, and waits until it may begin: at once without a campaign or leadership. Limit the wait.
    pub(crate) async fn ask_to_stop(&self) {
        let mut may_stop = self.may_stop.subscribe();
        self.may_stop.send_replace(false);
        let Some(inbox) = self.state.lock().inbox.clone() else { return };
        inbox.deliver(PeerMessage::Stop);
        // The sender lives as long as `self`.
        let _ = may_stop.wait_for(|may_stop| *may_stop).await;
    }

    /// Returns the successor that this process has named. Pings go to it every P/16, and none after a withdrawal.
    pub(crate) fn successor(&self) -> Option<NamedSuccessor> {
        let state = self.state.lock();
        let standby = state.own.as_ref()?.pinged.as_ref()?;
        let (since, last) = standby.named?;
        let is_named = self.clock.now().since(last) < self.period.get() / 4;
        let Standby { address, acknowledged_at, .. } = *standby;
        is_named.then_some(NamedSuccessor { address, since, acknowledged_at })
    }

    pub(crate) fn fates(&self) -> impl Iterator<Item = (DatagramFate, u64)> {
        DatagramFate::ALL.into_iter().zip(self.fates.iter().map(|count| count.load(Relaxed)))
    }

    /// Receives datagrams, reads documents in `storage`, waits for confirmations of `enforcers`. May be called again.
    pub(crate) async fn serve(
        &self,
        storage: &ElectionsTtlStorage,
        enforcers: &[DeadlineEnforcer],
    ) -> Infallible {
        tokio::select! {
            never = self.confirm(enforcers.to_vec()) => never,
            never = self.find(storage) => never,
            never = self.receive() => never,
        }
    }

    fn count(&self, fate: DatagramFate) {
        self.fates[fate as usize].fetch_add(1, Relaxed);
    }

    fn document_pause(&self) -> Duration {
        (self.period.get() / 4).max(DOCUMENT_PAUSE)
    }

    async fn receive(&self) -> Infallible {
        // One byte more, so that a longer one is not taken for a datagram.
        let mut bytes = [0; LEN + 1];
        loop {
            for _ in 0..AT_ONCE {
                match self.socket.recv_from(&mut bytes).await {
                    Ok((len, from)) => self.received(&bytes[..len], from),
                    Err(_) => self.clock.sleep(PAUSE).await,
                }
            }
            yield_now().await;
        }
    }

    fn received(&self, bytes: &[u8], from: SocketAddr) {
        let delivered = {
            let mut state = self.state.lock();
            let state = &mut *state;
            match Unverified::parse(bytes).filter(|datagram| datagram.slot == self.slot) {
                Some(datagram) => match datagram.kind {
                    Kind::Ping => state.pinged(&datagram, self.clock.now()),
                    Kind::Offer => state.offered(&datagram, from, self),
                    Kind::Answer => state.answered(&datagram, self.clock.now()),
                }
                .and_then(|datagram| Ok((datagram, state.inbox.clone().ok_or(DatagramFate::Foreign)?))),
                None => Err(DatagramFate::Foreign),
            }
        };
        match delivered {
            Ok((datagram, inbox)) => {
                self.count(DatagramFate::Received);
                // Without the lock: the inbox may call this link.
                inbox.deliver(PeerMessage::Received(datagram));
            }
            Err(fate) => self.count(fate),
        }
    }

    /// Reads the document of the leader that is looked for, until it is there.
    async fn find(&self, storage: &ElectionsTtlStorage) -> Infallible {
        loop {
            let sought = self.state.lock().sought.clone();
            let Some((slot, entry)) = sought else {
                self.seeks.notified().await;
                continue;
            };
            let Some(id) = document::id() else { return pending().await };
            let document = tokio::select! {
                biased;
                document = caught(storage.document(&slot, &id)) => document.ok().and_then(Result::ok).flatten(),
                () = self.clock.sleep(self.period.get() / 2) => None,
            };
            let found = document.and_then(|document| self.leader_in(&document, &entry));
            if let Some(leader) = found {
                self.found(leader);
                continue;
            }
            self.clock.sleep(self.document_pause()).await;
        }
    }

    fn leader_in(&self, document: &ielections::Document, entry: &Entry) -> Option<KnownLeader> {
        let record = (entry.incarnation(), entry.epoch);
        let read = LeaderAddress::read(document, record)?;
        let key = self.key.with_leader(&read.public_key()?, self.slot, record)?;
        let (ttl, address) = (entry.ttl, read.address);
        let acknowledged_at = None;
        Some(KnownLeader { record, ttl, address, key, offer: None, last_number: 0, acknowledged_at })
    }

    fn found(&self, leader: KnownLeader) {
        let found = {
            let mut state = self.state.lock();
            // A later look may have shown another record meanwhile, or a later version of this one.
            let (record, inbox) = (leader.record, state.inbox.clone());
            let found = state.sought.take_if(|(_, entry)| entry.is_of(record.0, record.1));
            found.and_then(|(_, entry)| {
                state.leader = Some(leader);
                Some((inbox?, entry))
            })
        };
        if let Some((inbox, entry)) = found {
            inbox.deliver(PeerMessage::Found(entry));
        }
    }

    /// Delivers each deadline that is in force everywhere.
    async fn confirm(&self, mut enforcers: Vec<DeadlineEnforcer>) -> Infallible {
        loop {
            let tightening = self.state.lock().tightening;
            let Some(kill_at) = tightening else {
                self.tightens.notified().await;
                continue;
            };
            tokio::select! {
                biased;
                () = self.tightens.notified() => continue,
                () = in_force(&mut enforcers, kill_at) => {}
            }
            let inbox = {
                let mut state = self.state.lock();
                let is_last = state.tightening.take_if(|last| *last == kill_at).is_some();
                state.inbox.clone().filter(|_| is_last)
            };
            if let Some(inbox) = inbox {
                inbox.deliver(PeerMessage::InForce(kill_at));
            }
        }
    }

    fn transmit(&self, datagram: &Datagram, to: SocketAddr, key: &PairKey) -> DatagramFate {
        let bytes = encode(self.slot, datagram, &self.key.public, key);
        match self.socket.try_send_to(&bytes, to) {
            Ok(_) => DatagramFate::Sent,
            // The queue is full, or there is no way to the peer. The next one follows.
            Err(_) => DatagramFate::Unsent,
        }
    }
}

impl PeerLink<ElectionKey> for UdpPeerLink {
    fn connect(&self, inbox: PeerInbox) {
        self.state.lock().inbox = Some(inbox);
    }

    fn find_leader(&self, slot: &ElectionKey, entry: &Entry) -> bool {
        let mut state = self.state.lock();
        let known = state.leader.as_ref().map(|leader| leader.record);
        if known.is_some_and(|(incarnation, epoch)| entry.is_of(incarnation, epoch)) {
            state.sought = None;
            return true;
        }
        state.sought = Some((slot.clone(), entry.clone()));
        self.seeks.notify_one();
        false
    }

    fn send(&self, datagram: Datagram) {
        let mut state = self.state.lock();
        let fate = match &datagram {
            Datagram::ToLeader(message) => {
                let pairing = match message {
                    FromStandby::Offer(pairing) | FromStandby::Answer { pairing, .. } => pairing,
                };
                let record = (pairing.incarnation, pairing.epoch);
                state.leader.as_mut().filter(|leader| leader.record == record).map(|leader| {
                    match message {
                        FromStandby::Offer(_) => {
                            (leader.offer, leader.last_number) = (Some(pairing.offer), 0);
                        }
                        FromStandby::Answer { acknowledges, .. } => {
                            let now = acknowledges.then(|| self.clock.now());
                            leader.acknowledged_at = now.or(leader.acknowledged_at);
                        }
                    }
                    self.transmit(&datagram, leader.address, &leader.key)
                })
            }
            Datagram::ToStandby(ping) => {
                let record = (ping.pairing.incarnation, ping.pairing.epoch);
                state.own.as_mut().filter(|own| own.record == record).and_then(|own| {
                    let is_meant = |standby: &Standby| standby.offer == ping.pairing.offer;
                    if !own.pinged.as_ref().is_some_and(is_meant) {
                        let at = own.offered.iter().position(is_meant)?;
                        own.pinged = own.offered.remove(at);
                    }
                    let (now, standby) = (self.clock.now(), own.pinged.as_mut()?);
                    let is_named_now = ping.below.is_some() && standby.named.is_none();
                    let first = standby.named.map_or(now, |(first, _)| first);
                    standby.named = ping.below.map(|_| (first, now));
                    let fate = self.transmit(&datagram, standby.address, &standby.key);
                    // Only once it is under way: a reader of the line may stop this process at once.
                    if is_named_now {
                        let (event, name, address) = ("successor_named", &self.name, standby.address);
                        tracing::info!(
                            target: "vvm", event, %name, slot = 1, epoch = record.1.get(), %address,
                            "{name} slot 1: successor named: {address}"
                        );
                        self.named.send_replace(Some(address));
                    }
                    Some(fate)
                })
            }
        };
        self.count(fate.unwrap_or(DatagramFate::Unsent));
    }

    fn tighten(&self, kill_at: Instant) {
        self.state.lock().tightening = Some(kill_at);
        self.tightens.notify_one();
    }

    fn may_stop(&self) {
        self.may_stop.send_replace(true);
    }

    fn withdrawn(&self, why: Withdrawal) {
        let mut state = self.state.lock();
        let Some(own) = &mut state.own else { return };
        let Some(standby) = own.pinged.as_mut().filter(|standby| standby.named.is_some()) else { return };
        standby.named = None;
        // At a stop, the release follows at once, and waits for no write.
        if why != Withdrawal::Stop {
            self.named.send_replace(None);
        }
        let (event, name, address) = ("successor_withdrawn", &self.name, standby.address);
        let (why, says) = match why {
            Withdrawal::Asked => ("asked", "it stops"),
            Withdrawal::Stop => ("stopping", "this leader stops"),
            Withdrawal::Silent => ("silent", "it does not answer"),
            Withdrawal::Slow => ("slow", "the storage is too slow for the support period"),
        };
        tracing::info!(
            target: "vvm", event, %name, slot = 1, epoch = own.record.1.get(), %address, why,
            "{name} slot 1: successor {address} withdrawn: {says}"
        );
    }

    fn has_succeeded(&self) {
        let mut state = self.state.lock();
        let acknowledged_at = state.leader.as_ref().and_then(|leader| leader.acknowledged_at);
        state.succeeded_after = acknowledged_at.map(|at| at.until(self.clock.now()));
    }
}

#[cfg(test)]
mod tests;
