//! [`Ledger`]: which batches of documents have landed, to compare with what their writers were told (I2, I7).

use bytes::Bytes;
use ielections::{
    DocumentId, DocumentVersion, DocumentWrite, Entry, Epoch, Fence, Incarnation, Slot, Vacant,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

/// Identifies one batch of a simulated service: the leadership, its writer, and the number of the batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Token {
    pub(crate) incarnation: Incarnation,
    pub(crate) writer: u32,
    pub(crate) number: u64,
}

/// The first bytes of the ids that simulated services use. A host's history has others.
const PREFIX: &[u8] = b"sim/";

impl Token {
    /// Returns the content of a document that this batch writes.
    pub(crate) fn body(self) -> Bytes {
        let mut body = self.incarnation.as_bytes().to_vec();
        body.extend_from_slice(&self.writer.to_be_bytes());
        body.extend_from_slice(&self.number.to_be_bytes());
        body.into()
    }

    fn of(write: &DocumentWrite) -> Option<Self> {
        let DocumentWrite::Put { id, body, .. } = write else { return None };
        let body = id.as_bytes().starts_with(PREFIX).then_some(body)?;
        let (incarnation, rest) = body.split_first_chunk()?;
        let (writer, number) = rest.split_first_chunk()?;
        Some(Self {
            incarnation: Incarnation::from_bytes(*incarnation),
            writer: u32::from_be_bytes(*writer),
            number: u64::from_be_bytes(number.try_into().ok()?),
        })
    }
}

/// Whether the document is of the simulated services, and not a host's history.
pub(crate) fn is_of_service(id: &DocumentId) -> bool {
    id.as_bytes().starts_with(PREFIX)
}

/// Returns the id of a document of the simulated services.
pub(crate) fn document(number: u32) -> Option<DocumentId> {
    DocumentId::new([PREFIX, &number.to_be_bytes()].concat()).ok()
}

#[derive(Default)]
pub(crate) struct Ledger {
    landed: BTreeMap<(u32, DocumentVersion), BTreeSet<Token>>,
    /// The last batch of each writer that has landed.
    last: BTreeMap<(Incarnation, u32), u64>,
    /// Batches whose writers were told that they will never be applied.
    never: BTreeSet<Token>,
}

impl Ledger {
    /// Notes a batch that was applied.
    ///
    /// # Errors
    /// If it must not have been, or not now.
    pub(crate) fn lands(
        &mut self,
        key: u32,
        version: DocumentVersion,
        writes: &[DocumentWrite],
    ) -> Result<(), String> {
        let tokens: BTreeSet<Token> = writes.iter().filter_map(Token::of).collect();
        for token in &tokens {
            if self.never.contains(token) {
                return Err(format!("{token:?} lands, although its writer was told that it never will"));
            }
            let last = self.last.entry((token.incarnation, token.writer)).or_default();
            if *last >= token.number {
                return Err(format!("{token:?} lands after batch {last} of the same writer"));
            }
            *last = token.number;
        }
        self.landed.insert((key, version), tokens);
        Ok(())
    }

    /// Whether the batch that was confirmed with `version` has landed with it.
    pub(crate) fn has_landed(&self, key: u32, version: DocumentVersion, token: &Token) -> bool {
        self.landed.get(&(key, version)).is_some_and(|tokens| tokens.contains(token))
    }

    /// Notes that the writer was told that the batch is never applied. Returns whether it was.
    pub(crate) fn never_lands(&mut self, token: Token) -> bool {
        let last = self.last.get(&(token.incarnation, token.writer));
        self.never.insert(token);
        last.is_some_and(|last| *last >= token.number)
            && self.landed.values().any(|tokens| tokens.contains(&token))
    }
}

#[derive(Clone)]
pub(crate) enum Write {
    Insert(u32, Vacant, Entry),
    TakeOver(u32, Entry, Entry),
    Swap(u32, Entry, Entry),
    Delete(u32, Incarnation, Epoch),
    /// A batch of documents.
    Batch(u32, Fence, Arc<[DocumentWrite]>),
}

/// The outcome of a write: `None` if it was applied, or else the slot that refused it.
pub(crate) type Outcome = Option<Slot>;

impl Write {
    pub(crate) fn key(&self) -> u32 {
        match self {
            Self::Insert(key, ..)
            | Self::TakeOver(key, ..)
            | Self::Swap(key, ..)
            | Self::Delete(key, ..)
            | Self::Batch(key, ..) => *key,
        }
    }

    /// The incarnation of the leadership under which it is written; `None` for a claim.
    pub(crate) fn leadership(&self) -> Option<Incarnation> {
        match self {
            Self::Insert(..) | Self::TakeOver(..) => None,
            Self::Swap(_, held, _) => Some(held.incarnation()),
            Self::Delete(_, incarnation, _) => Some(*incarnation),
            Self::Batch(_, fence, _) => Some(fence.incarnation),
        }
    }
}

/// Short: a trace has many of them.
impl fmt::Debug for Write {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |entry: &Entry| format!("{} {:?}", entry.epoch, entry.version);
        match self {
            Self::Insert(key, vacant, entry) => {
                write!(out, "claim {key} after {:?}: {}, TTL {}", vacant.last_epoch, name(entry), entry.ttl)
            }
            Self::TakeOver(key, from, entry) => {
                write!(out, "take over {key} from {}: {}, TTL {}", name(from), name(entry), entry.ttl)
            }
            Self::Swap(key, held, entry) => {
                write!(out, "renew {key}: {}, before {}", name(entry), held.version.write)
            }
            Self::Delete(key, incarnation, epoch) => write!(out, "release {key}: {epoch} {incarnation:?}"),
            Self::Batch(key, fence, writes) => write!(out, "batch {key}: {fence:?}, {} writes", writes.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ielections::OnlyIf;

    fn token(number: u64) -> Token {
        Token { incarnation: Incarnation::from_bytes([1; 16]), writer: 1, number }
    }

    fn put(number: u64) -> Vec<DocumentWrite> {
        vec![DocumentWrite::Put {
            id: document(1).unwrap(),
            body: token(number).body(),
            only_if: OnlyIf::Always,
        }]
    }

    /// Shows I2.
    #[test]
    fn batch_lands_once_and_in_order() {
        let mut ledger = Ledger::default();
        let version = DocumentVersion::NONE.next();
        assert_eq!(ledger.lands(1, version, &put(2)), Ok(()));
        assert!(ledger.lands(1, version.next(), &put(2)).is_err());
        assert!(ledger.lands(1, version.next(), &put(1)).is_err());
        assert!(ledger.has_landed(1, version, &token(2)));
        assert!(!ledger.has_landed(1, version.next(), &token(2)));
    }

    /// Shows I7.
    #[test]
    fn batch_of_which_its_writer_was_told_that_it_never_lands_must_not_land() {
        let mut ledger = Ledger::default();
        assert!(!ledger.never_lands(token(1)));
        assert!(ledger.lands(1, DocumentVersion::NONE.next(), &put(1)).is_err());
        assert_eq!(ledger.lands(1, DocumentVersion::NONE.next(), &put(2)), Ok(()));
        assert!(ledger.never_lands(token(2)));
    }
}
