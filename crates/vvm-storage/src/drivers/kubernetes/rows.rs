//! A Lease: what each field shows to people and to client-go, and where the value of the cell is.

mod foreign;
mod names;
mod spec;

pub(super) use names::{is_slot, label, name};

use crate::{
    Partition,
    cells::{Cell, Tag},
};
use bytes::Bytes;
use data_encoding::BASE64;
use ielections::Entry;
use serde::{Deserialize, Serialize};
use spec::Spec;
use std::{collections::BTreeMap, time::Duration};

/// The value of the cell, as text if it is text.
const CELL: &str = "vvm/cell";

/// A digest of the spec that was written with it.
const SPEC: &str = "vvm/spec";

/// The last epoch, by which claims are told from renewals.
const EPOCH: &str = "vvm/epoch";

/// The label of all Leases of a name.
pub(super) const NAME: &str = "vvm/name";

/// Before a value that is not text. A value that is begins with a brace.
const ENCODED: &str = "base64:";

const API_VERSION: &str = "coordination.k8s.io/v1";

/// Another program wrote a Lease in a way that shows no holder and no vacancy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "Lease {name} is damaged: {why}. Find out what writes to it, and delete it when nothing of this name runs"
)]
pub(super) struct Damaged {
    name: String,
    why: String,
}

/// A Lease, without what only the API server writes.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Lease {
    api_version: String,
    kind: String,
    metadata: Metadata,
    spec: Spec,
}

/// Labels, annotations and owners of other programs are kept.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    resource_version: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    owner_references: Vec<serde_json::Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    finalizers: Vec<String>,
}

impl Lease {
    /// A Lease that does not exist yet.
    pub(super) fn new(at: &Partition, namespace: &str) -> Self {
        let mut lease = Self::default();
        lease.metadata.name = name(at);
        namespace.clone_into(&mut lease.metadata.namespace);
        lease
    }

    /// The Lease as it was when `tag` was returned, without the value of its cell.
    pub(super) fn of_tag(tag: &Tag) -> Result<Self, Damaged> {
        let damaged = |cause: serde_json::Error| Damaged { name: "?".into(), why: cause.to_string() };
        serde_json::from_slice(tag.as_bytes()).map_err(damaged)
    }

    /// Replaces the cell's value and what the Lease shows of it. `now` counts from the Unix epoch.
    pub(super) fn set(
        mut self,
        at: &Partition,
        value: &Bytes,
        record: Option<&Entry>,
        now: Duration,
    ) -> Self {
        let Metadata { annotations, labels, .. } = &mut self.metadata;
        let epoch = record.map(|entry| entry.epoch.to_string());
        let is_claim = epoch.as_ref().is_some_and(|epoch| annotations.get(EPOCH) != Some(epoch));
        self.spec = self.spec.followed_by(record, is_claim, now);
        annotations.insert(CELL.into(), text(value));
        annotations.insert(SPEC.into(), self.spec.digest());
        if let Some(epoch) = epoch {
            annotations.insert(EPOCH.into(), epoch);
        }
        labels.insert(NAME.into(), label(at));
        API_VERSION.clone_into(&mut self.api_version);
        "Lease".clone_into(&mut self.kind);
        self.metadata.name = name(at);
        self
    }

    /// Returns the cell. If another program wrote the spec, its value says what the spec says.
    pub(super) fn cell(mut self, at: &Partition) -> Result<Cell, Damaged> {
        let stored = self.metadata.annotations.remove(CELL);
        let is_ours = self.metadata.annotations.get(SPEC) == Some(&self.spec.digest());
        let stored = stored.map(|text| value(&text).ok_or_else(|| self.damaged("its value is not base64")));
        let value = match stored.transpose()? {
            Some(stored) if is_ours || !is_slot(at) => stored,
            None if !is_slot(at) => return Err(self.damaged("it has no annotation vvm/cell")),
            stored => foreign::value(at, stored.as_ref(), &self.spec).map_err(|why| self.damaged(why))?,
        };
        Ok(Cell { value, tag: self.tag() })
    }

    /// What the next write is made from. The version in it differs for each value.
    fn tag(&self) -> Tag {
        // Maps have strings for keys, so nothing fails.
        Tag::new(serde_json::to_vec(self).unwrap_or_default())
    }

    /// The tag of a Lease that was just written.
    pub(super) fn into_tag(mut self) -> Tag {
        self.metadata.annotations.remove(CELL);
        self.tag()
    }

    fn damaged(&self, why: impl ToString) -> Damaged {
        Damaged { name: self.metadata.name.clone(), why: why.to_string() }
    }

    pub(super) fn name(&self) -> &str {
        &self.metadata.name
    }

    pub(super) fn is_same_object(&self, other: &Self) -> bool {
        self.metadata.uid == other.metadata.uid
    }

    pub(super) fn is_held(&self) -> bool {
        self.spec.holder().is_some()
    }
}

fn text(value: &Bytes) -> String {
    match std::str::from_utf8(value) {
        Ok(text) if text.starts_with('{') => text.to_owned(),
        _ => format!("{ENCODED}{}", BASE64.encode(value)),
    }
}

fn value(text: &str) -> Option<Bytes> {
    match text.strip_prefix(ENCODED) {
        Some(encoded) => BASE64.decode(encoded.as_bytes()).ok().map(Bytes::from),
        None => Some(text.to_owned().into()),
    }
}

#[cfg(test)]
mod tests;
