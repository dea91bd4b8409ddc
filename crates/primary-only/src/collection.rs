//! [`Collection`]: the documents of one service.
//!
//! A document's id is `primary-only/`, the collection's name, a zero byte, and the instance's id as text. No
//! name contains a zero byte, so collections never overlap. Other writers choose another beginning.

use crate::BoxError;
use bytes::Bytes;
use ielections::DocumentId;
use std::{
    fmt::{Debug, Display},
    str::FromStr,
};

const PREFIX: &str = "primary-only/";

/// The id of an instance: any type that its text reads back into.
///
/// Ids are ordered, so that every list of instances has the same order.
pub trait InstanceId:
    Clone + Ord + Debug + Display + FromStr<Err: Into<BoxError>> + Send + Sync + 'static
{
}
impl<Id> InstanceId for Id where
    Id: Clone + Ord + Debug + Display + FromStr<Err: Into<BoxError>> + Send + Sync + 'static
{
}

/// The name can't be a collection's.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("\"{}\" can't name a collection: it must not be empty nor have a zero byte", .0.escape_default())]
pub struct NotACollection(pub String);

/// The documents of one service.
#[derive(Clone, Debug)]
pub(crate) struct Collection {
    /// The beginning of all ids of its documents, and of no others.
    prefix: Bytes,
}

/// The id reads from the document's id, but would be written differently: `7` and `007` are one number.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the document of this id is \"{}\"", .0.escape_default())]
struct NotCanonical(String);

impl Collection {
    pub(crate) fn new(name: &str) -> Result<Self, NotACollection> {
        if name.is_empty() || name.contains('\0') {
            return Err(NotACollection(name.into()));
        }
        Ok(Self { prefix: format!("{PREFIX}{name}\0").into() })
    }

    pub(crate) fn prefix(&self) -> Bytes {
        self.prefix.clone()
    }

    /// Returns the id of an instance's document.
    pub(crate) fn document<Id: InstanceId>(&self, id: &Id) -> DocumentId {
        let bytes = [&self.prefix[..], id.to_string().as_bytes()].concat();
        let Ok(document) = DocumentId::new(bytes) else { unreachable!("the prefix is not empty") };
        document
    }

    /// Returns the names of a document's collection and instance; `None` if it belongs to no collection.
    pub(crate) fn split(document: &DocumentId) -> Option<(String, String)> {
        let rest = document.as_bytes().strip_prefix(PREFIX.as_bytes())?;
        let end = rest.iter().position(|byte| *byte == 0).filter(|end| *end > 0)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some((text(&rest[..end]), text(&rest[end + 1..])))
    }

    /// Returns the name of a document's instance, for messages.
    pub(crate) fn name_of(&self, document: &DocumentId) -> String {
        String::from_utf8_lossy(self.instance(document)).into_owned()
    }

    /// Returns the id of a document's instance.
    pub(crate) fn id_of<Id: InstanceId>(&self, document: &DocumentId) -> Result<Id, BoxError> {
        let text = std::str::from_utf8(self.instance(document))?;
        let id = text.parse::<Id>().map_err(Into::into)?;
        if id.to_string() == text { Ok(id) } else { Err(Box::new(NotCanonical(id.to_string()))) }
    }

    fn instance<'id>(&self, document: &'id DocumentId) -> &'id [u8] {
        let bytes = document.as_bytes();
        bytes.strip_prefix(&self.prefix[..]).unwrap_or(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collections_do_not_overlap() {
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
    fn id_reads_back_from_its_document_only_in_its_own_form() {
        let jobs = Collection::new("jobs").unwrap();
        assert_eq!(jobs.id_of::<u64>(&jobs.document(&7_u64)).unwrap(), 7);
        let error = |text: &str| jobs.id_of::<u64>(&jobs.document(&text.to_owned())).unwrap_err().to_string();
        assert_eq!(error("007"), "the document of this id is \"7\"");
        assert_eq!(error("x"), "invalid digit found in string");
    }
}
