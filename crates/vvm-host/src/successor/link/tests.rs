use super::{
    peers::{AGREEMENTS, OFFERS},
    *,
};
use crate::{
    status::tests::{PanicsOnce, in_steps, key},
    successor::{ProbeOutcome, probe_leader},
};
use ielections::{
    Candidacy, Elections, Holder, Leadership, Terms, TtlStorage as _, Version,
    successor::{Pairing, Ping},
    testing::env,
};
use std::net::Ipv4Addr;
use testing_time::MockClock;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use vvm_storage::{mem::MemDatabase, testing::Layer as _};

struct Peer {
    link: Arc<UdpPeerLink>,
    delivered: mpsc::UnboundedReceiver<PeerMessage>,
    end: CancellationToken,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

fn period() -> SupportPeriod {
    SupportPeriod::new(Duration::from_secs(2), Ttl::DEFAULT).unwrap()
}

fn bind(settings: &SuccessorSettings, clock: &MockClock) -> Result<UdpPeerLink, SuccessorRefusal> {
    UdpPeerLink::bind(settings, period(), &key(), &env(clock))
}

fn loopback() -> SuccessorSettings {
    SuccessorSettings::new((Ipv4Addr::LOCALHOST, 0).into())
}

impl Peer {
    fn new(scene: &Scene, enforcers: Vec<DeadlineEnforcer>) -> Self {
        let link = Arc::new(bind(&loopback(), &scene.clock).unwrap());
        let (deliver, delivered) = mpsc::unbounded_channel();
        link.connect(PeerInbox::new(move |message| drop(deliver.send(message))));
        let (served, storage) = (Arc::clone(&link), Arc::clone(&scene.storage));
        let end = CancellationToken::new();
        let ended = end.clone();
        let serving = async move {
            tokio::select! {
                never = served.serve(&storage, &enforcers) => match never {},
                () = ended.cancelled() => {}
            }
        };
        env(&scene.clock).spawn.spawn("link", Box::pin(serving));
        Self { link, delivered, end }
    }

    async fn next(&mut self) -> PeerMessage {
        self.delivered.recv().await.unwrap()
    }

    async fn received(&mut self) -> Datagram {
        let message = self.next().await;
        let PeerMessage::Received(datagram) = message else { panic!("{message:?}") };
        datagram
    }

    async fn has_counted(&self, fate: DatagramFate, least: u64) {
        while self.link.fates().any(|(of, count)| of == fate && count < least) {
            yield_now().await;
        }
    }

    fn nothing_more(&mut self) {
        assert!(self.delivered.try_recv().is_err());
    }
}

struct Scene {
    clock: MockClock,
    storage: Arc<ElectionsTtlStorage>,
}

impl Scene {
    fn new() -> Self {
        Self::with_panics().0
    }

    fn with_panics() -> (Self, Arc<PanicsOnce>) {
        let clock = MockClock::starting_at(Instant::from_nanos(1_000_000_000));
        let database = MemDatabase::new(Arc::new(clock.clone()));
        let panics = Arc::new(PanicsOnce::over(database.open()));
        let storage = Arc::new(ElectionsTtlStorage::new(Arc::clone(&panics).into_storage()));
        (Self { clock, storage }, panics)
    }

    async fn leadership(&self) -> Leadership {
        let elections = Elections::new(Arc::clone(&self.storage) as _, env(&self.clock));
        let terms = Terms::new(Holder::new("here").unwrap(), Ttl::DEFAULT);
        elections.acquire(Candidacy { slots: vec![key()], terms }).await.unwrap().1
    }

    async fn entry(&self) -> Entry {
        self.storage.get(&key()).await.unwrap().entry().unwrap().clone()
    }

