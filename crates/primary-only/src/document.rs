//! The documents of one service: their ids ([`Collection`]) and bodies, and [`DocumentedInstance`], an instance as
//! its document in the storage shows it.
//!
//! A document's id is `primary-only/`, the collection's name, a zero byte, and the instance's id as text. No
//! name contains a zero byte, so collections never overlap. Other writers choose another beginning.
//!
//! A body is a format byte, the service's schema version, and its state as JSON. The version stands outside of
//! the JSON, so that a program can read it before it parses the state.

use crate::BoxError;
use bytes::{BufMut, Bytes, BytesMut};
use ielections::{Document, DocumentId};
use serde::Serialize;
use serde_json::Value;
use std::{
    fmt::{self, Debug, Display},
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

/// The format byte of this envelope.
const FORMAT: u8 = 1;

/// The version of a service's documents, chosen by the author of the service.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SchemaVersion(u32);

impl SchemaVersion {
    /// The first version of every service.
    pub const FIRST: Self = Self(1);

    /// Returns the version with this number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for SchemaVersion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.0)
    }
}

/// The service does not read documents of this version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "written with schema version {written}, and this program reads {read}: \
     it is older than the program that wrote it, or lacks an `upgrade`"
)]
pub(crate) struct UnknownSchema {
    pub(crate) written: SchemaVersion,
    pub(crate) read: SchemaVersion,
}

/// This crate did not write the body.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NoEnvelope {
    #[error("a body of {0} bytes is too short for an envelope")]
    Short(usize),
    #[error("an envelope of format {0}, and this program reads {FORMAT}")]
    Format(u8),
}

/// Returns the body for a state.
pub(crate) fn seal<Doc: Serialize>(schema: SchemaVersion, doc: &Doc) -> Result<Bytes, serde_json::Error> {
    let mut body = BytesMut::new();
    body.put_u8(FORMAT);
    body.put_u32(schema.get());
    let mut body = body.writer();
    serde_json::to_writer(&mut body, doc)?;
    Ok(body.into_inner().freeze())
}

/// Splits a body into the schema version and the rest, which should be JSON.
pub(crate) fn parts(body: &[u8]) -> Result<(SchemaVersion, &[u8]), NoEnvelope> {
    let short = NoEnvelope::Short(body.len());
    let (format, rest) = body.split_first().ok_or(short)?;
    if *format != FORMAT {
        return Err(NoEnvelope::Format(*format));
    }
    let (schema, json) = rest.split_first_chunk().ok_or(short)?;
    Ok((SchemaVersion(u32::from_be_bytes(*schema)), json))
}

/// An instance as its document shows it.
///
/// Reading it takes neither the service's code nor a leadership. It does not say whether the instance runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct DocumentedInstance {
    /// The service's [`COLLECTION`](crate::Service::COLLECTION): by default its name.
    pub collection: String,
    /// The instance's id.
    pub instance: String,
    /// The number of the batch that wrote the document last. It grows with every write in the slot.
    pub version: u64,
    /// The state itself.
    #[serde(flatten)]
    pub state: DocumentedState,
}

/// The state in a document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(untagged)]
pub enum DocumentedState {
    /// The document is in an envelope of this crate.
    Readable {
        /// The schema version of the program that wrote it.
        schema: u32,
        /// The state.
        state: Value,
    },
    /// The document is in no envelope of this crate, or is not JSON.
    Unreadable {
        /// Why it can't be read.
        problem: String,
    },
}

impl DocumentedInstance {
    /// Returns the instance of a document; `None` if the document belongs to no instance.
    pub fn of(document: &Document) -> Option<Self> {
        let (collection, instance) = Collection::split(&document.id)?;
        let state = match parts(&document.body) {
            Ok((schema, json)) => serde_json::from_slice(json)
                .map(|state| DocumentedState::Readable { schema: schema.get(), state })
                .map_err(|cause| cause.to_string()),
            Err(cause) => Err(cause.to_string()),
        };
        Some(Self {
            collection,
            instance,
            version: document.version.get(),
            state: state.unwrap_or_else(|problem| DocumentedState::Unreadable { problem }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SchemaVersion;
    use bytes::Bytes;
    use ielections::{DocumentId, DocumentVersion};

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

    #[test]
    fn sealed_body_splits_into_version_and_json() {
        let body = seal(SchemaVersion::new(7), &vec!["a", "b"]).unwrap();
        assert_eq!(&body[..], b"\x01\x00\x00\x00\x07[\"a\",\"b\"]");
        assert_eq!(parts(&body), Ok((SchemaVersion(7), &b"[\"a\",\"b\"]"[..])));
    }

    #[test]
    fn body_without_an_envelope_is_an_error() {
        assert_eq!(parts(b""), Err(NoEnvelope::Short(0)));
        assert_eq!(parts(b"\x01\x00\x00\x00"), Err(NoEnvelope::Short(4)));
        assert_eq!(parts(b"{}"), Err(NoEnvelope::Format(b'{')));
    }

    fn documented(id: DocumentId, body: Bytes) -> Option<Value> {
        let document = Document { id, version: DocumentVersion::from_stored(9), body };
        Some(serde_json::to_value(DocumentedInstance::of(&document)?).unwrap())
    }

    #[test]
    fn document_shows_its_instance() {
        let id = Collection::new("jobs").unwrap().document(&7_u64);
        let body = seal(SchemaVersion::new(2), &["listing"]).unwrap();
        let expected = serde_json::json!({
            "collection": "jobs", "instance": "7", "version": 9, "schema": 2, "state": ["listing"],
        });
        assert_eq!(documented(id.clone(), body), Some(expected));

        for (body, problem) in [(&b"{}"[..], "format 123"), (b"\x01\0\0\0\x01nonsense", "expected ident")] {
            let shown = documented(id.clone(), Bytes::from_static(body)).unwrap();
            assert!(shown["problem"].as_str().unwrap().contains(problem), "{shown}");
        }
    }

    #[test]
    fn document_of_another_writer_is_no_instance() {
        for id in ["cursor", "primary-only/jobs", "primary-only/\0seven"] {
            assert_eq!(documented(DocumentId::new(id).unwrap(), Bytes::new()), None, "{id:?}");
        }
    }
}
