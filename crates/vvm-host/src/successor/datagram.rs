//! A datagram between a leader and its successor, as bytes with a MAC. Every datagram has the same length, so no answer
//! is longer than what it answers: a forged address gets no more bytes than the forger sent. Integers are big-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 0 | version of this layout |
//! | 1 | kind: offer or answer, to the leader; ping, to the standby |
//! | 2 | flags: the ping names, the answer acknowledges; the standby leaves |
//! | 3..8 | zero |
//! | 8..24 | slot: a hash of cluster and number |
//! | 24..48 | incarnation and epoch of the leadership |
//! | 48..64 | offer |
//! | 64..72 | number of the ping |
//! | 72..80 | P in nanoseconds, of a ping |
//! | 80..88 | W, of a ping that names |
//! | 88..120 | X25519 public key of the standby, of an offer |
//! | 120..152 | HMAC-SHA256 of all bytes before |
//!
//! The key of the MAC is derived from X25519 of both keys, from both public keys, the slot and the leadership. The
//! leader's public key comes from its fenced document. A reader of that document can make a key of its own, and so claim
//! the place of a standby; it can forge nothing between the leader and another standby.

use hmac::{Hmac, KeyInit as _, Mac as _};
use ielections::{
    Entropy, Epoch, Incarnation, Ttl,
    successor::{Datagram, FromStandby, Pairing, Ping, SupportPeriod},
};
use sha2::{Digest as _, Sha256};
use std::{fmt, ops::Range, time::Duration};
use vvm_storage::ElectionKey;
use x25519_dalek::{PublicKey, StaticSecret};

/// The length of every datagram: far below what any network fragments.
pub(super) const LEN: usize = 152;

const VERSION: u8 = 1;

const OFFER: u8 = 1;
const ANSWER: u8 = 2;
const PING: u8 = 3;

/// The ping names the standby, or the answer acknowledges that.
const NAMES: u8 = 1;
const LEAVES: u8 = 2;

const RESERVED: Range<usize> = 3..8;
const SLOT: Range<usize> = 8..24;
const INCARNATION: Range<usize> = 24..40;
const EPOCH: Range<usize> = 40..48;
const OFFERED: Range<usize> = 48..64;
const NUMBER: Range<usize> = 64..72;
const PERIOD: Range<usize> = 72..80;
const BELOW: Range<usize> = 80..88;
const STANDBY: Range<usize> = 88..120;
const MAC: Range<usize> = 120..LEN;

const LABEL: &[u8] = b"vvm successor 1";

pub(super) type PublicKeyBytes = [u8; 32];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SlotId([u8; 16]);

impl SlotId {
    pub(super) fn of(key: &ElectionKey) -> Self {
        let digest = Sha256::new().chain_update(LABEL).chain_update(key.partition().as_bytes()).finalize();
        Self(array(&digest, 0..16))
    }
}

/// A leadership, as in [`Pairing`].
pub(super) type Record = (Incarnation, Epoch);

/// The key pair of this process, new for each start.
pub(super) struct OwnKey {
    secret: StaticSecret,
    pub(super) public: PublicKeyBytes,
}

/// What both sides of a pair know, and no other process.
#[derive(Clone)]
pub(super) struct PairKey(Hmac<Sha256>);

impl OwnKey {
    pub(super) fn new(entropy: &dyn Entropy) -> Self {
        let mut random = [0; 32];
        entropy.fill(&mut random);
        let secret = StaticSecret::from(random);
        Self { public: PublicKey::from(&secret).to_bytes(), secret }
    }

    /// Of this process as leader of `record`, and the standby with this key. `None` if that is no key of a pair.
    pub(super) fn with_standby(
        &self,
        standby: &PublicKeyBytes,
        slot: SlotId,
        record: Record,
    ) -> Option<PairKey> {
        self.agree(standby, [&self.public, standby], slot, record)
    }

    /// Of this process as standby, and the leader of `record` with this key. `None` if that is no key of a pair.
    pub(super) fn with_leader(
        &self,
        leader: &PublicKeyBytes,
        slot: SlotId,
        record: Record,
    ) -> Option<PairKey> {
        self.agree(leader, [leader, &self.public], slot, record)
    }

