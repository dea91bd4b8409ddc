//! What stands in a document's body: a format byte, the schema version of the service, and its state as JSON.
//!
//! The version stands outside of the JSON, so that it can be read before it is known what the rest looks
//! like.

use crate::{BoxError, Service};
use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;
use std::fmt;

/// The envelope of this file. Another one would be told by its first byte.
const FORMAT: u8 = 1;

/// Which version of a service's documents: counted by who writes the service.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SchemaVersion(u32);

impl SchemaVersion {
    /// What a service begins with.
    pub const FIRST: Self = Self(1);

    /// That version.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for SchemaVersion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// A document of a version that the service does not know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "written with schema version {written}, and this program reads {read}: it is older than the program that wrote it, or lacks an `upgrade`"
)]
pub(crate) struct UnknownSchema {
    pub(crate) written: SchemaVersion,
    pub(crate) read: SchemaVersion,
}

/// Not written by this crate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NoEnvelope {
    #[error("a body of {0} bytes is too short for an envelope")]
    Short(usize),
    #[error("an envelope of format {0}, and this program reads {FORMAT}")]
    Format(u8),
}

/// Puts a state into its envelope.
pub(crate) fn seal<Doc: Serialize>(schema: SchemaVersion, doc: &Doc) -> Result<Bytes, serde_json::Error> {
    let mut body = BytesMut::new();
    body.put_u8(FORMAT);
    body.put_u32(schema.get());
    let mut body = body.writer();
    serde_json::to_writer(&mut body, doc)?;
    Ok(body.into_inner().freeze())
}

/// Reads what [`seal`] wrote, now or in another version of the program.
pub(crate) fn open<S: Service>(service: &S, body: &[u8]) -> Result<S::Doc, BoxError> {
    let (schema, json) = parts(body)?;
    if schema == S::SCHEMA { Ok(serde_json::from_slice(json)?) } else { service.upgrade(schema, json) }
}

/// Takes the envelope off: what is behind it should be JSON.
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
    fn what_is_sealed_is_opened() {
        let body = seal(SchemaVersion::new(7), &vec!["a", "b"]).unwrap();
        assert_eq!(&body[..], b"\x01\x00\x00\x00\x07[\"a\",\"b\"]");
        assert_eq!(parts(&body), Ok((SchemaVersion(7), &b"[\"a\",\"b\"]"[..])));
    }

    #[test]
    fn what_was_never_sealed_is_said_to_be_so() {
        assert_eq!(parts(b""), Err(NoEnvelope::Short(0)));
        assert_eq!(parts(b"\x01\x00\x00\x00"), Err(NoEnvelope::Short(4)));
        assert_eq!(parts(b"{}"), Err(NoEnvelope::Format(b'{')));
    }
}
