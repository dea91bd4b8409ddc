//! Where a leader listens for datagrams: a fenced document beside its record. Standbys need no right to write.

use super::datagram::{PublicKeyBytes, Record};
use ielections::{
    Document, DocumentId, DocumentStorage as _, DocumentWrite, Entry, OnlyIf, ReadError, TtlStorage as _,
};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use vvm_storage::{ElectionKey, ElectionsTtlStorage};

/// It lacks the byte that ends a collection's name, as the id of the history, so no instance has the same id.
const ID: &[u8] = b"vvm-successor";

const VERSION: u32 = 1;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct LeaderAddress {
    version: u32,
    pub(super) address: SocketAddr,
    /// 32 hexadecimal digits.
    incarnation: String,
    epoch: u64,
    /// X25519, 64 hexadecimal digits.
    public_key: String,
    /// The successor that the leader has named last and not withdrawn, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) successor: Option<SocketAddr>,
}

pub(super) fn id() -> Option<DocumentId> {
    DocumentId::new(ID).ok()
}

impl LeaderAddress {
    pub(super) fn new(
        address: SocketAddr,
        (incarnation, epoch): Record,
        public: &PublicKeyBytes,
        successor: Option<SocketAddr>,
    ) -> Self {
        let public_key = public.iter().map(|byte| format!("{byte:02x}")).collect();
        Self {
            version: VERSION,
            address,
            incarnation: incarnation.to_string(),
            epoch: epoch.get(),
            public_key,
            successor,
        }
    }

    pub(super) fn put(&self) -> Option<DocumentWrite> {
        let body = serde_json::to_vec(self).ok()?.into();
        Some(DocumentWrite::Put { id: id()?, body, only_if: OnlyIf::Always })
    }

    /// Returns what the leader of `record` wrote. `None` for the document of another leadership, or of a later version.
    pub(super) fn read(document: &Document, (incarnation, epoch): Record) -> Option<Self> {
        let read = serde_json::from_slice::<Self>(&document.body).ok()?;
        let is_of_record = read.incarnation == incarnation.to_string() && read.epoch == epoch.get();
        (read.version == VERSION && is_of_record).then_some(read)
    }

    pub(super) fn public_key(&self) -> Option<PublicKeyBytes> {
        let digits = self.public_key.as_bytes();
        let mut key = [0; 32];
        // `from_str_radix` alone would accept a sign.
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(key)
    }
}

/// Returns the address of the successor that the leader of the record `entry` has named, as it wrote last. Cancel safe.
pub async fn named_successor(
    storage: &ElectionsTtlStorage,
    key: &ElectionKey,
    entry: &Entry,
) -> Result<Option<SocketAddr>, ReadError> {
    let (Some(_), Some(id)) = (storage.documents(), id()) else { return Ok(None) };
    let document = storage.document(key, &id).await?;
    let record = (entry.incarnation(), entry.epoch);
    Ok(document.and_then(|document| LeaderAddress::read(&document, record)).and_then(|read| read.successor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ielections::{Epoch, Incarnation};

    #[test]
    fn document_is_for_its_own_leadership_and_version_alone() {
        let record = (Incarnation::from_bytes([0xab; 16]), Epoch::new(7).unwrap());
        let written = LeaderAddress::new("127.0.0.1:7400".parse().unwrap(), record, &[0x0f; 32], None);
        let read = |written: &LeaderAddress, record| {
            let Some(DocumentWrite::Put { id, body, .. }) = written.put() else { panic!() };
            let version = ielections::DocumentVersion::from_stored(1);
            LeaderAddress::read(&Document { id, body, version }, record)
        };
        assert_eq!(read(&written, record).as_ref(), Some(&written));
        assert_eq!(written.public_key(), Some([0x0f; 32]));
        let others = [(record.0, Epoch::new(8).unwrap()), (Incarnation::from_bytes([0xac; 16]), record.1)];
        assert_eq!(others.map(|other| read(&written, other)), [None, None]);
        assert_eq!(read(&LeaderAddress { version: 2, ..written.clone() }, record), None);
        let named = LeaderAddress { successor: Some("10.0.0.8:7400".parse().unwrap()), ..written.clone() };
        assert_eq!(read(&named, record).as_ref(), Some(&named));
        for key in ["", "0f", &"+f".repeat(32), &"é".repeat(32), &"0f".repeat(33)] {
            let other = LeaderAddress { public_key: key.into(), ..written.clone() };
            assert_eq!(other.public_key(), None, "{key}");
        }
    }
}