    fn agree(
        &self,
        other: &PublicKeyBytes,
        [leader, standby]: [&PublicKeyBytes; 2],
        slot: SlotId,
        (incarnation, epoch): Record,
    ) -> Option<PairKey> {
        let shared = self.secret.diffie_hellman(&PublicKey::from(*other));
        // A point of low order gives a secret that every process knows.
        shared.was_contributory().then_some(())?;
        let mut derived = hmac_of(shared.as_bytes())?;
        for part in [LABEL, leader, standby, &slot.0, incarnation.as_bytes(), &epoch.get().to_be_bytes()] {
            derived.update(part);
        }
        hmac_of(&derived.finalize().into_bytes()).map(PairKey)
    }
}

/// Takes a key of any length.
fn hmac_of(key: &[u8]) -> Option<Hmac<Sha256>> {
    Hmac::new_from_slice(key).ok()
}

/// Encodes a datagram of `slot`. `public` is the key of the sender, which an offer carries.
pub(super) fn encode(slot: SlotId, datagram: &Datagram, public: &PublicKeyBytes, key: &PairKey) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    let mut put = |at: Range<usize>, value: &[u8]| bytes[at].copy_from_slice(value);
    let (kind, flags, pairing, number) = match datagram {
        Datagram::ToLeader(FromStandby::Offer(pairing)) => {
            put(STANDBY, public);
            (OFFER, 0, pairing, 0)
        }
        Datagram::ToLeader(FromStandby::Answer { pairing, number, acknowledges, leaves }) => {
            let flags = if *acknowledges { NAMES } else { 0 } | if *leaves { LEAVES } else { 0 };
            (ANSWER, flags, pairing, *number)
        }
        Datagram::ToStandby(Ping { pairing, number, period, below }) => {
            // At most 30 s.
            put(PERIOD, &(period.get().as_nanos() as u64).to_be_bytes());
            put(BELOW, &below.unwrap_or_default().to_be_bytes());
            (PING, if below.is_some() { NAMES } else { 0 }, pairing, *number)
        }
    };
    put(0..3, &[VERSION, kind, flags]);
    put(SLOT, &slot.0);
    put(INCARNATION, pairing.incarnation.as_bytes());
    put(EPOCH, &pairing.epoch.get().to_be_bytes());
    put(OFFERED, &pairing.offer);
    put(NUMBER, &number.to_be_bytes());
    let mac = key.0.clone().chain_update(&bytes[..MAC.start]).finalize().into_bytes();
    bytes[MAC].copy_from_slice(&mac);
    bytes
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Offer,
    Answer,
    Ping,
}

/// A datagram whose sender is not known yet.
#[derive(Clone, Copy)]
pub(super) struct Unverified<'bytes> {
    bytes: &'bytes [u8; LEN],
    pub(super) kind: Kind,
    pub(super) slot: SlotId,
    pub(super) pairing: Pairing,
    pub(super) number: u64,
}

impl<'bytes> Unverified<'bytes> {
    /// `None` for other bytes.
    pub(super) fn parse(bytes: &'bytes [u8]) -> Option<Self> {
        let bytes: &[u8; LEN] = bytes.try_into().ok()?;
        let kind = match bytes[..2] {
            [VERSION, OFFER] => Kind::Offer,
            [VERSION, ANSWER] => Kind::Answer,
            [VERSION, PING] => Kind::Ping,
            _ => return None,
        };
        let pairing = Pairing {
            incarnation: Incarnation::from_bytes(array(bytes, INCARNATION)),
            epoch: Epoch::new(number(bytes, EPOCH)).ok()?,
            offer: array(bytes, OFFERED),
        };
        let slot = SlotId(array(bytes, SLOT));
        Some(Self { bytes, kind, slot, pairing, number: number(bytes, NUMBER) })
    }

    pub(super) fn record(&self) -> Record {
        (self.pairing.incarnation, self.pairing.epoch)
    }

    pub(super) fn standby(&self) -> PublicKeyBytes {
        array(self.bytes, STANDBY)
    }

