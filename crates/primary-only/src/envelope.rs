//! The body of a document: a format byte, the service's schema version, and its state as JSON.
//!
//! The version stands outside of the JSON, so that a program can read it before it parses the state.

use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;
use std::fmt;

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
        self.0.fmt(out)
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

#[cfg(test)]
mod tests {
    use super::*;

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