    async fn pair(&self) -> (Peer, Peer, Pairing, Leadership) {
        let (leader, mut standby) = (Peer::new(self, Vec::new()), Peer::new(self, Vec::new()));
        let leadership = self.leadership().await;
        leader.link.leads(leadership.standing(), Ttl::DEFAULT);
        leader.link.publish(leadership.standing(), &leadership.standing().documents().unwrap()).await;
        let entry = self.entry().await;
        assert!(!standby.link.find_leader(&key(), &entry));
        assert!(matches!(standby.next().await, PeerMessage::Found(found) if found == entry));
        assert!(standby.link.find_leader(&key(), &entry));
        let pairing = pairing(&entry, 1);
        (leader, standby, pairing, leadership)
    }
}

fn pairing(entry: &Entry, offer: u8) -> Pairing {
    Pairing { incarnation: entry.incarnation(), epoch: entry.epoch, offer: [offer; 16] }
}

fn offer(pairing: Pairing) -> Datagram {
    Datagram::ToLeader(FromStandby::Offer(pairing))
}

fn ping(pairing: Pairing, number: u64) -> Datagram {
    Datagram::ToStandby(Ping { pairing, number, period: period(), below: Some(1 << 32) })
}

fn answer(pairing: Pairing, number: u64) -> Datagram {
    Datagram::ToLeader(FromStandby::Answer { pairing, number, acknowledges: true, leaves: false })
}

#[tokio::test]
async fn leader_and_standby_find_and_hear_each_other_and_a_repetition_has_no_effect() {
    let scene = Scene::new();
    let (mut leader, mut standby, pairing, _leadership) = scene.pair().await;
    standby.link.send(offer(pairing));
    standby.link.send(offer(pairing));
    assert_eq!(leader.received().await, offer(pairing));
    for number in [2, 2, 1, 3] {
        leader.link.send(ping(pairing, number));
    }
    for number in [2, 3] {
        assert_eq!(standby.received().await, ping(pairing, number));
        standby.link.send(answer(pairing, number));
        standby.link.send(answer(pairing, number));
        assert_eq!(leader.received().await, answer(pairing, number));
    }
    standby.has_counted(DatagramFate::Repeated, 2).await;
    leader.has_counted(DatagramFate::Repeated, 3).await;
    standby.nothing_more();
    leader.nothing_more();
}

#[tokio::test]
async fn datagram_of_another_offer_leadership_or_process_is_dropped() {
    let scene = Scene::new();
    let (mut leader, mut standby, pairing, _leadership) = scene.pair().await;
    standby.link.send(offer(pairing));
    assert_eq!(leader.received().await, offer(pairing));
    standby.link.send(answer(pairing, 1));
    leader.has_counted(DatagramFate::Foreign, 1).await;
    leader.link.send(ping(pairing, 1));
    assert_eq!(standby.received().await, ping(pairing, 1));
    // A new offer: the leader still pings the one before.
    let renewed = Pairing { offer: [2; 16], ..pairing };
    standby.link.send(offer(renewed));
    assert_eq!(leader.received().await, offer(renewed));
    leader.link.send(ping(pairing, 2));
    standby.has_counted(DatagramFate::Foreign, 1).await;
    standby.link.send(answer(renewed, 1));
    leader.has_counted(DatagramFate::Foreign, 2).await;
    leader.link.send(ping(renewed, 3));
    assert_eq!(standby.received().await, ping(renewed, 3));
    // An observer repeats an answer with a far larger number.
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let mut bytes = encode(
        SlotId::of(&key()),
        &answer(renewed, 3),
        &standby.link.key.public,
        &standby.link.state.lock().leader.as_ref().unwrap().key,
    );
    bytes[64] ^= 1;
    stranger.send_to(&bytes, leader.link.address).await.unwrap();
    leader.has_counted(DatagramFate::Foreign, 3).await;
    let last_number =
        leader.link.state.lock().own.as_ref().unwrap().pinged.as_ref().map(|pinged| pinged.last_number);
    assert_eq!(last_number, Some(0), "answers of the standby would be repetitions");
    leader.link.campaigns();
    standby.link.send(answer(renewed, 3));
    leader.has_counted(DatagramFate::Foreign, 4).await;
    standby.nothing_more();
    leader.nothing_more();
}

#[tokio::test]
async fn flood_is_dropped_and_the_peer_is_heard() {
    let scene = Scene::new();
    let (mut leader, mut standby, pairing, _leadership) = scene.pair().await;
    standby.link.send(offer(pairing));
    assert_eq!(leader.received().await, offer(pairing));
    leader.link.send(ping(pairing, 1));
    assert_eq!(standby.received().await, ping(pairing, 1));
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    // Offers of a reader of the document, each with another key, and bytes that mean nothing.
    let record = (pairing.incarnation, pairing.epoch);
    let mut sent = 0;
    for number in 0..40_u8 {
        let reader = OwnKey::new(&ielections::OsEntropy::default());
        let key = reader.with_leader(&leader.link.key.public, leader.link.slot, record).unwrap();
        let forged = offer(Pairing { offer: [100 + number; 16], ..pairing });
        let forged = encode(leader.link.slot, &forged, &reader.public, &key);
        for bytes in [&forged[..], &[number; LEN], &[number; 9]] {
            stranger.send_to(bytes, leader.link.address).await.unwrap();
            sent += 1;
        }
        yield_now().await;
    }
    standby.link.send(answer(pairing, 1));
    let mut offers = 0;
    while leader.received().await != answer(pairing, 1) {
        offers += 1;
    }
    // The first second began with the offer of the standby.
    assert_eq!(offers, OFFERS - 1);
    let dropped = [DatagramFate::Foreign, DatagramFate::Surplus];
    let dropped = leader.link.fates().filter(|(fate, _)| dropped.contains(fate)).map(|(_, count)| count);
    assert_eq!(dropped.sum::<u64>() + u64::from(offers), sent);
    leader.link.send(ping(pairing, 2));
    assert_eq!(standby.received().await, ping(pairing, 2));

    scene.clock.advance(Duration::from_secs(1));
    let count = |of| leader.link.fates().find(|(fate, _)| *fate == of).unwrap().1;
    let counts = || [DatagramFate::Foreign, DatagramFate::Surplus].map(count);
    let ([foreign, surplus], forged) = (counts(), offer(Pairing { offer: [200; 16], ..pairing }));
    for _ in 0..2 * AGREEMENTS {
        let reader = OwnKey::new(&ielections::OsEntropy::default());
        let key = standby.link.key.with_leader(&leader.link.key.public, leader.link.slot, record).unwrap();
        let forged = encode(leader.link.slot, &forged, &reader.public, &key);
        stranger.send_to(&forged, leader.link.address).await.unwrap();
        yield_now().await;
    }
    let most = u64::from(AGREEMENTS);
    while counts().iter().sum::<u64>() < foreign + surplus + 2 * most {
        yield_now().await;
    }
    assert_eq!(counts(), [foreign + most, surplus + most]);
}

#[tokio::test]
async fn document_of_another_leadership_is_read_again_until_it_is_replaced() {
    let scene = Scene::new();
    let (leader, mut standby) = (Peer::new(&scene, Vec::new()), Peer::new(&scene, Vec::new()));
    let first = scene.leadership().await;
    leader.link.publish(first.standing(), &first.standing().documents().unwrap()).await;
    first.release().await;
    let leadership = scene.leadership().await;
    let entry = scene.entry().await;
    assert!(!standby.link.find_leader(&key(), &entry));
    while scene.clock.sleepers() == 0 {
        yield_now().await;
    }
    leader.link.publish(leadership.standing(), &leadership.standing().documents().unwrap()).await;
    let version = Version { write: entry.version.write + 1, ..entry.version };
    let renewed = entry.renewed(version);
    assert!(!standby.link.find_leader(&key(), &renewed));
    standby.nothing_more();
    scene.clock.advance(DOCUMENT_PAUSE);
    assert!(matches!(standby.next().await, PeerMessage::Found(found) if found == renewed));
}

#[tokio::test]
async fn read_of_the_document_that_panics_is_repeated() {
    let (scene, panics) = Scene::with_panics();
    let leader = Peer::new(&scene, Vec::new());
    let leadership = scene.leadership().await;
    leader.link.publish(leadership.standing(), &leadership.standing().documents().unwrap()).await;
    let (link, entry) = (bind(&loopback(), &scene.clock).unwrap(), scene.entry().await);
    let (deliver, mut delivered) = mpsc::unbounded_channel();
    link.connect(PeerInbox::new(move |message| drop(deliver.send(message))));
    link.find_leader(&key(), &entry);
    panics.at_next("document");
    let found = async {
        tokio::select! {
            never = link.serve(&scene.storage, &[]) => match never {},
            found = delivered.recv() => found,
        }
    };
    let found = in_steps(&scene.clock, DOCUMENT_PAUSE, found).await;
    assert!(matches!(found, Some(PeerMessage::Found(found)) if found == entry));
    assert!(!panics.will_panic());
}

#[tokio::test]
async fn deadline_is_in_force_once_each_process_has_confirmed_exactly_this_one() {
    let scene = Scene::new();
    let at = Instant::from_nanos;
    let guardian = watch::Sender::new(Some(at(900)));
    let (keeper_slot, is_keeper) = watch::channel(None);
    let (_running, is_running) = watch::channel(Some(guardian.subscribe()));
    let mut leader = Peer::new(&scene, vec![is_running, is_keeper]);
    let settle = async || {
        for _ in 0..100 {
            yield_now().await;
        }
    };
    leader.link.tighten(at(500));
    settle().await;
    // One that is later is not this one, nor is one that is earlier.
    for other in [Some(at(501)), Some(at(499)), None] {
        guardian.send_replace(other);
        settle().await;
        leader.nothing_more();
    }
    let keeper = watch::Sender::new(None);
    keeper_slot.send_replace(Some(keeper.subscribe()));
    guardian.send_replace(Some(at(500)));
    keeper.send_replace(Some(at(900)));
    settle().await;
    leader.nothing_more();
    keeper.send_replace(Some(at(500)));
    assert!(matches!(leader.next().await, PeerMessage::InForce(kill_at) if kill_at == at(500)));
    // Once for each naming, and for the last one alone.
    settle().await;
    leader.nothing_more();
    leader.link.tighten(at(600));
    leader.link.tighten(at(700));
    keeper_slot.send_replace(None);
    for earlier in [600, 700] {
        settle().await;
        leader.nothing_more();
        guardian.send_replace(Some(at(earlier)));
    }
    assert!(matches!(leader.next().await, PeerMessage::InForce(kill_at) if kill_at == at(700)));
}

#[tokio::test]
async fn without_other_processes_a_deadline_is_in_force_at_once() {
    let mut leader = Peer::new(&Scene::new(), Vec::new());
    leader.link.tighten(Instant::from_nanos(500));
    assert!(matches!(leader.next().await, PeerMessage::InForce(_)));
}

#[tokio::test]
async fn planned_stop_waits_for_the_word_of_this_campaign() {
    let mut leader = Peer::new(&Scene::new(), Vec::new());
    // Of an earlier stop, too late.
    leader.link.may_stop();
    let link = Arc::clone(&leader.link);
    tokio::select! {
        biased;
        () = link.ask_to_stop() => panic!("nothing was answered"),
        message = leader.next() => assert!(matches!(message, PeerMessage::Stop)),
    }
    let ((), is_stop) = tokio::join!(link.ask_to_stop(), async {
        let is_stop = matches!(leader.delivered.recv().await, Some(PeerMessage::Stop));
        link.may_stop();
        is_stop
    });
    assert!(is_stop);
    leader.link.campaigns();
    leader.link.ask_to_stop().await;
}

#[tokio::test]
async fn address_that_no_other_machine_reaches_is_refused() {
    let clock = MockClock::new();
    let settings = SuccessorSettings::new("0.0.0.0:0".parse().unwrap());
    assert!(matches!(bind(&settings, &clock), Err(SuccessorRefusal::Unreachable(_))));
    let advertised = SuccessorSettings { advertise: Some("10.0.0.7:0".parse().unwrap()), ..settings };
    let link = bind(&advertised, &clock).unwrap();
    let port = link.socket.local_addr().unwrap().port();
    assert_eq!(link.address, SocketAddr::from(([10, 0, 0, 7], port)));
    let taken = SuccessorSettings::new((Ipv4Addr::LOCALHOST, port).into());
    let refusal = bind(&taken, &clock).unwrap_err();
    assert!(refusal.to_string().contains(&format!("127.0.0.1:{port}")), "{refusal}");
}

#[tokio::test]
async fn document_shows_the_successor_while_it_is_named() {
    let scene = Scene::new();
    let (mut leader, standby, pairing, leadership) = scene.pair().await;
    let (link, standing) = (Arc::clone(&leader.link), leadership.standing().clone());
    let documents = standing.documents().unwrap();
    let entry = scene.entry().await;
    let shown = async |expected| {
        while document::named_successor(&scene.storage, &key(), &entry).await.unwrap() != expected {
            yield_now().await;
        }
    };
    let story = async {
        standby.link.send(offer(pairing));
        assert_eq!(leader.received().await, offer(pairing));
        assert_eq!(document::named_successor(&scene.storage, &key(), &entry).await.unwrap(), None);
        leader.link.send(ping(pairing, 1));
        shown(Some(standby.link.address)).await;
        leader.link.withdrawn(Withdrawal::Silent);
        shown(None).await;
        leader.link.withdrawn(Withdrawal::Silent);
        assert_eq!(leader.link.successor(), None);
    };
    tokio::select! {
        never = link.keep_published(&standing, &documents) => match never {},
        () = story => {}
    }
}

#[tokio::test]
async fn leader_answers_a_probe_and_one_with_a_successor_is_left_alone() {
    let scene = Scene::new();
    let (mut leader, _standby, _, leadership) = scene.pair().await;
    let entry = scene.entry().await;
    let probe = async || {
        let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        probe_leader(&scene.storage, (&key(), &entry), socket, &scene.clock).await.unwrap()
    };
    let answering = async {
        let Datagram::ToLeader(FromStandby::Offer(pairing)) = leader.received().await else { panic!() };
        scene.clock.advance(Duration::from_millis(3));
        let test = Ping { pairing, number: 1, period: period(), below: None };
        leader.link.send(Datagram::ToStandby(test));
        pairing
    };
    let (outcome, pairing) = tokio::join!(probe(), answering);
    assert_eq!(outcome, ProbeOutcome::Answered(leader.link.address, Duration::from_millis(3)));
    let (documents, standing) = (leadership.standing().documents().unwrap(), leadership.standing());
    leader.link.send(ping(pairing, 2));
    leader.link.publish(standing, &documents).await;
    assert!(matches!(probe().await, ProbeOutcome::HasSuccessor(_)));
    leader.nothing_more();
}
