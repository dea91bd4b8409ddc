//! [`DocumentedInstance`]: an instance as its document in the storage shows it.
//!
//! Reading it takes neither the service's code nor a leadership. It does not say whether the instance runs.

use crate::{collection::Collection, envelope};
use ielections::Document;
use serde::Serialize;
use serde_json::Value;

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
