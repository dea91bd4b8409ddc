//! [`Requests`]: one GET or one conditional PUT, sent once.

use super::{
    super::{
        errors::{Answer, Failure},
        rows::Names,
    },
    address::Platform,
    transport::{Fate, Trace},
};
use crate::{
    cells::{Cell, CellWrite, Expected, Tag},
    drivers::http_connection::chain,
};
use bytes::Bytes;
use object_store::{
    Attribute, Attributes, Extensions, GetOptions, ObjectStore, PutMode, PutOptions, UpdateVersion,
    path::Path,
};
use std::{sync::Arc, time::Duration};
use vvm_clock::{Clock, Span};

/// The connections of a handle.
#[derive(Clone, Debug)]
pub(in super::super) struct Requests {
    pub(in super::super) store: Arc<dyn ObjectStore>,
    pub(in super::super) platform: Platform,
    pub(in super::super) names: Names,
    pub(in super::super) clock: Arc<dyn Clock>,
    pub(in super::super) timeout: Duration,
}

/// An object, if it exists, and the answer that showed it.
#[derive(Debug)]
pub(in super::super) struct Got {
    pub(in super::super) cell: Option<Cell>,
    pub(in super::super) answer: Answer,
}

impl Requests {
    /// Reads an object; linearizable.
    pub(in super::super) async fn get(&self, name: &Path) -> Result<Got, Failure> {
        let trace = Trace::default();
        let options = GetOptions { extensions: extensions(&trace), ..GetOptions::default() };
        let request = async {
            let got = self.store.get_opts(name, options).await?;
            let tag = self.tag(got.meta.e_tag.clone(), got.meta.version.clone());
            Ok((got.bytes().await?, tag))
        };
        let outcome = self.within_time(request).await;
        match (outcome, trace.fate()) {
            (Ok((value, Some(tag))), Fate::Answered(answer)) => {
                Ok(Got { cell: Some(Cell { value, tag }), answer })
            }
            (Err(_), Fate::Answered(answer)) if answer.is_absent() => Ok(Got { cell: None, answer }),
            // The rest of the answer is missing, or it has no tag.
            (Err(said), Fate::Answered(answer)) if answer.is_success() => Err(Failure::Unanswered(said)),
            (_, Fate::Answered(answer)) => Err(answer.failure()),
            (outcome, fate) => Err(unanswered(outcome.err(), &fate)),
        }
    }

    /// Replaces an object by `value` if it is in the state `expected`.
    ///
    /// # Cancel safety
    /// Dropped, the write may be applied, now or later.
    pub(in super::super) async fn put(
        &self,
        name: &Path,
        value: Bytes,
        expected: &Expected,
    ) -> Result<CellWrite, Failure> {
        let trace = Trace::default();
        // Google's servers cache an object that everyone may read for an hour, unless it says this.
        let attributes = Attributes::from_iter([(Attribute::CacheControl, "no-store")]);
        let options = PutOptions {
            mode: self.mode(expected),
            attributes,
            extensions: extensions(&trace),
            ..PutOptions::default()
        };
        let request = async {
            let put = self.store.put_opts(name, value.into(), options).await?;
            Ok(self.tag(put.e_tag, put.version))
        };
        let outcome = self.within_time(request).await;
        match (outcome, trace.fate()) {
            (Ok(Some(tag)), Fate::Answered(_)) if *expected == Expected::Tag(tag.clone()) => {
                // Of another answer, of a cache for example: each content has a tag of its own (I7).
                Err(Failure::Unanswered("an answer with the tag that was to be replaced".into()))
            }
            (Ok(Some(tag)), Fate::Answered(_)) => Ok(CellWrite::Written(Some(tag))),
            (_, Fate::Answered(answer)) if answer.is_refusal() => Ok(CellWrite::Refused),
            (_, Fate::Answered(answer)) => Err(answer.failure()),
            (outcome, fate) => Err(unanswered(outcome.err(), &fate)),
        }
    }

    /// Drops `request` after the time limit. Its trace says whether it may have been sent (I7).
    async fn within_time<T>(
        &self,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, String> {
        tokio::select! {
            biased;
            outcome = request => outcome.map_err(|error| {
                let words: Vec<_> = chain(&error).map(ToString::to_string).collect();
                words.last().cloned().unwrap_or_default()
            }),
            () = self.clock.sleep(self.timeout) => Err(format!("no answer within {}", Span(self.timeout))),
        }
    }

    fn mode(&self, expected: &Expected) -> PutMode {
        match expected {
            Expected::Absent => PutMode::Create,
            Expected::Tag(tag) => {
                let tag = Some(String::from_utf8_lossy(tag.as_bytes()).into_owned());
                PutMode::Update(match self.platform {
                    Platform::Google => UpdateVersion { e_tag: None, version: tag },
                    Platform::S3 | Platform::Azure => UpdateVersion { e_tag: tag, version: None },
                })
            }
        }
    }

    fn tag(&self, e_tag: Option<String>, version: Option<String>) -> Option<Tag> {
        let tag = match self.platform {
            Platform::Google => version,
            Platform::S3 | Platform::Azure => e_tag,
        };
        tag.map(|tag| Tag::new(tag.into_bytes()))
    }

    /// Returns a tag that no object has.
    pub(in super::super) fn wrong_tag(&self) -> Tag {
        let text: &[u8] = match self.platform {
            Platform::S3 => b"\"00000000000000000000000000000000\"",
            Platform::Google => b"1",
            Platform::Azure => b"\"0x8000000000000000\"",
        };
        Tag::new(text)
    }
}

fn extensions(trace: &Trace) -> Extensions {
    let mut extensions = Extensions::new();
    extensions.insert(trace.clone());
    extensions
}

fn unanswered(said: Option<String>, fate: &Fate) -> Failure {
    let said = said.unwrap_or_else(|| "an answer without a request".into());
    if *fate == Fate::NotSent { Failure::NotSent(said) } else { Failure::Unanswered(said) }
}

#[cfg(test)]
mod tests;
