//! The documents of one service: their ids ([`Collection`]) and bodies. A document's id is `primary-only/`, the
//! collection's name, a zero byte, and the instance's id as text. No name contains a zero byte, so collections never
//! overlap. Other writers choose another beginning. A body is a format byte, the service's schema version, and its
//! state as JSON. The version stands outside of the JSON, so that a program can read it before it parses the state.

use crate::BoxError;
use bytes::{BufMut, Bytes, BytesMut};
use ielections::DocumentId;
use serde::Serialize;
use std::{
    fmt::{self, Debug, Display},
    str::FromStr,
};

const PREFIX: &str = "primary-only/";

/// The id of an instance: any type that its text reads back into. Ordered, so that every list has the same order.
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

#[derive(Clone, Debug)]
pub(crate) struct Collection {
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

    pub(crate) fn document<Id: InstanceId>(&self, id: &Id) -> DocumentId {
        let bytes = [&self.prefix[..], id.to_string().as_bytes()].concat();
        let Ok(document) = DocumentId::new(bytes) else { unreachable!("the prefix is not empty") };
        document
    }

    pub(crate) fn name_of(&self, document: &DocumentId) -> String {
        String::from_utf8_lossy(self.instance(document)).into_owned()
    }

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

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "written with schema version {written}, and this program reads {read}: \
     it is older than the program that wrote it, or lacks an `upgrade`"
)]
pub(crate) struct UnknownSchema {
    pub(crate) written: SchemaVersion,
    pub(crate) read: SchemaVersion,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NoEnvelope {
    #[error("a body of {0} bytes is too short for an envelope")]
    Short(usize),
    #[error("an envelope of format {0}, and this program reads {FORMAT}")]
    Format(u8),
}

pub(crate) fn seal<Doc: Serialize>(schema: SchemaVersion, doc: &Doc) -> Result<Bytes, serde_json::Error> {
    let mut body = BytesMut::new();
    body.put_u8(FORMAT);
    body.put_u32(schema.get());
    let mut body = body.writer();
    serde_json::to_writer(&mut body, doc)?;
    Ok(body.into_inner().freeze())
}

pub(crate) fn parts(body: &[u8]) -> Result<(SchemaVersion, &[u8]), NoEnvelope> {
    let short = NoEnvelope::Short(body.len());
    let (format, rest) = body.split_first().ok_or(short)?;
    if *format != FORMAT {
        return Err(NoEnvelope::Format(*format));
    }
    let (schema, json) = rest.split_first_chunk().ok_or(short)?;
    Ok((SchemaVersion(u32::from_be_bytes(*schema)), json))
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
}