    /// Returns the datagram if its sender knows `key`. `ttl` is that of the leader. Compares in constant time.
    pub(super) fn verify(&self, key: &PairKey, ttl: Ttl) -> Option<Datagram> {
        let Self { bytes, pairing, number: ping, .. } = *self;
        key.0.clone().chain_update(&bytes[..MAC.start]).verify_slice(&bytes[MAC]).ok()?;
        // A later version may use them.
        if bytes[RESERVED] != [0; RESERVED.end - RESERVED.start] {
            return None;
        }
        let flags = bytes[2];
        Some(match self.kind {
            Kind::Offer => Datagram::ToLeader(FromStandby::Offer(pairing)),
            Kind::Answer => {
                let (acknowledges, leaves) = (flags & NAMES != 0, flags & LEAVES != 0);
                Datagram::ToLeader(FromStandby::Answer { pairing, number: ping, acknowledges, leaves })
            }
            Kind::Ping => {
                let period = Duration::from_nanos(number(bytes, PERIOD));
                let period = SupportPeriod::new(period, ttl).ok()?;
                let below = (flags & NAMES != 0).then(|| number(bytes, BELOW));
                Datagram::ToStandby(Ping { pairing, number: ping, period, below })
            }
        })
    }
}

fn array<const N: usize>(bytes: &[u8], at: Range<usize>) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at]);
    array
}

fn number(bytes: &[u8; LEN], at: Range<usize>) -> u64 {
    u64::from_be_bytes(array(bytes, at))
}

impl fmt::Debug for OwnKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("OwnKey")
    }
}

