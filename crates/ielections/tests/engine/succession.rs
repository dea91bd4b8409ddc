//! A leader with a successor: the engine with its deadman, and a network in memory.

use crate::{candidacy, on};
use ielections::{
    AcquireError, AcquireTimeout, Candidacy, Entry, Holder, Leadership, Loss, ReleaseOutcome, Terms, Ttl,
    TtlStorage,
    successor::{
        Datagram, FromStandby, PeerInbox, PeerLink, PeerMessage, SuccessorTerms, SupportPeriod, Withdrawal,
    },
    testing::{
        Model,
        elections_suite::Process,
        mock::{Fault, FaultyStorage, Verb},
    },
};
use std::{
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use testing_time::MockClock;
use vvm_clock::{Clock, Instant};
use vvm_deadman::recording::RecordingTrigger;

const TTL: Duration = Duration::from_secs(300);
const P: Duration = Duration::from_secs(5);

fn support(period: Duration, ttl: Duration) -> SupportPeriod {
    SupportPeriod::new(period, Ttl::new(ttl).unwrap()).unwrap()
}

/// Delivers datagrams at once. It knows every leader.
#[derive(Debug, Default)]
struct Network(Mutex<Vec<Arc<MemoryLink>>>);

#[derive(Debug)]
struct MemoryLink {
    holder: &'static str,
    network: Arc<Network>,
    trigger: Arc<RecordingTrigger>,
    inbox: Mutex<Option<PeerInbox>>,
    is_cut: AtomicBool,
    /// Guardian and keeper confirm no deadline.
    is_deaf: AtomicBool,
    may_stop: AtomicUsize,
    withdrawals: Mutex<Vec<Withdrawal>>,
    has_succeeded: AtomicBool,
    sent: Mutex<Vec<Datagram>>,
}

impl MemoryLink {
    fn deliver(&self, message: PeerMessage) {
        if let Some(inbox) = self.inbox.lock().unwrap().as_ref() {
            inbox.deliver(message);
        }
    }

    fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    fn may_stop(&self) -> usize {
        self.may_stop.load(Ordering::Relaxed)
    }

    fn has_named(&self) -> bool {
        self.sent
            .lock()
            .unwrap()
            .iter()
            .any(|sent| matches!(sent, Datagram::ToStandby(ping) if ping.below.is_some()))
    }

    fn is_named(&self) -> bool {
        let acknowledges = |sent: &Datagram| {
            matches!(sent, Datagram::ToLeader(FromStandby::Answer { acknowledges: true, .. }))
        };
        self.sent.lock().unwrap().iter().any(acknowledges)
    }

    fn offers(&self) -> usize {
        let is_offer = |sent: &&Datagram| matches!(sent, Datagram::ToLeader(FromStandby::Offer(_)));
        self.sent.lock().unwrap().iter().filter(is_offer).count()
    }

    fn withdrawals(&self) -> Vec<Withdrawal> {
        self.withdrawals.lock().unwrap().clone()
    }
}

impl PeerLink<u32> for MemoryLink {
    fn connect(&self, inbox: PeerInbox) {
        *self.inbox.lock().unwrap() = Some(inbox);
    }

    fn find_leader(&self, _slot: &u32, entry: &Entry) -> bool {
        entry.holder.as_str() != self.holder
    }

    fn send(&self, datagram: Datagram) {
        self.sent.lock().unwrap().push(datagram);
        let links = self.network.0.lock().unwrap().clone();
        for other in links {
            if other.holder != self.holder && !self.is_cut() && !other.is_cut() {
                other.deliver(PeerMessage::Received(datagram));
            }
        }
    }

    fn tighten(&self, kill_at: Instant) {
        let earliest = self.trigger.earliest().map(|(at, _)| at);
        if earliest == Some(kill_at) && !self.is_deaf.load(Ordering::Relaxed) {
            self.deliver(PeerMessage::InForce(kill_at));
        }
    }

    fn may_stop(&self) {
        self.may_stop.fetch_add(1, Ordering::Relaxed);
    }

    fn withdrawn(&self, why: Withdrawal) {
        self.withdrawals.lock().unwrap().push(why);
    }

    fn has_succeeded(&self) {
        self.has_succeeded.store(true, Ordering::Relaxed);
    }
}

struct Candidate {
    process: Process<u32>,
    storage: Arc<FaultyStorage<u32>>,
    link: Arc<MemoryLink>,
    holder: &'static str,
    ttl: Duration,
    period: Duration,
}

impl Candidate {
    fn start(
        clock: &MockClock,
        model: &Arc<Model<u32>>,
        network: &Arc<Network>,
        holder: &'static str,
    ) -> Self {
        let time: Arc<dyn Clock> = Arc::new(clock.clone());
        let storage = Arc::new(FaultyStorage::new(model.open(), Arc::clone(&time)));
        let process = Process::start(Arc::clone(&storage) as Arc<dyn TtlStorage<u32>>, time);
        let link = Arc::new(MemoryLink {
            holder,
            network: Arc::clone(network),
            trigger: Arc::clone(&process.trigger),
            inbox: Mutex::default(),
            is_cut: AtomicBool::new(false),
            is_deaf: AtomicBool::new(false),
            may_stop: AtomicUsize::new(0),
            withdrawals: Mutex::default(),
            has_succeeded: AtomicBool::new(false),
            sent: Mutex::default(),
        });
        network.0.lock().unwrap().push(Arc::clone(&link));
        Self { process, storage, link, holder, ttl: TTL, period: P }
    }

    async fn acquire(&self) -> Leadership {
        self.acquire_within(AcquireTimeout::Forever).await.unwrap()
    }

    async fn acquire_within(&self, timeout: AcquireTimeout) -> Result<Leadership, AcquireError> {
        let slots = vec![0];
        let holder = Holder::new(self.holder).unwrap();
        let terms = Terms { timeout, ..Terms::new(holder, Ttl::new(self.ttl).unwrap()) };
        let link = Arc::clone(&self.link) as _;
        let successor = SuccessorTerms { period: support(self.period, self.ttl), link };
        let acquired = self.process.elections.acquire_with_successor(Candidacy { slots, terms }, successor);
        Ok(acquired.await?.1)
    }

    fn lose_storage(&self) {
        for verb in [Verb::Get, Verb::Scan, Verb::TakeOver, Verb::CompareAndSwap, Verb::CompareAndDelete] {
            self.storage.fail_always(verb, Fault::LostRequest);
        }
    }

    fn cut(&self) {
        self.link.is_cut.store(true, Ordering::Relaxed);
    }

    fn kill_at(&self) -> Instant {
        self.process.trigger.earliest().unwrap().0
    }
}

struct Pair {
    clock: MockClock,
    leader: Candidate,
    standby: Candidate,
}

impl Pair {
    fn new(clock: MockClock) -> Self {
        let (model, network) = (Model::new(), Arc::new(Network::default()));
        let start = |holder| Candidate::start(&clock, &model, &network, holder);
        let (leader, standby) = (start("leader"), start("standby"));
        Self { clock, leader, standby }
    }

    async fn pass(&self, span: Duration) {
        self.clock.sleep(span).await;
    }

    async fn until(&self, seen: impl Fn() -> bool) {
        while !seen() {
            self.pass(Duration::from_millis(1)).await;
        }
    }

    async fn until_named(&self) {
        self.until(|| self.standby.link.is_named()).await;
    }
}

fn in_mock_time(story: impl AsyncFnOnce(Pair)) {
    let clock = MockClock::new();
    on(&clock, async { story(Pair::new(clock.clone())).await });
}

/// Shows I1 beside a right to claim, and the price of a lost machine: P and one claim.
#[test]
fn loss_of_the_leaders_machine_costs_little_more_than_the_support_period() {
    in_mock_time(async |pair| {
        let _leadership = pair.leader.acquire().await;
        let mut standby = pin!(pair.standby.acquire());
        let naming = async {
            pair.until_named().await;
            pair.pass(TTL * 2).await;
        };
        tokio::select! {
            biased;
            _ = &mut standby => panic!("two leaders"),
            () = naming => {}
        }
        let (crashed_at, kill_at) = (pair.clock.now(), pair.leader.kill_at());
        assert!(kill_at > crashed_at, "renewals and acknowledgements have moved both deadlines");
        assert!(kill_at <= crashed_at.after(P * 4 / 5), "the deadline of the support period is in force");
        pair.leader.process.crash();
        pair.leader.cut();
        let next = standby.await;
        let led_at = pair.clock.now();
        assert!(
            led_at > kill_at && led_at <= crashed_at.after(P * 11 / 10),
            "{:?}",
            led_at.since(crashed_at)
        );
        assert_eq!(pair.standby.kill_at(), next.standing().kill_at());
        assert!(pair.standby.link.has_succeeded.load(Ordering::Relaxed), "by right, and not by a take-over");
        assert_eq!(next.release().await, ReleaseOutcome::Released);
    });
}

#[test]
fn outage_of_the_storage_does_not_end_a_leader_with_a_successor() {
    in_mock_time(async |pair| {
        let leadership = pair.leader.acquire().await;
        let outage = async {
            pair.until_named().await;
            pair.leader.lose_storage();
            pair.standby.lose_storage();
            pair.pass(Duration::from_secs(180)).await;
            assert_eq!(leadership.standing().loss(), None);
            assert!(leadership.remaining() > P / 2);
            pair.leader.storage.heal();
            pair.standby.storage.heal();
            pair.pass(P).await;
            assert_eq!(
                pair.leader.process.deadman.armed(),
                2,
                "the deadlines of the TTL and of the support period"
            );
            assert_eq!(leadership.release().await, ReleaseOutcome::Released);
            assert_eq!(pair.leader.process.deadman.armed(), 0);
        };
        let (next, ()) = tokio::join!(pair.standby.acquire(), outage);
        next.release().await;
    });
}

/// Shows I3: the deadline of the TTL is the earlier one then, and that of the support period never stands alone.
#[test]
fn hand_back_near_the_end_of_the_ttl_moves_no_deadline_later() {
    in_mock_time(async |mut pair| {
        let ttl = Duration::from_secs(120);
        for candidate in [&mut pair.leader, &mut pair.standby] {
            (candidate.ttl, candidate.period) = (ttl, ttl / 4);
        }
        let (leadership, trigger) = (pair.leader.acquire().await, &pair.leader.process.trigger);
        let handing_back = async {
            pair.until_named().await;
            pair.pass(ttl).await;
            pair.leader.lose_storage();
            let confirmed = pair.leader.storage.calls_of(Verb::CompareAndSwap).pop().unwrap();
            let kill_at = confirmed.at.after(ttl * 4 / 5);
            pair.until(|| pair.leader.kill_at() == kill_at).await;
            assert_eq!((leadership.standing().loss(), pair.leader.process.deadman.armed()), (None, 2));
            pair.leader.storage.heal();
            let calls = trigger.calls();
            assert_eq!(leadership.release().await, ReleaseOutcome::Released);
            assert_eq!((trigger.earliest(), trigger.calls()), (None, calls + 1), "removed by one call");
        };
        let (next, ()) = tokio::join!(pair.standby.acquire(), handing_back);
        next.release().await;
    });
}

/// The call is limited by the TTL, and no work is left.
#[test]
fn hand_back_during_a_slow_renewal_ends_the_support_period_at_once() {
    in_mock_time(async |pair| {
        let leadership = pair.leader.acquire().await;
        let handing_back = async {
            pair.until_named().await;
            for verb in [Verb::CompareAndSwap, Verb::Get] {
                pair.leader.storage.fail_always(verb, Fault::SlowAnswer(TTL));
            }
            pair.pass(TTL / 3).await;
            assert_eq!((leadership.standing().loss(), pair.leader.process.deadman.armed()), (None, 2));
            let renewals = || pair.leader.storage.count(Verb::CompareAndSwap);
            let before = renewals();
            pair.until(|| renewals() > before).await;
            let released = leadership.release();
            pair.pass(P / 10).await;
            assert_eq!(
                pair.leader.process.deadman.armed(),
                1,
                "that of the TTL, until the renewal is answered"
            );
            pair.leader.storage.heal();
            released.await;
        };
        let (next, ()) = tokio::join!(pair.standby.acquire(), handing_back);
        next.release().await;
    });
}

/// Shows N1: neither the successor nor the storage answers.
#[test]
fn leader_without_successor_and_storage_is_lost_and_dead_within_the_support_period() {
    in_mock_time(async |pair| {
        let leadership = pair.leader.acquire().await;
        let cut_off = async {
            pair.until_named().await;
            pair.pass(P * 3).await;
            pair.leader.cut();
            pair.leader.lose_storage();
            let cut_at = pair.clock.now();
            let loss = leadership.lost().await;
            assert_eq!(loss, Loss::SupportEnded { period: P });
            assert!(pair.clock.now() <= cut_at.after(P * 65 / 100));
            let kill_at = pair.leader.kill_at();
            assert!(kill_at <= cut_at.after(P * 80 / 100), "{:?}", kill_at.since(cut_at));
            assert_eq!(leadership.standing().kill_at(), kill_at);
            pair.leader.link.deliver(PeerMessage::Stop);
            pair.pass(Duration::from_millis(1)).await;
            assert_eq!(pair.leader.link.may_stop(), 1, "nothing is left to wait for");
            kill_at
        };
        let (next, kill_at) = tokio::join!(pair.standby.acquire(), cut_off);
        assert!(pair.clock.now() > kill_at, "two leaders");
        assert_eq!(pair.leader.kill_at(), kill_at, "a loss makes the deadline final");
        next.release().await;
        drop(leadership);
    });
}

#[test]
fn leader_that_stood_still_beside_a_successor_was_suspended() {
    in_mock_time(async |pair| {
        let leadership = pair.leader.acquire().await;
        let standing_still = async {
            pair.until_named().await;
            pair.pass(P).await;
            pair.clock.advance(P * 7 / 10);
            assert_eq!(leadership.lost().await, Loss::Suspended);
            assert!(pair.leader.kill_at() > pair.clock.now());
            assert_eq!(leadership.release().await, ReleaseOutcome::Released);
        };
        let (next, ()) = tokio::join!(pair.standby.acquire(), standing_still);
        next.release().await;
    });
}

#[test]
fn record_that_vanished_while_its_leader_stood_still_is_lost_once() {
    in_mock_time(async |pair| {
        let leadership = pair.leader.acquire().await;
        let vanishing = async {
            pair.until_named().await;
            pair.leader.storage.wipe(&0).await.unwrap();
            let clock = pair.clock.clone();
            let stands_still = move |verb| {
                if verb == Verb::CompareAndSwap {
                    clock.advance(P * 7 / 10);
                }
            };
            pair.leader.storage.watch(stands_still);
            pair.leader.link.deliver(PeerMessage::Stop);
            assert_eq!(leadership.lost().await, Loss::Vanished);
            assert_eq!(leadership.release().await, ReleaseOutcome::AlreadyGone);
            assert_eq!(pair.leader.storage.count(Verb::CompareAndDelete), 0, "a loss of support came second");
        };
        let (next, ()) = tokio::join!(pair.standby.acquire(), vanishing);
        next.release().await;
    });
}

#[test]
fn leader_whose_successor_is_gone_withdraws_it_and_stays() {
    in_mock_time(async |pair| {
        let leadership = pair.leader.acquire().await;
        {
            let mut standby = pin!(pair.standby.acquire());
            tokio::select! {
                biased;
                _ = &mut standby => panic!("two leaders"),
                () = pair.until_named() => {}
            }
            pair.standby.cut();
        }
        pair.pass(P).await;
        assert_eq!(pair.leader.link.withdrawals(), [Withdrawal::Silent]);
        assert!(pair.leader.kill_at() > pair.clock.now().after(TTL / 2));
        assert_eq!(leadership.standing().kill_at(), pair.leader.kill_at());
        pair.pass(TTL * 2).await;
        assert_eq!(leadership.standing().loss(), None);
        assert_eq!(leadership.release().await, ReleaseOutcome::Released);
        assert_eq!(pair.leader.process.deadman.armed(), 0);
    });
}

#[test]
fn naming_after_many_withdrawals_waits_for_a_quarter_of_the_ttl() {
    in_mock_time(async |mut pair| {
        let ttl = P * 8;
        (pair.leader.ttl, pair.standby.ttl) = (ttl, ttl);
        let leadership = pair.leader.acquire().await;
        let is_named = || pair.leader.process.deadman.armed() == 2;
        let story = async {
            pair.until(is_named).await;
            for wait in [P, P * 2, ttl / 4, ttl / 4] {
                pair.standby.cut();
                pair.until(|| !is_named()).await;
                let withdrawn_at = pair.clock.now();
                pair.standby.link.is_cut.store(false, Ordering::Relaxed);
                pair.until(is_named).await;
                let waited = withdrawn_at.until(pair.clock.now());
                assert!(waited >= wait && waited <= wait + P * 2, "{waited:?} instead of {wait:?}");
            }
        };
        tokio::select! {
            biased;
            _ = pair.standby.acquire() => panic!("two leaders"),
            () = story => {}
        }
        assert_eq!(leadership.release().await, ReleaseOutcome::Released);
    });
}

#[test]
fn planned_stop_of_the_leader_withdraws_first() {
    in_mock_time(async |pair| {
        let leadership = pair.leader.acquire().await;
        let stopping = async {
            pair.until_named().await;
            pair.leader.link.deliver(PeerMessage::Stop);
            let asked_at = pair.clock.now();
            pair.until(|| pair.leader.link.may_stop() == 1).await;
            assert!(pair.clock.now() <= asked_at.after(P / 10), "one renewal");
            assert_eq!(pair.leader.link.withdrawals(), [Withdrawal::Stop]);
            assert!(pair.leader.kill_at() > pair.clock.now().after(TTL / 2), "withdrawn");
            let released_at = pair.clock.now();
            assert_eq!(leadership.release().await, ReleaseOutcome::Released);
            released_at
        };
        let (next, released_at) = tokio::join!(pair.standby.acquire(), stopping);
        assert!(pair.clock.now().since(released_at) <= Terms::POLL, "a usual hand-over");
        next.release().await;
    });
}

#[test]
fn standby_that_stops_may_do_so_once_it_is_withdrawn() {
    in_mock_time(async |pair| {
        let leadership = pair.leader.acquire().await;
        let leaving = async {
            pair.until_named().await;
            pair.standby.link.deliver(PeerMessage::Stop);
            pair.until(|| pair.standby.link.may_stop() == 1).await;
        };
        tokio::select! {
            biased;
            _ = pair.standby.acquire() => panic!("two leaders"),
            () = leaving => {}
        }
        assert!(pair.leader.kill_at() > pair.clock.now().after(TTL / 2), "withdrawn");
        assert_eq!(pair.leader.link.withdrawals(), [Withdrawal::Asked]);
        assert_eq!(leadership.release().await, ReleaseOutcome::Released);
    });
}

#[test]
fn standby_whose_time_is_up_asks_to_be_withdrawn_before_it_gives_up() {
    const WAITS: Duration = Duration::from_secs(30);
    in_mock_time(async |pair| {
        let leadership = pair.leader.acquire().await;
        let began = pair.clock.now();
        let refused = pair.standby.acquire_within(AcquireTimeout::Within(WAITS)).await.unwrap_err();
        assert!(matches!(refused, AcquireError::TimedOut { .. }), "{refused}");
        let took = began.until(pair.clock.now());
        assert!(took >= WAITS && took <= WAITS + P / 2, "{took:?}");
        assert_eq!(pair.leader.link.withdrawals(), [Withdrawal::Asked]);
        // One that hears from neither leader nor storage goes after P.
        let began = pair.clock.now();
        let leaving = async {
            pair.until(|| began.until(pair.clock.now()) >= WAITS - Duration::from_millis(1)).await;
            pair.standby.cut();
            pair.standby.lose_storage();
        };
        let (refused, ()) = tokio::join!(pair.standby.acquire_within(AcquireTimeout::Within(WAITS)), leaving);
        assert!(matches!(refused, Err(AcquireError::TimedOut { .. })));
        let took = began.until(pair.clock.now());
        assert!(took > WAITS + P / 2 && took <= WAITS + P, "{took:?}");
        assert_eq!(pair.leader.link.withdrawals(), [Withdrawal::Asked, Withdrawal::Silent]);
        assert_eq!(leadership.release().await, ReleaseOutcome::Released);
    });
}

/// As after the death of its guardian: its work has stopped, and nothing has withdrawn the successor. Shows I6.
#[test]
fn leader_that_is_killed_before_its_release_leaves_a_named_successor_the_right() {
    in_mock_time(async |pair| {
        let leadership = pair.leader.acquire().await;
        let dying = async {
            pair.until_named().await;
            pair.leader.storage.fail_always(Verb::CompareAndDelete, Fault::LostRequest);
            let handed_back_at = pair.clock.now();
            tokio::select! {
                biased;
                outcome = leadership.release() => panic!("{outcome:?}"),
                () = pair.pass(P / 2) => {}
            }
            pair.leader.process.crash();
            handed_back_at
        };
        let (next, handed_back_at) = tokio::join!(pair.standby.acquire(), dying);
        let took = handed_back_at.until(pair.clock.now());
        assert!(took <= P * 11 / 10, "{took:?}");
        assert!(pair.standby.link.has_succeeded.load(Ordering::Relaxed));
        assert_eq!(pair.leader.link.withdrawals(), []);
        next.release().await;
    });
}

/// Where releases are announced, looks are 10 s apart.
#[test]
fn standby_offers_itself_every_support_period_while_its_last_look_shows_the_leader() {
    in_mock_time(async |pair| {
        let leadership = pair.leader.acquire().await;
        pair.standby.storage.say_hints_follow(true);
        pair.standby.cut();
        let (offers, looks) = (|| pair.standby.link.offers(), || pair.standby.storage.count(Verb::Scan));
        let offering = async {
            pair.until(|| offers() == 1).await;
            pair.pass(P * 10).await;
            assert_eq!((offers(), looks()), (11, 6));
            pair.standby.lose_storage();
            pair.until(|| looks() == 7).await;
            let last = offers();
            pair.pass(P * 4).await;
            assert_eq!(offers(), last, "its look was not answered (N3)");
            pair.standby.storage.heal();
            pair.until(|| offers() > last).await;
            pair.standby.link.is_cut.store(false, Ordering::Relaxed);
            let reached_at = pair.clock.now();
            pair.until_named().await;
            assert!(pair.clock.now() <= reached_at.after(P * 2), "{:?}", reached_at.until(pair.clock.now()));
        };
        tokio::select! {
            biased;
            _ = pair.standby.acquire() => panic!("two leaders"),
            () = offering => {}
        }
        assert_eq!(leadership.release().await, ReleaseOutcome::Released);
    });
}

/// The next renewal is up to 75 s away, also after one that was slow.
#[test]
fn naming_renews_the_record_and_does_not_wait_for_its_next_renewal() {
    for (is_slow, expected, longest) in [(false, 1, P), (true, 2, P * 3)] {
        in_mock_time(async |pair| {
            let leadership = pair.leader.acquire().await;
            pair.pass(P * 3).await;
            let began = pair.clock.now();
            let renewals = || pair.leader.storage.count(Verb::CompareAndSwap);
            assert_eq!(renewals(), 0);
            if is_slow {
                let slow = Fault::SlowAnswer(P / 10 + Duration::from_millis(1));
                pair.leader.storage.fail_next(Verb::CompareAndSwap, slow);
            }
            tokio::select! {
                biased;
                _ = pair.standby.acquire() => panic!("two leaders"),
                () = pair.until_named() => {}
            }
            assert!(pair.clock.now().since(began) <= longest, "{:?}", pair.clock.now().since(began));
            assert_eq!(renewals(), expected);
            assert_eq!(leadership.release().await, ReleaseOutcome::Released);
        });
    }
}

/// Its answers come in time for the TTL, which is all that a leader without a successor needs.
#[test]
fn storage_that_becomes_slow_costs_the_successor_and_not_the_leadership() {
    in_mock_time(async |pair| {
        let leadership = pair.leader.acquire().await;
        let (link, storage) = (&pair.leader.link, &pair.leader.storage);
        let story = async {
            pair.until_named().await;
            for verb in [Verb::CompareAndSwap, Verb::Get] {
                storage.fail_always(verb, Fault::SlowAnswer(P / 10 + Duration::from_millis(1)));
            }
            pair.pass(TTL).await;
            assert_eq!(leadership.standing().loss(), None);
            assert_eq!(link.withdrawals(), [Withdrawal::Slow]);
            assert_eq!(pair.leader.process.deadman.armed(), 1);
            storage.heal();
            pair.until(|| pair.leader.process.deadman.armed() == 2).await;
        };
        tokio::select! {
            biased;
            _ = pair.standby.acquire() => panic!("two leaders"),
            () = story => {}
        }
        assert_eq!(leadership.release().await, ReleaseOutcome::Released);
    });
}

#[test]
fn standby_is_not_named_while_the_storage_takes_longer_than_calls_may_then() {
    in_mock_time(async |pair| {
        let storage = &pair.leader.storage;
        for verb in [Verb::InsertIfNotExist, Verb::CompareAndSwap] {
            storage.fail_always(verb, Fault::SlowAnswer(P / 10 + Duration::from_millis(1)));
        }
        let leadership = pair.leader.acquire().await;
        let slow = async {
            pair.pass(TTL * 2).await;
            assert!(!pair.leader.link.has_named(), "calls would be cut off from then on");
            assert!(storage.count(Verb::CompareAndSwap) < 20, "one more for each offer");
            storage.fail_always(Verb::CompareAndSwap, Fault::SlowAnswer(P / 10));
            pair.until_named().await;
        };
        tokio::select! {
            biased;
            _ = pair.standby.acquire() => panic!("two leaders"),
            () = slow => {}
        }
        assert_eq!(leadership.release().await, ReleaseOutcome::Released);
    });
}

/// Shows N2.
#[test]
fn standby_is_not_named_until_the_deadline_is_in_force_everywhere() {
    in_mock_time(async |pair| {
        pair.leader.link.is_deaf.store(true, Ordering::Relaxed);
        let leadership = pair.leader.acquire().await;
        tokio::select! {
            biased;
            _ = pair.standby.acquire() => panic!("two leaders"),
            () = pair.pass(P * 20) => {}
        }
        assert!(!pair.leader.link.has_named());
        assert_eq!(leadership.standing().loss(), None);
        assert_eq!(leadership.release().await, ReleaseOutcome::Released);
        assert_eq!(pair.leader.process.deadman.armed(), 0);
    });
}

/// Shows N5: the process stands still after the last ping has arrived, and before the engine handles it.
#[test]
fn right_counts_from_the_handling_of_a_ping_and_not_from_the_round_before() {
    const STANDS_STILL: Duration = Duration::from_secs(3);
    in_mock_time(async |pair| {
        let _leadership = pair.leader.acquire().await;
        let mut standby = pin!(pair.standby.acquire());
        tokio::select! {
            biased;
            _ = &mut standby => panic!("two leaders"),
            () = pair.until_named() => {}
        }
        let last = pair.leader.link.sent.lock().unwrap().last().copied();
        let Some(Datagram::ToStandby(ping)) = last else { panic!("{last:?}") };
        pair.leader.process.crash();
        pair.leader.cut();
        let (link, clock) = (Arc::clone(&pair.standby.link), pair.clock.clone());
        let handled_at = Arc::new(Mutex::new(None));
        let stands_still = {
            let handled_at = Arc::clone(&handled_at);
            move |verb| {
                if verb == Verb::Scan && handled_at.lock().unwrap().is_none() {
                    let ping = ielections::successor::Ping { number: ping.number + 1, ..ping };
                    link.deliver(PeerMessage::Received(Datagram::ToStandby(ping)));
                    clock.advance(STANDS_STILL);
                    *handled_at.lock().unwrap() = Some(clock.now());
                }
            }
        };
        // Without an answer in that round, nothing else reads the clock.
        pair.standby.storage.fail_always(Verb::Scan, Fault::SlowAnswer(Duration::from_millis(1)));
        pair.standby.storage.watch(stands_still);
        let next = standby.await;
        let handled_at = handled_at.lock().unwrap().unwrap();
        assert!(pair.clock.now() >= handled_at.after(P), "{:?}", pair.clock.now().since(handled_at));
        next.release().await;
    });
}

#[test]
fn terms_that_do_not_fit_are_refused() {
    in_mock_time(async |pair| {
        let acquire = |candidacy| {
            let link = Arc::clone(&pair.leader.link) as _;
            let terms = SuccessorTerms { period: support(P, TTL), link };
            pair.leader.process.elections.acquire_with_successor(candidacy, terms)
        };
        let refused = acquire(candidacy(0)).await.map(drop);
        assert!(matches!(refused, Ok(())), "a quarter of 20 s");
        let short = Terms { ttl: Ttl::new(P * 3).unwrap(), ..candidacy(1).terms };
        let refused = acquire(Candidacy { terms: short, ..candidacy(1) }).await.unwrap_err();
        assert!(matches!(refused, AcquireError::SupportPeriod(_)), "{refused}");
        let many = Candidacy { slots: vec![2, 3], ..candidacy(2) };
        let refused = acquire(many).await.unwrap_err();
        assert!(matches!(refused, AcquireError::SuccessorOfManySlots), "{refused}");
    });
}

/// Shows I6: the actor of a withdrawn successor stays until its claim is answered. Another one would get the answer.
#[test]
fn datagram_to_a_withdrawn_successor_does_not_end_it_before_the_answer_to_its_claim() {
    in_mock_time(async |pair| {
        let _leadership = pair.leader.acquire().await;
        let standby = &pair.standby;
        let claiming = async {
            pair.until_named().await;
            standby.storage.fail_always(Verb::TakeOver, Fault::SlowAnswer(P / 20));
            pair.leader.process.crash();
            pair.leader.cut();
            pair.until(|| standby.storage.count(Verb::TakeOver) > 0).await;
        };
        tokio::select! {
            biased;
            _ = standby.acquire() => panic!("it has not claimed yet"),
            () = claiming => {}
        }
        let ping = *pair.leader.link.sent.lock().unwrap().last().unwrap();
        standby.link.deliver(PeerMessage::Received(ping));
        pair.until(|| standby.storage.count(Verb::CompareAndDelete) > 0).await;
        let claimed = standby.storage.calls_of(Verb::TakeOver)[0];
        let released = standby.storage.calls_of(Verb::CompareAndDelete)[0];
        assert!(
            claimed.until.is_some_and(|answered_at| released.at >= answered_at),
            "{claimed:?} {released:?}"
        );
    });
}
