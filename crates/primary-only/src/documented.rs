//! [`DocumentedInstance`]: an instance as its document in the storage shows it.
//!
//! Reading it takes neither the service's code nor a leadership. It does not say whether the instance runs.

use crate::{collection::Collection, envelope, turns::Term};
use ielections::{Document, DocumentReadError, DocumentVersion, DocumentWrite, DocumentWriteError};
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;
use vvm_clock::Clock;

/// An instance as its document shows it.
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
        let state = match envelope::parts(&document.body) {
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

/// The pause between two attempts. The storage limits each attempt itself.
const PAUSE: Duration = Duration::from_secs(1);

/// Writes until the result is known (I7), and returns the version of the document.
///
/// `in_doubt` says that an earlier attempt was dropped and may have been applied. Ends with the term at the
/// latest (I10).
pub(crate) async fn write_until_known(
    term: &Term,
    clock: &dyn Clock,
    write: DocumentWrite,
    in_doubt: bool,
) -> Result<DocumentVersion, DocumentWriteError> {
    let mut may_be_applied = in_doubt;
    loop {
        let error = match term.write(write.clone()).await {
            // The instance is the document's only writer, so its own earlier attempt may be in the way.
            Err(DocumentWriteError::Conflict { id, found }) if may_be_applied => {
                match applied(term, &write).await {
                    Ok(Some(version)) => return Ok(version),
                    Ok(None) => return Err(DocumentWriteError::Conflict { id, found }),
                    Err(error) => unknown(error),
                }
            }
            Err(error) => error,
            Ok(version) => return Ok(version),
        };
        match &error {
            DocumentWriteError::NotWritten { .. } => {}
            DocumentWriteError::Unknown { .. } => may_be_applied = true,
            _ => return Err(error),
        }
        tracing::warn!(document = %write.id(), %error, "a document was not written; trying again");
        if term.stop.run_until_cancelled(clock.sleep(PAUSE)).await.is_none() {
            return Err(error);
        }
    }
}

/// Returns the document's version if the write was applied.
async fn applied(term: &Term, write: &DocumentWrite) -> Result<Option<DocumentVersion>, DocumentReadError> {
    let document = term.get(write.id()).await?;
    Ok(match (write, document) {
        (DocumentWrite::Put { body, .. }, Some(document)) if document.body == *body => Some(document.version),
        // A deleted document has no version, and no caller reads it.
        (DocumentWrite::Delete { .. }, None) => Some(DocumentVersion::NONE),
        _ => None,
    })
}

fn unknown(error: DocumentReadError) -> DocumentWriteError {
    match error {
        DocumentReadError::Deposed { current } => DocumentWriteError::Deposed { current },
        DocumentReadError::Lost(loss) => DocumentWriteError::Lost(loss),
        DocumentReadError::TooLarge(beyond) => DocumentWriteError::TooLarge(beyond),
        DocumentReadError::Storage(error) => DocumentWriteError::Unknown { cause: error.to_string().into() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SchemaVersion;
    use bytes::Bytes;
    use ielections::{DocumentId, DocumentVersion};

    fn documented(id: DocumentId, body: Bytes) -> Option<Value> {
        let document = Document { id, version: DocumentVersion::from_stored(9), body };
        Some(serde_json::to_value(DocumentedInstance::of(&document)?).unwrap())
    }

    #[test]
    fn document_shows_its_instance() {
        let id = Collection::new("jobs").unwrap().document(&7_u64);
        let body = envelope::seal(SchemaVersion::new(2), &["listing"]).unwrap();
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
