//! [`Collection`]: which documents belong to a service, and how an instance's id becomes a document's and
//! back.
//!
//! `primary-only/`, the collection's name, a zero byte, the id's text. No name has a zero byte, so no two
//! collections meet, and who writes documents of their own beside this crate has every other beginning.

use crate::{BoxError, InstanceId};
use bytes::Bytes;
use ielections::DocumentId;

const OURS: &str = "primary-only/";

/// A name that can't be a collection's.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} can't name a collection: it must not be empty nor have a zero byte")]
pub struct NotACollection(pub String);

/// The documents of one service.
#[derive(Clone, Debug)]
pub(crate) struct Collection {
    /// What the ids of its documents, and no others, begin with.
    prefix: Bytes,
}

/// An id whose document is not the one that it was read from: `7` and `007` are one number.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the document of this id is {0:?}")]
struct NotCanonical(String);

impl Collection {
    pub(crate) fn new(name: &str) -> Result<Self, NotACollection> {
        if name.is_empty() || name.contains('\0') {
            return Err(NotACollection(name.into()));
        }
        Ok(Self { prefix: format!("{OURS}{name}\0").into() })
    }

    pub(crate) fn prefix(&self) -> Bytes {
        self.prefix.clone()
    }

    /// The document of an instance.
    pub(crate) fn document<Id: InstanceId>(&self, id: &Id) -> DocumentId {
        let bytes = [&self.prefix[..], id.to_string().as_bytes()].concat();
        let Ok(document) = DocumentId::new(bytes) else { unreachable!("the prefix is not empty") };
        document
    }

    /// The collection and the instance of a document, as texts for people; `None` if it is of no collection.
    pub(crate) fn split(document: &DocumentId) -> Option<(String, String)> {
        let rest = document.as_bytes().strip_prefix(OURS.as_bytes())?;
        let end = rest.iter().position(|byte| *byte == 0).filter(|end| *end > 0)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some((text(&rest[..end]), text(&rest[end + 1..])))
    }

    /// The text behind the prefix, for people.
    pub(crate) fn name_of(&self, document: &DocumentId) -> String {
        let bytes = document.as_bytes();
        String::from_utf8_lossy(bytes.strip_prefix(&self.prefix[..]).unwrap_or(bytes)).into_owned()
    }

    /// The instance of a document.
    pub(crate) fn id_of<Id: InstanceId>(&self, document: &DocumentId) -> Result<Id, BoxError> {
        let bytes = document.as_bytes();
        let text = std::str::from_utf8(bytes.strip_prefix(&self.prefix[..]).unwrap_or(bytes))?;
        let id = text.parse::<Id>().map_err(Into::into)?;
        if id.to_string() == text { Ok(id) } else { Err(Box::new(NotCanonical(id.to_string()))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_collections_meet() {
        let [jobs, more] = ["jobs", "jobs2"].map(|name| Collection::new(name).unwrap());
        for id in ["", "2\0x", "\0"] {
            assert!(jobs.document(&id.to_owned()).as_bytes().starts_with(&jobs.prefix()));
            assert!(!jobs.document(&id.to_owned()).as_bytes().starts_with(&more.prefix()));
            assert!(!more.document(&id.to_owned()).as_bytes().starts_with(&jobs.prefix()));
        }
        assert_eq!(Collection::new("").unwrap_err(), NotACollection(String::new()));
        assert_eq!(Collection::new("a\0b").unwrap_err(), NotACollection("a\0b".into()));
    }

    #[test]
    fn an_id_reads_back_from_its_document_or_not_at_all() {
        let jobs = Collection::new("jobs").unwrap();
        assert_eq!(jobs.id_of::<u64>(&jobs.document(&7_u64)).unwrap(), 7);
        let error = |text: &str| jobs.id_of::<u64>(&jobs.document(&text.to_owned())).unwrap_err().to_string();
        assert_eq!(error("007"), "the document of this id is \"7\"");
        assert_eq!(error("x"), "invalid digit found in string");
    }
}