impl fmt::Debug for PairKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("PairKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ielections::OsEntropy;
    use proptest::prelude::*;

    fn key(cluster: &str) -> ElectionKey {
        ElectionKey { cluster: cluster.into(), slot: vvm_storage::SlotNumber::FIRST }
    }

    fn slot() -> SlotId {
        SlotId::of(&key("payroll"))
    }

    fn datagrams() -> impl Strategy<Value = Datagram> {
        let pairing =
            (any::<[u8; 16]>(), 1..=Epoch::MAX, any::<[u8; 16]>()).prop_map(|(incarnation, epoch, offer)| {
                Pairing {
                    incarnation: Incarnation::from_bytes(incarnation),
                    epoch: Epoch::new(epoch).unwrap(),
                    offer,
                }
            });
        let period = (2_000_000_000..=30_000_000_000_u64).prop_map(|nanos| {
            SupportPeriod::new(Duration::from_nanos(nanos), Ttl::new(Ttl::MAX).unwrap()).unwrap()
        });
        (pairing, any::<u64>(), period, any::<Option<u64>>(), 0..3, any::<[bool; 2]>()).prop_map(
            |(pairing, number, period, below, kind, [acknowledges, leaves])| match kind {
                0 => Datagram::ToLeader(FromStandby::Offer(pairing)),
                1 => Datagram::ToLeader(FromStandby::Answer { pairing, number, acknowledges, leaves }),
                _ => Datagram::ToStandby(Ping { pairing, number, period, below }),
            },
        )
    }

    fn record(datagram: &Datagram) -> Record {
        let pairing = match datagram {
            Datagram::ToStandby(Ping { pairing, .. })
            | Datagram::ToLeader(FromStandby::Offer(pairing) | FromStandby::Answer { pairing, .. }) => {
                pairing
            }
        };
        (pairing.incarnation, pairing.epoch)
    }

    struct Pair {
        leader: OwnKey,
        standby: OwnKey,
    }

    impl Pair {
        fn new() -> Self {
            let entropy = OsEntropy::default();
            Self { leader: OwnKey::new(&entropy), standby: OwnKey::new(&entropy) }
        }

        fn keys(&self, slot: SlotId, record: Record) -> [PairKey; 2] {
            let of_leader = self.leader.with_standby(&self.standby.public, slot, record);
            [of_leader.unwrap(), self.standby.with_leader(&self.leader.public, slot, record).unwrap()]
        }

        /// As the sender of this datagram encodes it, with the key by which its receiver verifies it.
        fn sent(&self, datagram: &Datagram) -> ([u8; LEN], PairKey) {
            let [leader, standby] = self.keys(slot(), record(datagram));
            let (sender, receiver) = match datagram {
                Datagram::ToStandby(_) => (leader, standby),
                Datagram::ToLeader(_) => (standby, leader),
            };
            (encode(slot(), datagram, &self.standby.public, &sender), receiver)
        }
    }

    fn ttl() -> Ttl {
        Ttl::new(Ttl::MAX).unwrap()
    }

    proptest! {
        #[test]
        fn datagram_is_decoded_as_it_was_sent(datagram in datagrams()) {
            let pair = Pair::new();
            let (bytes, key) = pair.sent(&datagram);
            let parsed = Unverified::parse(&bytes).unwrap();
            prop_assert_eq!((parsed.slot, parsed.record()), (slot(), record(&datagram)));
            prop_assert_eq!(parsed.verify(&key, ttl()), Some(datagram));
            if parsed.kind == Kind::Offer {
                prop_assert_eq!(parsed.standby(), pair.standby.public);
            }
        }

        #[test]
        fn every_flipped_bit_is_refused(datagram in datagrams()) {
            let pair = Pair::new();
            let (bytes, key) = pair.sent(&datagram);
            for bit in 0..LEN * 8 {
                let mut bytes = bytes;
                bytes[bit / 8] ^= 1 << (bit % 8);
                let verified = Unverified::parse(&bytes).and_then(|parsed| parsed.verify(&key, ttl()));
                prop_assert_eq!(verified, None, "bit {}", bit);
            }
        }

        #[test]
        fn datagram_under_the_key_of_another_pair_record_or_slot_is_refused(datagram in datagrams()) {
            let pair = Pair::new();
            let (bytes, _) = pair.sent(&datagram);
            let parsed = Unverified::parse(&bytes).unwrap();
            let own = record(&datagram);
            let next = (own.0, Epoch::new(own.1.get() % Epoch::MAX + 1).unwrap());
            let mut flipped = *own.0.as_bytes();
            flipped[15] ^= 1;
            let reader = OwnKey::new(&OsEntropy::default());
            let claimed = reader.with_leader(&pair.leader.public, slot(), own).unwrap();
            let other = Pair::new();
            let foreign = [
                other.keys(slot(), own),
                pair.keys(slot(), next),
                pair.keys(slot(), (Incarnation::from_bytes(flipped), own.1)),
                pair.keys(SlotId::of(&key("payroll2")), own),
            ];
            for key in foreign.iter().flatten().chain([&claimed]) {
                prop_assert_eq!(parsed.verify(key, ttl()), None);
            }
        }

        #[test]
        fn other_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..2 * LEN), cut in 0..LEN) {
            let pair = Pair::new();
            let pairing = Pairing {
                incarnation: Incarnation::from_bytes([7; 16]),
                epoch: Epoch::new(1).unwrap(),
                offer: [8; 16],
            };
            let (sent, key) = pair.sent(&Datagram::ToLeader(FromStandby::Offer(pairing)));
            prop_assert!(Unverified::parse(&sent[..cut]).is_none());
            prop_assert!(Unverified::parse(&[&sent[..], &[0]].concat()).is_none());
            let mut forged = sent;
            let len = bytes.len().min(LEN - 2);
            forged[2..2 + len].copy_from_slice(&bytes[..len]);
            for bytes in [&bytes[..], &forged] {
                let verified = Unverified::parse(bytes).and_then(|parsed| parsed.verify(&key, ttl()));
                prop_assert!(verified.is_none() || bytes == sent);
            }
        }
    }

    #[test]
    fn ping_with_a_period_that_does_not_fit_the_ttl_is_refused() {
        let pair = Pair::new();
        let pairing = Pairing {
            incarnation: Incarnation::from_bytes([7; 16]),
            epoch: Epoch::new(1).unwrap(),
            offer: [8; 16],
        };
        let period = SupportPeriod::new(Duration::from_secs(30), ttl()).unwrap();
        let (bytes, key) =
            pair.sent(&Datagram::ToStandby(Ping { pairing, number: 1, period, below: Some(9) }));
        let parsed = Unverified::parse(&bytes).unwrap();
        assert!(parsed.verify(&key, Ttl::new(Duration::from_secs(120)).unwrap()).is_some());
        assert_eq!(parsed.verify(&key, Ttl::new(Duration::from_secs(119)).unwrap()), None);
    }

    #[test]
    fn public_key_of_low_order_makes_no_pair() {
        let own = OwnKey::new(&OsEntropy::default());
        let record = (Incarnation::from_bytes([7; 16]), Epoch::new(1).unwrap());
        let mut one = [0; 32];
        one[0] = 1;
        for low in [[0; 32], one] {
            assert!(own.with_leader(&low, slot(), record).is_none());
        }
    }
}
