//! Races the conditions of a server: counts the writes that it acknowledged, and those that stand.

use super::super::{errors::Failure, open::Requests};
use crate::cells::{Cell, CellWrite, Expected};
use bytes::Bytes;
use futures_util::future::join_all;
use ielections::{Entropy as _, OsEntropy};
use object_store::path::Path;
use std::{collections::HashMap, time::Duration};

const WRITERS: usize = 16;

/// How many objects the writers create in turn. Each is left there.
const CREATIONS: usize = 8;

/// How often each writer tries to increment a number in an object.
const INCREMENTS: usize = 64;

/// After so long nothing else begins.
const ENOUGH: Duration = Duration::from_secs(10);

/// What a server acknowledged and showed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Raced {
    creations: usize,
    /// Of these, with more than one winner.
    creations_won_twice: usize,
    increments: usize,
    /// The number in the end.
    number: usize,
    /// Reads of a content with the tag of a later one, by which a writer replaces what it has not seen. The
    /// tag of an earlier one does no harm: a write with it is refused.
    torn: usize,
}

impl Raced {
    /// Returns what is wrong with the server, if anything is.
    pub(super) fn verdict(&self) -> Option<String> {
        let Self { creations, creations_won_twice, increments, number, torn } = self;
        // An increment without an answer may count, so the number may be larger.
        (*creations_won_twice > 0 || increments > number || *torn > 0).then(|| {
            format!(
                "of {WRITERS} writers, several created the same object in {creations_won_twice} of \
                 {creations} rounds; of {increments} acknowledged replacements {number} stand; {torn} reads \
                 showed a content with the tag of a later one"
            )
        })
    }

    fn with(self, increments: &[Increment], number: usize) -> Self {
        let written = increments.iter().filter_map(|increment| increment.written.as_ref());
        let acknowledged: HashMap<_, _> = written.clone().map(|cell| (&cell.tag, &cell.value)).collect();
        let is_torn = |increment: &&Increment| {
            let Cell { tag, value } = &increment.read;
            acknowledged.get(tag).is_some_and(|written| number_of(written) > number_of(value))
        };
        let torn = increments.iter().filter(is_torn).count();
        Self { increments: written.count(), number, torn, ..self }
    }

    /// Returns what held.
    pub(super) fn summary(&self) -> String {
        let Self { creations, increments, .. } = self;
        format!("obeyed by {WRITERS} writers in {creations} creations and {increments} replacements")
    }
}

/// A read, and the replacement of what it showed, if that was acknowledged.
struct Increment {
    read: Cell,
    written: Option<Cell>,
}

/// Races creations of new objects, then replacements of one, each of what its writer has read.
///
/// # Errors
/// Of the last read, or of a round in which every write failed.
pub(super) async fn race(requests: &Requests) -> Result<Raced, Failure> {
    let began_at = requests.clock.now();
    let is_enough = || requests.clock.now().since(began_at) >= ENOUGH;
    let run = OsEntropy::default().next_u64();
    let mut raced = Raced::default();
    let name = |number: usize| requests.names.probe(&format!("race/{run:016x}-{number}"));
    for number in 0..CREATIONS {
        if is_enough() {
            break;
        }
        let winners = create(requests, &name(number)).await?;
        raced.creations += 1;
        raced.creations_won_twice += usize::from(winners > 1);
    }
    let name = name(0);
    let writers = (0..WRITERS).map(async |writer| {
        let mut increments = Vec::new();
        for _ in 0..INCREMENTS {
            if is_enough() {
                break;
            }
            // A server may be busy, forbid more than one write a second, or break off a read during a write.
            increments.extend(increment(requests, &name, writer).await.ok());
        }
        increments
    });
    let increments: Vec<_> = join_all(writers).await.into_iter().flatten().collect();
    match read(requests, &name).await {
        Ok(cell) => Ok(raced.with(&increments, number_of(&cell.value))),
        // The creations alone show it.
        Err(_) if raced.verdict().is_some() => Ok(raced),
        Err(failure) => Err(failure),
    }
}

/// Returns how many of the writers created the object.
async fn create(requests: &Requests, name: &Path) -> Result<usize, Failure> {
    let writers =
        (0..WRITERS).map(async |writer| requests.put(name, content(0, writer), &Expected::Absent).await);
    let (mut winners, mut refused, mut failure) = (0, 0, None);
    for outcome in join_all(writers).await {
        match outcome {
            Ok(CellWrite::Written(_)) => winners += 1,
            Ok(CellWrite::Refused) => refused += 1,
            Err(error) => failure = Some(error),
        }
    }
    match failure {
        Some(error) if winners + refused == 0 => Err(error),
        _ => Ok(winners),
    }
}

/// Replaces the number that was read by the next one.
async fn increment(requests: &Requests, name: &Path, writer: usize) -> Result<Increment, Failure> {
    let read = read(requests, name).await?;
    let value = content(number_of(&read.value) + 1, writer);
    // Without an answer it is not acknowledged.
    let written = match requests.put(name, value.clone(), &Expected::Tag(read.tag.clone())).await {
        Ok(CellWrite::Written(tag)) => tag.map(|tag| Cell { value, tag }),
        Ok(CellWrite::Refused) | Err(_) => None,
    };
    Ok(Increment { read, written })
}

async fn read(requests: &Requests, name: &Path) -> Result<Cell, Failure> {
    let cell = requests.get(name).await?.cell;
    cell.ok_or_else(|| Failure::Refused(format!("{name} is missing after it was created")))
}

/// Each writer has a content of its own: equal ones would have one tag.
fn content(number: usize, writer: usize) -> Bytes {
    format!("{number} by writer {writer}").into()
}

fn number_of(value: &Bytes) -> usize {
    let text = String::from_utf8_lossy(value);
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or_default()
}
